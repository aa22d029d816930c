"""Matrix products in the precision of ``torch.autocast``, with sums in their own precision."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F


def to_autocast(weight: Tensor) -> Tensor:
    """Cast to the precision of ``torch.autocast`` where it is enabled."""
    kind = weight.device.type
    return weight.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else weight


def matmul(left: Tensor, right: Tensor, like: Tensor) -> Tensor:
    """Multiply two matrices in the precision of ``like``."""
    return left.to(like.dtype) @ right.to(like.dtype)


def add_product(out: Tensor, left: Tensor, right: Tensor) -> None:
    """Add ``left @ right`` to ``out``, in the lower precision of the two factors.

    Matrices, or batches of matrices.
    """
    low = min(left.dtype, right.dtype, key=lambda dtype: dtype.itemsize)
    if low != out.dtype:
        out += left.to(low) @ right.to(low)
    elif out.dim() == 2:
        out.addmm_(left, right)
    elif len(out) == 1:  # faster as a matrix
        out[0].addmm_(left[0], right[0])
    else:
        out.baddbmm_(left, right)


def column_major(weight: Tensor) -> Tensor:
    """Copy matrices into column-major order.

    For the product of ``weight.mT`` and a few states, MKL then takes 0.8 of the time.
    """
    return weight.mT.contiguous().mT


def packed_linear(weight: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """Return ``F.linear`` with a constant weight, for rows (N, K), without gradients.

    On a CPU, oneDNN stores the weight in blocks of its own. With one thread and more weights than
    its cache holds, 32 rows took 0.7 of MKL's time and 200 rows 0.9; with two threads, 900 rows of
    logits took 0.7. The result of a row does not depend on the other rows, to the last bit.
    """
    if not is_packable(weight):
        return partial(F.linear, weight=weight, bias=bias)
    onednn = torch.ops.mkldnn
    blocks = onednn._reorder_linear_weight(weight)

    def multiply(rows: Tensor) -> Tensor:
        # oneDNN compiles and keeps 250 kB of code for each number of rows: pad to a few numbers.
        more = -len(rows) % (4 if len(rows) <= 64 else 16)
        if more:
            rows = torch.cat([rows, rows[:1].expand(more, -1)])
        products = onednn._linear_pointwise(rows, blocks, bias, "none", [], "")
        return products[:-more] if more else products

    return multiply


def is_packable(weight: Tensor) -> bool:
    """Whether oneDNN can pack this weight and is faster with it."""
    kind = weight.device.type
    return (
        kind == "cpu"
        and weight.dtype == torch.float32
        and not torch.is_autocast_enabled(kind)
        and torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    )
