"""Masked softmax: attention weights that are exactly zero wherever there is no token."""

import torch
from torch import Tensor


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last dimension, restricted to the positions that hold a token.

        w_j = exp(e_j) / sum_{k: mask_k} exp(e_k)   where mask_j, else 0

    A pure function: ``scores`` is left as it was. Half precision is computed in float32.

    Args:
        scores: energies, (..., S).
        mask: True at tokens, False at padding, broadcastable to ``scores``.

    Returns:
        Weights of the shape and type of ``scores``: each row sums to 1 and is exactly 0 at
        padding; a row without any token is all 0, and so is its gradient.

    Raises:
        TypeError: ``mask`` is not boolean, so that its polarity would be a guess.
    """
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be boolean with True at real tokens, not {mask.dtype}.")
    wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    # The lowest finite number rather than minus infinity: a row without a token would become
    # NaN, in the gradient even if the NaN were removed afterwards. The second fill then turns
    # the uniform distribution of such a row, and every rounding at padding, into exact zeros.
    filled = wide.masked_fill(~mask, torch.finfo(wide.dtype).min)
    return filled.softmax(dim=-1).masked_fill(~mask, 0.0).to(scores.dtype)
