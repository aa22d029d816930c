"""The encoder-decoder model: token ids in, logits out; it knows no text and no files."""
