"""Joins data and model: sentences in, translations out."""
