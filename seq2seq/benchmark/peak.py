"""Peak speed of matrix products on this machine, and the operations of an update.

A product of (M, K) and (K, N) is 2 M K N floating-point operations. Products of a matrix and a
vector are left out: memory bounds them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, baddbmm_flop, mm_flop

from seq2seq.benchmark.timing import Clock

# (M, K, N): squares, then products of the reference task: 64 decoder states in the loop, the token
# part of the gates, a chunk of the output layer.
SHAPES = (
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (1536, 512, 64),
    (1536, 256, 1024),
    (448, 256, 4276),
)
MIN_OPERATIONS = {"cpu": 4e9, "cuda": 4e12}  # per turn, so that it is long enough to time


def _addmm_(out: Any, left: Any, right: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    return mm_flop(left, right)


def _baddbmm_(out: Any, left: Any, right: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    return baddbmm_flop(out, left, right)


def _packed(rows: Any, _weight: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    return mm_flop(rows, (rows[1], out_shape[1]))


# Products that torch does not count: those added in place, and those of packed weights.
MISSING_FORMULAS: dict[Any, Callable[..., int]] = {
    torch.ops.aten.addmm_: _addmm_,
    torch.ops.aten.baddbmm_: _baddbmm_,
}
if torch.backends.mkldnn.is_available():
    MISSING_FORMULAS[torch.ops.mkldnn._linear_pointwise] = _packed


def count_operations(work: Callable[[], Any]) -> int:
    """Count the floating-point operations of all matrix products in ``work()``."""
    with FlopCounterMode(display=False, custom_mapping=MISSING_FORMULAS) as counter:
        work()
    return counter.get_total_flops()


def product_tasks(dtype: torch.dtype, device: torch.device) -> dict[str, Callable[[], float]]:
    """Return, for each of ``SHAPES``, a function that measures its operations per second."""
    return {
        "x".join(map(str, shape)): partial(_rate, *_operands(shape, dtype, device))
        for shape in SHAPES
    }


def _operands(
    shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    m, k, n = shape
    left, right = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
    return left.to(dtype), right.to(dtype), torch.empty(m, n, dtype=dtype, device=device)


def _rate(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> float:
    operations = mm_flop(left.shape, right.shape)
    repeats = max(1, round(MIN_OPERATIONS[out.device.type] / operations))
    clock = Clock(out.device)
    for _ in range(repeats):
        torch.mm(left, right, out=out)
    clock.lap("products")
    return repeats * operations / clock.total
