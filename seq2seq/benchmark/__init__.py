"""Benchmarks of training, attention, decoding and loading."""
