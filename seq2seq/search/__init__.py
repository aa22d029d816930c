"""Search and translation: joins data and model, sentences in, translations out."""
