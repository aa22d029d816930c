"""Losses, optimisers, the training loop and its journal."""
