"""Attention pooling: a query, keys and annotations become a context and its weights.

    attention = scoring function (``scoring``) + way of weighing (``weighing``) + weighted sum

No attention remembers anything: what depends on earlier target positions is passed, as ``Past``.
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from seq2seq.attention.distribution import Past, Soft, Weighing
from seq2seq.attention.scoring import Score


class Attention(nn.Module):
    """Attention (Bahdanau et al. 2015, arXiv:1409.0473, equations 5 and 6).

        e_ij = score(s_{i-1}, h_j)      energies
        a_i  = weighing(e_i)            attention weights; a softmax in the paper
        c_i  = sum_j a_ij h_j           context

    ``project`` does not depend on the target position: call it once a sentence and hand the
    result to every step.

    With ``coverage``, what has been looked at enters the keys, and so every score that sees them:

        e_ij = score(s_{i-1}, k_j + w_c sum_{i'<i} a_i'j)

    which for additive scoring is equation 11 of See et al. 2017 (arXiv:1704.04368); Tu et al. 2016
    (arXiv:1601.04811) began it.

    Example:
        >>> attention = Attention(AdditiveScore(query_size=4, annotation_size=6, size=8))
        >>> query, annotations = torch.randn(2, 4), torch.randn(2, 5, 6)
        >>> mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
        >>> context, weights = attention(query, attention.project(annotations), annotations, mask)
        >>> context.shape, weights.shape
        (torch.Size([2, 6]), torch.Size([2, 5]))
    """

    def __init__(self, score: Score, weighing: Weighing | None = None, coverage: bool = False):
        super().__init__()
        self.score = score
        self.weighing = Soft() if weighing is None else weighing
        self.coverage_layer = nn.Linear(1, score.key_size, bias=False) if coverage else None

    def project(self, annotations: Tensor) -> Tensor:
        """The keys of the scoring function: (B, S, C) -> (B, S, K)."""
        return self.score.project(annotations)

    def start(self, annotations: Tensor) -> Past | None:
        """What ``forward`` must be told of the past before the first position of a sentence; None
        where no position needs to know of others."""
        return Past.none(annotations) if self.looks_back else None

    @property
    def looks_back(self) -> bool:
        """Whether a position must know where those before it looked."""
        return self.weighing.looks_back or self.coverage_layer is not None

    def forward(
        self,
        query: Tensor,
        keys: Tensor,
        annotations: Tensor,
        source_mask: Tensor,
        past: Past | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend once.

        Args:
            query: previous decoder state, (B, H); of soft and hard attention also (B, Q, H).
            keys: ``project(annotations)``, (B, S, K).
            annotations: encoder outputs, (B, S, C).
            source_mask: True at tokens, False at padding, (B, S), or (B, Q, S) for Q queries.
            past: from ``start``, then ``past.then(weights)`` of each position.

        Returns:
            The context (B, C) and the attention weights (B, S), or (B, Q, C) and (B, Q, S): each
            row sums to 1 and is exactly 0 at padding; a row without any token is all 0, and so is
            its context.

        Raises:
            TypeError: ``source_mask`` is not boolean.
            ValueError: there are many queries where there may be one, or no past where there must
                be one.
        """
        if past is None and self.looks_back:
            raise ValueError(
                "this attention looks back: give past, which is attention.start(annotations) at "
                "first and past.then(weights) after each position."
            )
        one_query = self.weighing.one_query or self.looks_back
        source_mask = mask_for(query, source_mask, type(self.weighing) if one_query else None)
        if self.coverage_layer is not None and past is not None:
            keys = keys + self.coverage_layer(past.coverage.unsqueeze(-1))
        weights = self.weighing(self.score(query, keys), source_mask, query, past)
        return weighted_sum(weights, annotations), weights


class NoAttention(nn.Module):
    """The same context at every target position (Cho et al. 2014, arXiv:1406.1078, section 2.2).

        c = [forward state at the last token; backward state at the first]

    What Bahdanau et al. 2015 compare with as RNNencdec, but for the direction: theirs reads from
    left to right only, this one both ways, so that the two models differ in attention alone. It
    looks nowhere: its weights are 0.
    """

    def project(self, annotations: Tensor) -> Tensor:
        """Nothing to project: (B, S, C) -> (B, S, C)."""
        return annotations

    def start(self, annotations: Tensor) -> Past | None:
        """There is no past to look back to."""
        return None

    def forward(
        self,
        query: Tensor,
        keys: Tensor,
        annotations: Tensor,
        source_mask: Tensor,
        past: Past | None = None,
    ) -> tuple[Tensor, Tensor]:
        """As ``Attention``, of one query: a context (B, C), and weights (B, S) that are all 0."""
        source_mask = mask_for(query, source_mask, type(self))
        half = annotations.shape[-1] // 2
        last = (source_mask.sum(dim=1) - 1).clamp(min=0)
        rows = torch.arange(len(last), device=last.device)
        context = torch.cat([annotations[rows, last, :half], annotations[:, 0, half:]], dim=-1)
        nothing = annotations.new_zeros(annotations.shape[:2])
        return context.masked_fill(~source_mask.any(dim=1, keepdim=True), 0.0), nothing


class MultiHeadAttention(nn.Module):
    """Several attentions at once (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2), each with
    any scoring function.

        a_i^n = softmax_j score_n(Q_n s, K_n h_j)           head n of N, of C / N units
        c_i   = O [V_1 sum_j a_ij^1 h_j; ...; V_N sum_j a_ij^N h_j]

    The values ``V_n h_j`` are taken after the sum, which is the same and costs one position a
    step instead of S. The weights returned are the mean over the heads.

    Args:
        scores: one scoring function a head, each of C / N query and annotation units.
        query_size: units of a query, H.
        annotation_size: units of an annotation, C.
        weighing: of every head; it must need no past.
    """

    def __init__(
        self,
        scores: list[Score],
        query_size: int,
        annotation_size: int,
        weighing: Weighing | None = None,
    ):
        super().__init__()
        num_heads = len(scores)
        if annotation_size % num_heads:
            raise ValueError(
                f"{num_heads} heads must divide the {annotation_size} units of an annotation."
            )
        head_size = annotation_size // num_heads
        self.scores = nn.ModuleList(scores)
        self.key_sizes = [score.key_size for score in scores]
        self.weighing = Soft() if weighing is None else weighing
        if self.weighing.one_query:
            raise ValueError(
                f"heads weigh by Soft or Hard, not by {type(self.weighing).__name__}, which "
                f"takes one query and may look back."
            )
        self.query_layer = nn.Linear(query_size, annotation_size, bias=False)
        self.key_layer = nn.Linear(annotation_size, annotation_size, bias=False)
        self.value_layers = nn.ModuleList(
            nn.Linear(annotation_size, head_size, bias=False) for _ in scores
        )
        self.context_layer = nn.Linear(annotation_size, annotation_size, bias=False)

    def project(self, annotations: Tensor) -> Tensor:
        """The keys of all heads side by side: (B, S, C) -> (B, S, K)."""
        parts = self.key_layer(annotations).chunk(len(self.scores), dim=-1)
        heads = zip(cast(Iterable[Score], self.scores), parts, strict=True)
        return torch.cat([score.project(part) for score, part in heads], dim=-1)

    def start(self, annotations: Tensor) -> Past | None:
        """No head looks back."""
        return None

    def head_weights(self, query: Tensor, keys: Tensor, source_mask: Tensor) -> Tensor:
        """Weights of every head: (N, B, S), or (N, B, Q, S) for Q queries."""
        queries = self.query_layer(query).chunk(len(self.scores), dim=-1)
        heads = zip(self.scores, queries, keys.split(self.key_sizes, dim=-1), strict=True)
        mask = mask_for(query, source_mask, None)
        return torch.stack(
            [self.weighing(score(part, key), mask, part, None) for score, part, key in heads]
        )

    def forward(
        self,
        query: Tensor,
        keys: Tensor,
        annotations: Tensor,
        source_mask: Tensor,
        past: Past | None = None,
    ) -> tuple[Tensor, Tensor]:
        """As ``Attention``; the weights are the mean over the heads."""
        weights = self.head_weights(query, keys, source_mask)
        values = [
            layer(weighted_sum(head, annotations))
            for layer, head in zip(self.value_layers, weights.unbind(), strict=True)
        ]
        return self.context_layer(torch.cat(values, dim=-1)), weights.mean(dim=0)


def mask_for(query: Tensor, source_mask: Tensor, one_query: type | None) -> Tensor:
    """The mask (B, S) of a batch for all of its queries, if they are (B, Q, H).

    Args:
        query: one, (B, H), or many.
        source_mask: (B, S), or (B, Q, S).
        one_query: what takes one query only, for the message; None if nothing does.

    Raises:
        TypeError: the mask is not boolean.
        ValueError: there are many queries where there may be one.
    """
    if source_mask.dtype != torch.bool:
        raise TypeError(
            f"source_mask must be boolean with True at real tokens, not {source_mask.dtype}; "
            f"of lengths it is torch.arange(S) < lengths.unsqueeze(-1)."
        )
    # Not left to the shapes: with as many queries as source positions they would agree.
    if query.dim() > 2 and one_query is not None:
        raise ValueError(
            f"{one_query.__name__} takes one query (B, H) a sentence, not queries of shape "
            f"{tuple(query.shape)}: ask them one by one, or use Soft or Hard without coverage."
        )
    return source_mask.unsqueeze(1) if source_mask.dim() < query.dim() else source_mask


def weighted_sum(weights: Tensor, annotations: Tensor) -> Tensor:
    """``sum_j a_ij h_j``: (B, S) or (B, Q, S), (B, S, C) -> (B, C) or (B, Q, C)."""
    if weights.dim() == 2:
        return torch.bmm(weights.unsqueeze(1), annotations).squeeze(1)
    return torch.bmm(weights, annotations)
