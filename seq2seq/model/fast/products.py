"""Matrix products in the precision that ``torch.autocast`` asks for, sums in their own."""

import torch
from torch import Tensor


def lowered(weight: Tensor) -> Tensor:
    """In the precision that matrix products have: its own, or that of ``torch.autocast``."""
    kind = weight.device.type
    return weight.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else weight


def times(left: Tensor, right: Tensor, like: Tensor) -> Tensor:
    """``left right``, both in the precision of ``like``."""
    return left.to(like.dtype) @ right.to(like.dtype)


def add_product(out: Tensor, left: Tensor, right: Tensor) -> None:
    """``out += left right``: matrices, or batches of them; in the lower of two precisions."""
    low = min(left.dtype, right.dtype, key=lambda dtype: dtype.itemsize)
    if low != out.dtype:
        out += left.to(low) @ right.to(low)
    elif out.dim() == 2:
        out.addmm_(left, right)
    else:
        out.baddbmm_(left, right)
