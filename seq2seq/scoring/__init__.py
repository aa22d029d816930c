"""A translator meets a test set: scores, files, pictures."""
