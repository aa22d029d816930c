"""From text files to batches of token ids; no parameters and no gradients."""
