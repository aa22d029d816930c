"""Peak memory of a function, measured in a process of its own."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from seq2seq.device import set_threads


def peak_memory(work: Callable[..., Any], *arguments: Any, threads: int | None) -> dict[str, int]:
    """Call a module-level function in a new process, and return its peak memory.

    In this process earlier work may have had a higher peak, and memory that it freed would be used
    again without being counted.

    Returns:
        Bytes: ``before`` and ``peak`` of the process (Linux only: from ``/proc``), and, where a GPU
        was used, the peak of its tensors as ``gpu_peak``.
    """
    # Spawned, not forked: a fork starts with the pages of this process, and without its threads.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_measured, work, arguments, threads).result()


def _measured(
    work: Callable[..., Any], arguments: tuple[Any, ...], threads: int | None
) -> dict[str, int]:
    set_threads(threads)
    before = _status_bytes("VmRSS")
    work(*arguments)
    # Not getrusage: its peak includes that of the parent process.
    memory = {"before": before, "peak": _status_bytes("VmHWM")}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        memory["gpu_peak"] = torch.cuda.max_memory_allocated()
    return memory


def _status_bytes(name: str) -> int:
    """Return an entry of ``/proc/self/status`` in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").split("\n")
    (kibibytes,) = (line.split()[1] for line in lines if line.startswith(f"{name}:"))
    return 1024 * int(kibibytes)
