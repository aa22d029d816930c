"""Attention pooling: a query, keys and annotations become a context and its weights."""

import torch
from torch import Tensor, nn

from seq2seq.attention.masking import masked_softmax
from seq2seq.attention.scoring import SCORES, AdditiveScore
from seq2seq.config import AttentionConfig


class SoftAttention(nn.Module):
    """Soft (global) attention (Bahdanau et al. 2015, arXiv:1409.0473, equations 5 and 6).

        a_i = softmax_j(e_ij)       attention weights
        c_i = sum_j a_ij h_j        context

    ``project`` does not depend on the target position: call it once a sentence and hand the
    result to every step. The module itself remembers nothing.
    """

    def __init__(self, score: AdditiveScore):
        super().__init__()
        self.score = score

    def project(self, annotations: Tensor) -> Tensor:
        """The keys of the scoring function: (B, S, C) -> (B, S, A)."""
        return self.score.project(annotations)

    def forward(
        self, query: Tensor, keys: Tensor, annotations: Tensor, source_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attend once.

        Args:
            query: previous decoder state, (B, H).
            keys: ``project(annotations)``, (B, S, A).
            annotations: encoder outputs, (B, S, C).
            source_mask: True at tokens, False at padding, (B, S).

        Returns:
            The context (B, C) and the attention weights (B, S): each row sums to 1 and is
            exactly 0 at padding; a row without any token is all 0, and so is its context.
        """
        weights = masked_softmax(self.score(query, keys), source_mask)
        context = torch.bmm(weights.unsqueeze(1), annotations).squeeze(1)
        return context, weights


def build_attention(
    config: AttentionConfig, query_size: int, annotation_size: int
) -> SoftAttention:
    """The attention that ``model.attention.name`` asks for."""
    if config.name not in SCORES:
        raise ValueError(
            f"model.attention.name={config.name!r} is unknown; choose one of {sorted(SCORES)}, "
            f"or add a class to SCORES in seq2seq.attention.scoring."
        )
    return SoftAttention(SCORES[config.name](query_size, annotation_size, config.size))
