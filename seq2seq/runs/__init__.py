"""Whole runs: manifest, reproduction, comparison, averaging."""
