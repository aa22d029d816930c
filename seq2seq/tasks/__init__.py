"""The tasks that can be trained; each module defines one task of the training loop."""
