"""Attention pooling: a query, keys and values become a context and attention weights.

    attention = scoring function (``scoring``) + distribution (``distribution``) + weighted sum

Attention modules keep no state: information about earlier target positions is passed to them as an
``AttentionHistory``.
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from seq2seq.attention.distribution import MODES, AttentionHistory, Distribution, Soft
from seq2seq.attention.scoring import Score


class Attention(nn.Module):
    """Attention (Bahdanau et al. 2015, arXiv:1409.0473, equations 5 and 6).

        e_ij = score(s_{i-1}, h_j)      energies
        a_i  = distribution(e_i)        attention weights; a softmax in the paper
        c_i  = sum_j a_ij h_j           context

    ``project`` does not depend on the target position: call it once per sentence and pass the
    result to every step.

    With coverage, the weights of earlier positions enter the keys, and so every score that sees
    keys:

        e_ij = score(s_{i-1}, k_j + w_c sum_{i'<i} a_i'j)

    which for additive scoring is equation 11 of See et al. 2017 (arXiv:1704.04368), after Tu et al.
    2016 (arXiv:1601.04811).

    Args:
        score: the scoring function.
        distribution: turns energies into weights; soft attention by default.
        coverage_size: units of a projected key, K, for attention with coverage.

    Example:
        >>> attention = Attention(AdditiveScore(query_size=4, key_size=6, hidden_size=8))
        >>> query, values = torch.randn(2, 4), torch.randn(2, 5, 6)
        >>> mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
        >>> context, weights = attention(query, attention.project(values), values, mask)
        >>> context.shape, weights.shape
        (torch.Size([2, 6]), torch.Size([2, 5]))
    """

    def __init__(
        self,
        score: Score,
        distribution: Distribution | None = None,
        coverage_size: int | None = None,
    ):
        super().__init__()
        self.score = score
        self.distribution = Soft() if distribution is None else distribution
        self.coverage_layer = (
            None if coverage_size is None else nn.Linear(1, coverage_size, bias=False)
        )

    def project(self, values: Tensor) -> Tensor:
        """Compute the keys of the scoring function: (B, S, C) -> (B, S, K)."""
        return self.score.project(values)

    def initial_history(self, values: Tensor) -> AttentionHistory | None:
        """Return the history before the first target position, or None if it is not needed."""
        return AttentionHistory.empty(values) if self.needs_history else None

    @property
    def needs_history(self) -> bool:
        """Whether the weights depend on those of earlier target positions."""
        return self.distribution.needs_history or self.coverage_layer is not None

    def forward(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        history: AttentionHistory | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend once.

        Args:
            query: previous decoder state, (B, H); for soft and hard attention also (B, Q, H).
            keys: ``project(values)``, (B, S, K).
            values: encoder outputs, (B, S, C).
            mask: True at tokens, False at padding, (B, S), or (B, Q, S) for Q queries.
            history: ``initial_history(values)``, then ``history.append(weights)`` of each position.

        Returns:
            The context (B, C) and the attention weights (B, S), or (B, Q, C) and (B, Q, S). Each
            row of weights sums to 1 and is exactly 0 at padding; for a row without tokens, weights
            and context are all 0.

        Raises:
            TypeError: ``mask`` is not boolean.
            ValueError: several queries are given where only one is accepted, or a required history
                is missing.
        """
        if history is None and self.needs_history:
            raise ValueError(
                "this attention needs a history: pass attention.initial_history(values) at the "
                "first target position, then history.append(weights) after each."
            )
        one_query = self.distribution.one_query or self.needs_history
        mask = expand_mask(query, mask, type(self.distribution) if one_query else None)
        if self.coverage_layer is not None and history is not None:
            keys = keys + self.coverage_layer(history.coverage.unsqueeze(-1))
        weights = self.distribution(self.score(query, keys), mask, query, history)
        return weighted_sum(weights, values), weights


class NoAttention(nn.Module):
    """The same context at every target position (Cho et al. 2014, arXiv:1406.1078, section 2.2).

        c = [forward state at the last token; backward state at the first]

    The baseline that Bahdanau et al. 2015 call RNNencdec, except that their encoder reads only
    from left to right. This one reads in both directions, so that the two models differ in
    attention alone. All weights are 0.
    """

    def project(self, values: Tensor) -> Tensor:
        """Return the values, which need no projection: (B, S, C) -> (B, S, C)."""
        return values

    def initial_history(self, values: Tensor) -> AttentionHistory | None:
        """Return None: no history is needed."""
        return None

    def forward(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        history: AttentionHistory | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return a context (B, C) and weights (B, S) of zeros, for one query per sentence.

        Arguments and errors are those of ``Attention.forward``.
        """
        mask = expand_mask(query, mask, type(self))
        half = values.shape[-1] // 2
        last = (mask.sum(dim=1) - 1).clamp(min=0)
        rows = torch.arange(len(last), device=last.device)
        context = torch.cat([values[rows, last, :half], values[:, 0, half:]], dim=-1)
        weights = values.new_zeros(values.shape[:2])
        return context.masked_fill(~mask.any(dim=1, keepdim=True), 0.0), weights


class MultiHeadAttention(nn.Module):
    """Several attentions at once (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2), each with
    any scoring function.

        a_i^n = softmax_j score_n(Q_n s, K_n h_j)           head n of N, of C / N units
        c_i   = O [V_1 sum_j a_ij^1 h_j; ...; V_N sum_j a_ij^N h_j]

    The projections ``V_n`` are applied after the sum, which gives the same result and projects one
    vector per step instead of S. The returned weights are the mean over the heads.

    Args:
        scores: one scoring function per head, each for queries and keys of C / N units.
        query_size: units of a query, H.
        value_size: units of a value, C.
        distribution: shared by all heads; soft attention by default.

    Raises:
        ValueError: the heads do not divide the units of a value, or the distribution accepts only
            one query per sentence.
    """

    def __init__(
        self,
        scores: list[Score],
        query_size: int,
        value_size: int,
        distribution: Distribution | None = None,
    ):
        super().__init__()
        num_heads = len(scores)
        distribution = Soft() if distribution is None else distribution
        if value_size % num_heads:
            raise ValueError(
                f"model.attention.heads={num_heads} must divide the {value_size} units of a value "
                f"(2 * model.encoder_size={value_size})."
            )
        if distribution.one_query:
            kind = type(distribution)
            names = {mode: name for name, mode in MODES.items()}
            allowed = [name for name, mode in MODES.items() if not mode.one_query]
            raise ValueError(
                f"model.attention.heads={num_heads} needs model.attention.mode="
                f"{' or '.join(allowed)}, not mode={names.get(kind, kind.__name__)}, which "
                f"accepts only one query per sentence."
            )
        head_size = value_size // num_heads
        self.scores = nn.ModuleList(scores)
        self.distribution = distribution
        self.key_sizes = [score.projected_size(head_size) for score in scores]
        self.query_layer = nn.Linear(query_size, value_size, bias=False)
        self.key_layer = nn.Linear(value_size, value_size, bias=False)
        self.value_layers = nn.ModuleList(
            nn.Linear(value_size, head_size, bias=False) for _ in scores
        )
        self.context_layer = nn.Linear(value_size, value_size, bias=False)

    def project(self, values: Tensor) -> Tensor:
        """Compute the concatenated keys of all heads: (B, S, C) -> (B, S, K)."""
        keys = self.key_layer(values).chunk(len(self.scores), dim=-1)
        heads = zip(cast(Iterable[Score], self.scores), keys, strict=True)
        return torch.cat([score.project(key) for score, key in heads], dim=-1)

    def initial_history(self, values: Tensor) -> AttentionHistory | None:
        """Return None: no head needs a history."""
        return None

    def head_weights(self, query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """Compute the weights of every head: (N, B, S), or (N, B, Q, S) for Q queries."""
        queries = self.query_layer(query).chunk(len(self.scores), dim=-1)
        heads = zip(self.scores, queries, keys.split(self.key_sizes, dim=-1), strict=True)
        mask = expand_mask(query, mask)
        return torch.stack(
            [self.distribution(score(q, key), mask, q, None) for score, q, key in heads]
        )

    def forward(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        history: AttentionHistory | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend with all heads; arguments and results are those of ``Attention.forward``."""
        weights = self.head_weights(query, keys, mask)
        contexts = [
            layer(weighted_sum(head, values))
            for layer, head in zip(self.value_layers, weights.unbind(), strict=True)
        ]
        return self.context_layer(torch.cat(contexts, dim=-1)), weights.mean(dim=0)


def expand_mask(query: Tensor, mask: Tensor, one_query_class: type | None = None) -> Tensor:
    """Give the mask (B, S) a dimension for queries (B, Q, H), so that it broadcasts over them.

    Args:
        query: (B, H), or (B, Q, H).
        mask: (B, S), or (B, Q, S).
        one_query_class: the class that accepts only one query per sentence, if any does.

    Raises:
        TypeError: ``mask`` is not boolean.
        ValueError: several queries are given where only one is accepted.
    """
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask must be boolean with True at real tokens, not {mask.dtype}; make one from "
            f"lengths with torch.arange(S) < lengths.unsqueeze(-1)."
        )
    # Checked here because with as many queries as source positions the shapes would agree.
    if query.dim() > 2 and one_query_class is not None:
        raise ValueError(
            f"{one_query_class.__name__} takes one query (B, H) per sentence, not queries of shape "
            f"{tuple(query.shape)}: pass them one at a time, or use Soft or Hard without coverage."
        )
    return mask.unsqueeze(1) if mask.dim() < query.dim() else mask


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Compute ``sum_j a_ij h_j``: (B, S) or (B, Q, S), (B, S, C) -> (B, C) or (B, Q, C)."""
    if weights.dim() == 2:
        return torch.bmm(weights.unsqueeze(1), values).squeeze(1)
    return torch.bmm(weights, values)
