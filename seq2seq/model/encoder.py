"""Source ids become annotations: one vector a token, read from both sides."""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq.fast.encoder import read
from seq2seq.model.dropout import Dropout
from seq2seq.model.layers import LibraryLayers, PaperGRULayers


class Encoded(NamedTuple):
    """What the encoder knows of a batch of sentences."""

    annotations: Tensor  # h_j = [forward; backward], (B, S, C); 0 at padding
    final: Tensor  # the backward direction's state at the first token, (B, C / 2)
    mask: Tensor  # True at tokens, (B, S)


class Encoder(nn.Module):
    """Bidirectional RNN encoder (Bahdanau et al. 2015, arXiv:1409.0473, section 3.2).

    h_j = [forward state at j; backward state at j]

    What it says of a sentence does not depend on the padding behind it.
    """

    def __init__(
        self, embedding: nn.Embedding, layers: LibraryLayers | PaperGRULayers, dropout: float
    ):
        """Set ``is_fast`` to False, and gradients are autograd's, not the hand-written ones."""
        super().__init__()
        self.embedding = embedding
        self.layers = layers
        self.dropout = Dropout(dropout)
        self.is_fast = True

    def forward(self, source: Tensor, source_mask: Tensor) -> Encoded:
        """Read a batch of sentences.

        Args:
            source: ids, (B, S).
            source_mask: True at tokens, (B, S); each row holds at least one.
        """
        embedded = self.dropout(self.embedding(source))
        # Without a gradient, and on a GPU with one, torch's own kernels are the faster ones.
        by_hand = self.is_fast and torch.is_grad_enabled() and not embedded.is_cuda
        layers = partial(read, self.layers) if by_hand else self.layers
        annotations, final = layers(embedded, source_mask)
        return Encoded(annotations, final, source_mask)
