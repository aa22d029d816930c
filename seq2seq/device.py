"""The machine: device, threads, memory, and a record of them."""

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def select_device(name: str) -> torch.device:
    """The device that ``device=`` asks for; ``auto`` prefers a GPU.

    Raises:
        ValueError: there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()  # not only there: it can compute
    except (RuntimeError, AssertionError) as error:
        # torch's own texts run over several lines.
        reason = str(error).strip().split("\n")[0]
        raise ValueError(
            f"device={name} cannot be used here ({reason}); try device=auto or device=cpu."
        ) from error
    return device


def set_threads(threads: int | None) -> int:
    """Use that many CPU threads; by default one for each core this process may run on.

    ``OMP_NUM_THREADS``, where it is set, is the user's word on the default.
    """
    if threads is None and "OMP_NUM_THREADS" not in os.environ:
        # Not os.cpu_count(): in a container or under taskset it counts cores we may not use,
        # and small RNN batches get slower with every thread too many.
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    if threads is not None:
        torch.set_num_threads(threads)
    return torch.get_num_threads()


def one_thread_each(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """``work`` of every item, in order, on as many threads as torch has, each alone with an item.

    Many small operations take longer on two threads together than on one beside another, which
    waits for nobody. Fewer items than threads are worked on by all threads, in turn.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(items) < threads:
        return [work(item) for item in items]
    try:
        with ThreadPoolExecutor(threads, "alone", torch.set_num_threads, (1,)) as pool:
            return list(pool.map(work, items))
    finally:
        torch.set_num_threads(threads)  # of threads to come; what one sets is their default
        hand_back_memory()  # of threads that are gone


def hand_back_memory() -> None:
    """Return memory that was freed to the system, on Linux.

    Its C library keeps it, for each thread apart: what one has freed, the others cannot use.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "malloc_trim"):
            library.malloc_trim(0)


def is_out_of_memory(error: Exception) -> bool:
    """Whether that is what went wrong; torch has no type of its own for main memory."""
    texts = "out of memory", "can't allocate memory", "Storage size calculation overflowed"
    return isinstance(error, MemoryError) or any(text in str(error) for text in texts)


def environment(device: torch.device) -> dict[str, Any]:
    """What a figure depends on beside the code: versions, processor, threads."""
    packages = (
        "torch",
        "torchtext",
        "sacrebleu",
        "hydra-core",
        "safetensors",
        "numpy",
        "sentencepiece",
        "sacremoses",
    )
    return {
        "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
        "processor": processor(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "threads": torch.get_num_threads(),
        **{name: metadata.version(name) for name in packages},
    }


def processor() -> str:
    """The name that the processor gives itself, where the system tells."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor()


def counted(number: int, noun: str) -> str:
    """``1 thread``, ``2 threads``."""
    return f"{number} {noun}" + "s" * (number != 1)


def interpreter() -> str:
    """What to type for this Python: its path, but for an environment that is active."""
    path = Path(sys.executable)
    if sys.prefix == sys.base_prefix or os.environ.get("VIRTUAL_ENV") == sys.prefix:
        return path.name
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
