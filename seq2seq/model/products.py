"""Matrix products in the precision that ``torch.autocast`` asks for, sums in their own."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F


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
    elif len(out) == 1:  # as a matrix it is faster
        out[0].addmm_(left[0], right[0])
    else:
        out.baddbmm_(left, right)


def turned(weight: Tensor) -> Tensor:
    """The same matrices, in memory that has their columns one behind another: for ``weight.mT`` and
    a few states MKL then takes 0.8 of the time."""
    return weight.mT.contiguous().mT


def packed_linear(weight: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """``F.linear`` of a weight that stays as it is, for rows (N, K), without gradients.

    On a processor oneDNN keeps the weight in blocks of its own. With one thread, and more weights
    than its cache holds, 32 rows took 0.7 of the time that MKL took and 200 rows 0.9; with two,
    900 rows of logits took 0.7. And a row comes out the same to the last bit, whatever the others.
    """
    if not has_blocks(weight):
        return partial(F.linear, weight=weight, bias=bias)
    onednn = torch.ops.mkldnn
    blocks = onednn._reorder_linear_weight(weight)

    def multiply(rows: Tensor) -> Tensor:
        # For each number of rows oneDNN makes code, 250 kB that stay: not for all that there are.
        more = -len(rows) % (4 if len(rows) <= 64 else 16)
        if more:
            rows = torch.cat([rows, rows[:1].expand(more, -1)])
        products = onednn._linear_pointwise(rows, blocks, bias, "none", [], "")
        return products[:-more] if more else products

    return multiply


def has_blocks(weight: Tensor) -> bool:
    """Whether oneDNN has blocks for it that are worth it."""
    kind = weight.device.type
    return (
        kind == "cpu"
        and weight.dtype == torch.float32
        and not torch.is_autocast_enabled(kind)
        and torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    )
