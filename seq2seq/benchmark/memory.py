"""The most memory that some work takes, measured in a process of its own."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from seq2seq.device import set_threads


def peak_memory(work: Callable[..., Any], *arguments: Any, threads: int | None) -> dict[str, int]:
    """Call a function of a module in a new process.

    In this one the peak of earlier work would stand, and what that work gave back would be used
    again without being counted.

    Returns:
        Bytes: ``before`` and ``peak`` of the process (Linux only: from ``/proc``), and, where a GPU
        was used, the peak of its tensors as ``gpu_peak``.
    """
    # Spawned, not forked: a fork begins with this process's pages, and without its threads.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_measured, work, arguments, threads).result()


def _measured(
    work: Callable[..., Any], arguments: tuple[Any, ...], threads: int | None
) -> dict[str, int]:
    set_threads(threads)
    before = _kept("VmRSS")
    work(*arguments)
    # Not getrusage: its peak goes on from the process that started this one.
    memory = {"before": before, "peak": _kept("VmHWM")}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        memory["gpu_peak"] = torch.cuda.max_memory_allocated()
    return memory


def _kept(name: str) -> int:
    """What the system keeps of this process's memory, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").split("\n")
    (kibibytes,) = (line.split()[1] for line in lines if line.startswith(f"{name}:"))
    return 1024 * int(kibibytes)
