"""Evaluation of a translator on a test set: scores, files, pictures."""
