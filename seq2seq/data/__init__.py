"""Strings in, integer batches out; never a parameter or a gradient."""
