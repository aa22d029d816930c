"""The training loop: losses, optimizers, checkpoints and logs."""
