"""Masked normalization: turns energies into attention weights that are exactly 0 at padding.

Three functions with one contract: softmax gives every token a positive weight, sparsemax and
1.5-entmax give unlikely tokens exactly 0.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from seq2seq.config.registry import Registry

LENGTH_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Compute a softmax over the last dimension, restricted to positions that hold a token.

        w_j = exp(e_j) / sum_{k: mask_k} exp(e_k)   where mask_j, else 0

    The function is pure: ``scores`` is not modified. Half precision is computed in float32.

    Args:
        scores: energies, (..., S), of any finite size; values at padding are ignored, even NaN.
        mask: either booleans, True at tokens and False at padding, broadcastable to ``scores``;
            or integer lengths, the number of leading positions that hold a token (more than S
            means all): one per row, (...), or one per sentence, (B,) for scores (B, ..., S).

    Returns:
        Weights with the shape and type of ``scores``: each row sums to 1 and is exactly 0 at
        padding; a row without tokens is all 0, and so is its gradient.

    Raises:
        TypeError: ``mask`` is neither boolean nor integer.
        ValueError: ``mask`` is integer but does not have the shape of lengths; the polarity of a
            mask of zeros and ones would be a guess.
        RuntimeError: ``mask`` is boolean but cannot be broadcast to ``scores``.
    """
    return _over_tokens(_softmax, scores, mask)


def masked_sparsemax(scores: Tensor, mask: Tensor) -> Tensor:
    """Compute sparsemax (Martins and Astudillo 2016, arXiv:1602.02068), the point of the simplex
    nearest to the scores.

        w   = argmin_p ||p - e||^2          p >= 0, sum_j p_j = 1, p_j = 0 unless mask_j
        w_j = max(e_j - tau, 0)             tau such that they sum to 1

    Arguments, result, and errors are those of ``masked_softmax``.
    """
    return _over_tokens(_sparsemax, scores, mask)


def masked_entmax15(scores: Tensor, mask: Tensor) -> Tensor:
    """Compute 1.5-entmax (Peters et al. 2019, arXiv:1905.05702), halfway between softmax and
    sparsemax.

        w   = argmax_p p . e + 4/3 sum_j (p_j - p_j^1.5)    p as for ``masked_sparsemax``
        w_j = max(e_j / 2 - tau, 0)^2                       tau such that they sum to 1

    Arguments, result, and errors are those of ``masked_softmax``.
    """
    return _over_tokens(_entmax15, scores, mask)


def _over_tokens(normalize: Callable[[Tensor], Tensor], scores: Tensor, mask: Tensor) -> Tensor:
    """Apply ``normalize`` to the scores of tokens, and return 0 at padding."""
    padding = _padding(scores, mask)
    wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    # Padding is filled with minus infinity because a score may equal the lowest finite number.
    # A row of only minus infinity would become NaN, and its gradient would stay NaN even if the
    # result were overwritten; such a row is filled with 0 instead, and the final fill turns its
    # uniform distribution into exact zeros.
    filled = wide.masked_fill(padding, -torch.inf)
    filled = filled.masked_fill(padding.all(dim=-1, keepdim=True), 0.0)
    return normalize(filled).masked_fill(padding, 0.0).to(scores.dtype)


def _padding(scores: Tensor, mask: Tensor) -> Tensor:
    """Return True at padding, in the shape of ``scores`` (..., S), for either kind of mask."""
    if mask.dtype == torch.bool:
        return ~mask.expand_as(scores)
    if mask.dtype not in LENGTH_TYPES:
        raise TypeError(
            f"mask must be boolean with True at real tokens, or integer lengths, not {mask.dtype}."
        )
    rows = scores.shape[:-1]
    if mask.shape != rows and mask.shape != rows[:1]:
        raise ValueError(
            f"an integer mask holds lengths: for scores of shape {tuple(scores.shape)}, one per "
            f"sentence, {tuple(rows[:1])}, or one per row, {tuple(rows)}; its shape is "
            f"{tuple(mask.shape)}. If its numbers mean True and False, pass mask.bool()."
        )
    lengths = mask.reshape(mask.shape + (1,) * (scores.dim() - mask.dim()))
    return (torch.arange(scores.shape[-1], device=mask.device) >= lengths).expand_as(scores)


def _softmax(scores: Tensor) -> Tensor:
    return scores.softmax(dim=-1)


def _sparsemax(scores: Tensor) -> Tensor:
    return _excess(scores, _linear_threshold)


def _entmax15(scores: Tensor) -> Tensor:
    return _excess(scores / 2, _square_threshold).square()


def _excess(scores: Tensor, threshold: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """Return ``max(e_j - tau, 0)``, differentiable any number of times.

    Sorting finds the support: the k highest scores, for the largest k whose ``threshold`` does
    not exceed the k-th score (Martins and Astudillo, algorithm 1; Peters et al., algorithm 2).
    """
    with torch.no_grad():
        ordered = scores.sort(dim=-1, descending=True).values
        highest = ordered[..., :1]
        # tau lies at most 1 below the highest score, so clamping lower scores to 2 below it
        # changes nothing and keeps the sums finite.
        ordered = (ordered - highest).clamp(min=-2)
        counts = torch.arange(1, scores.shape[-1] + 1, device=scores.device)
        found = threshold(counts, ordered.cumsum(dim=-1), ordered.square().cumsum(dim=-1))
        size = (found <= ordered).sum(dim=-1, keepdim=True)
        tau = found.masked_fill(counts != size, 0.0).sum(dim=-1, keepdim=True)
    # Given the support, tau is a closed formula with an exact gradient. Starting from the tau that
    # the search found, the formula also corrects the rounding of the search's long sums.
    above = scores - highest - tau
    inside = above.relu()
    terms = (inside > 0, inside, inside.square())
    totals = (term.sum(dim=-1, keepdim=True) for term in terms)
    return (above - threshold(*totals)).relu()


def _linear_threshold(count: Tensor, total: Tensor, squares: Tensor) -> Tensor:
    """Solve ``sum_j (z_j - tau) = 1`` for tau, given the count, sum, and sum of squares of z_j."""
    return (total - 1) / count


def _square_threshold(count: Tensor, total: Tensor, squares: Tensor) -> Tensor:
    """Solve ``sum_j (z_j - tau)^2 = 1`` for the smaller tau; the mean of z_j if none exists."""
    mean = total / count
    return mean - ((1 - (squares - mean * total)) / count).clamp(min=0).sqrt()


Normalizer = Callable[[Tensor, Tensor], Tensor]  # (energies, mask) -> weights

NORMALIZERS: Registry[Normalizer] = Registry(
    "model.attention.normalization",
    {
        "softmax": masked_softmax,
        "sparsemax": masked_sparsemax,
        "entmax15": masked_entmax15,
    },
)
