"""Strings, scores and weights; never a model."""
