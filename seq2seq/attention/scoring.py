"""Scoring functions: how well does a query match a key?

A scoring function has two halves. ``project`` is the part that only the keys decide; it runs
once a sentence. ``forward`` compares one query with the projected keys; it runs once a step.
Neither remembers anything.
"""

import torch
from torch import Tensor, nn


class AdditiveScore(nn.Module):
    """Additive scoring (Bahdanau et al. 2015, arXiv:1409.0473, appendix A.1.2).

    e_ij = v . tanh(W s_{i-1} + U h_j)
    """

    def __init__(self, query_size: int, annotation_size: int, attention_size: int):
        super().__init__()
        self.query_layer = nn.Linear(query_size, attention_size, bias=False)
        self.key_layer = nn.Linear(annotation_size, attention_size, bias=False)
        self.energy_layer = nn.Linear(attention_size, 1, bias=False)

    def project(self, annotations: Tensor) -> Tensor:
        """``U h_j`` for every source position: (B, S, C) -> (B, S, A)."""
        return self.key_layer(annotations)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Energies of one query against all keys: (B, H), (B, S, A) -> (B, S)."""
        hidden = torch.tanh(self.query_layer(query).unsqueeze(1) + keys)
        return self.energy_layer(hidden).squeeze(-1)


# A new scoring function is one class above, one line here, and one file in conf/model/attention.
SCORES = {"additive": AdditiveScore}
