"""From scores to attention weights that are exactly zero wherever there is no token.

Three ways, one contract: softmax gives every token a share, sparsemax and 1.5-entmax give the
unlikely ones none.
"""

from collections.abc import Callable

import torch
from torch import Tensor

LENGTH_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last dimension, restricted to the positions that hold a token.

        w_j = exp(e_j) / sum_{k: mask_k} exp(e_k)   where mask_j, else 0

    A pure function: ``scores`` is left as it was. Half precision is computed in float32.

    Args:
        scores: energies, (..., S), of any finite size; at padding anything, even NaN.
        mask: either booleans, True at tokens, False at padding, broadcastable to ``scores``;
            or integers, how many positions from the first on hold a token (all, if more than S):
            one number for each row, (...), or for each sentence, (B,) for scores (B, ..., S).

    Returns:
        Weights of the shape and type of ``scores``: each row sums to 1 and is exactly 0 at
        padding; a row without any token is all 0, and so is its gradient.

    Raises:
        TypeError: ``mask`` holds neither booleans nor integers.
        ValueError: ``mask`` holds integers but is not of a shape of lengths, as a mask of 0 and 1
            would be, whose polarity is a guess.
        RuntimeError: ``mask`` holds booleans but cannot be broadcast to ``scores``.
    """
    return _over_tokens(_softmax, scores, mask)


def masked_sparsemax(scores: Tensor, mask: Tensor) -> Tensor:
    """Sparsemax (Martins & Astudillo 2016, arXiv:1602.02068): the point of the simplex nearest to
    the scores.

        w   = argmin_p ||p - e||^2          p >= 0, sum_j p_j = 1, p_j = 0 unless mask_j
        w_j = max(e_j - tau, 0)             tau such that they sum to 1

    Arguments, result and errors are those of ``masked_softmax``.
    """
    return _over_tokens(_sparsemax, scores, mask)


def masked_entmax15(scores: Tensor, mask: Tensor) -> Tensor:
    """1.5-entmax (Peters et al. 2019, arXiv:1905.05702), half-way from softmax to sparsemax.

        w   = argmax_p p . e + 4/3 sum_j (p_j - p_j^1.5)    p as for ``masked_sparsemax``
        w_j = max(e_j / 2 - tau, 0)^2                       tau such that they sum to 1

    Arguments, result and errors are those of ``masked_softmax``.
    """
    return _over_tokens(_entmax15, scores, mask)


def _over_tokens(normalise: Callable[[Tensor], Tensor], scores: Tensor, mask: Tensor) -> Tensor:
    """``normalise`` of the tokens' scores, 0 elsewhere: what the public functions promise."""
    padding = _padding(scores, mask)
    wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    # Not the lowest finite number, which a score may equal; but a row of nothing but minus
    # infinity would become NaN, in the gradient even if the NaN were removed afterwards. The last
    # fill turns the uniform distribution of such a row into exact zeros.
    filled = wide.masked_fill(padding, -torch.inf)
    filled = filled.masked_fill(padding.all(dim=-1, keepdim=True), 0.0)
    return normalise(filled).masked_fill(padding, 0.0).to(scores.dtype)


def _padding(scores: Tensor, mask: Tensor) -> Tensor:
    """True where ``mask``, of either kind, has no token: (..., S), the shape of ``scores``."""
    if mask.dtype == torch.bool:
        return ~mask.expand_as(scores)
    if mask.dtype not in LENGTH_TYPES:
        raise TypeError(
            f"mask must be boolean with True at real tokens, or integer lengths, not {mask.dtype}."
        )
    rows = scores.shape[:-1]
    if mask.shape != rows and mask.shape != rows[:1]:
        raise ValueError(
            f"mask holds integers, which are lengths: for scores of shape {tuple(scores.shape)} "
            f"one for each sentence, {tuple(rows[:1])}, or one for each row, {tuple(rows)}; its "
            f"shape is {tuple(mask.shape)}. If they mean True and False, give mask.bool()."
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
    """``max(e_j - tau, 0)``, differentiable as often as one likes.

    Sorting finds the support: the k highest scores, for the last k whose ``threshold`` is not
    above the k-th of them (Martins & Astudillo, algorithm 1; Peters et al., algorithm 2).
    """
    with torch.no_grad():
        ordered = scores.sort(dim=-1, descending=True).values
        highest = ordered[..., :1]
        # tau lies at most 1 below the highest score: whatever is lower may lie 2 below it, where it
        # has finite sums.
        ordered = (ordered - highest).clamp(min=-2)
        counts = torch.arange(1, scores.shape[-1] + 1, device=scores.device)
        found = threshold(counts, ordered.cumsum(dim=-1), ordered.square().cumsum(dim=-1))
        size = (found <= ordered).sum(dim=-1, keepdim=True)
        tau = found.masked_fill(counts != size, 0.0).sum(dim=-1, keepdim=True)
    # Given the support tau is a plain formula, which has an exact gradient. Starting from what the
    # search found, it also corrects the rounding of the search's long sums.
    above = scores - highest - tau
    inside = above.relu()
    totals = (part.sum(dim=-1, keepdim=True) for part in (inside > 0, inside, inside.square()))
    return (above - threshold(*totals)).relu()


def _linear_threshold(count: Tensor, total: Tensor, squares: Tensor) -> Tensor:
    """tau of ``sum_j (z_j - tau) = 1``, from the number of z_j, their sum and that of squares."""
    return (total - 1) / count


def _square_threshold(count: Tensor, total: Tensor, squares: Tensor) -> Tensor:
    """The lower tau of ``sum_j (z_j - tau)^2 = 1``, or the mean of z_j if there is none."""
    mean = total / count
    return mean - ((1 - (squares - mean * total)) / count).clamp(min=0).sqrt()


NORMALISERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "softmax": masked_softmax,
    "sparsemax": masked_sparsemax,
    "entmax15": masked_entmax15,
}
