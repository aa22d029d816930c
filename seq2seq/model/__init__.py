"""Integers in, logits out; never a string or a file."""
