"""Attention mechanisms: masking, scoring functions, attention modes, and pooling.

Usable without the rest of the package.
"""
