"""The machine: its device, threads and memory, and a record of its environment."""

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
    """Return the device that ``device=`` names; ``auto`` prefers a GPU.

    Raises:
        ValueError: this machine does not have the device, or cannot compute on it.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()  # a device may exist and still fail to compute
    except (RuntimeError, AssertionError) as error:
        # The messages of torch have several lines.
        reason = str(error).strip().split("\n")[0]
        raise ValueError(
            f"device={name} cannot be used here ({reason}); try device=auto or device=cpu."
        ) from error
    return device


def set_threads(threads: int | None) -> int:
    """Set and return the number of CPU threads; by default one per core available to this process.

    If the environment variable ``OMP_NUM_THREADS`` is set, it is the default.
    """
    if threads is None and "OMP_NUM_THREADS" not in os.environ:
        # Not os.cpu_count(): in a container or under taskset it counts cores that this process
        # may not use, and every excess thread slows down small RNN batches.
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    if threads is not None:
        torch.set_num_threads(threads)
    return torch.get_num_threads()


def map_single_threaded(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Apply ``work`` to every item, in parallel, with one single-threaded worker per torch thread.

    Many small operations run faster as two independent workers than as one that splits each
    operation over two threads. If there are fewer items than threads, items are processed one after
    another, each by all threads.

    Returns:
        The results, in the order of the items.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(items) < threads:
        return [work(item) for item in items]
    try:
        with ThreadPoolExecutor(threads, "alone", torch.set_num_threads, (1,)) as pool:
            return list(pool.map(work, items))
    finally:
        torch.set_num_threads(threads)  # the default of threads that start later
        release_memory()  # memory of the finished threads


def release_memory() -> None:
    """Return freed memory to the operating system, on Linux.

    The C library keeps freed memory for each thread separately: other threads cannot use it.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "malloc_trim"):
            library.malloc_trim(0)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out; torch has no exception type for main memory."""
    texts = "out of memory", "can't allocate memory", "Storage size calculation overflowed"
    return isinstance(error, MemoryError) or any(text in str(error) for text in texts)


def environment(device: torch.device) -> dict[str, Any]:
    """Return everything besides the code that affects results: versions, processor, threads."""
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
    """Return the name of the processor, if the system provides it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor()


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 thread``, ``2 threads``."""
    return f"{number} {noun}" + "s" * (number != 1)


def interpreter() -> str:
    """Return the command that runs this Python: its path, or its name in an active environment."""
    path = Path(sys.executable)
    if sys.prefix == sys.base_prefix or os.environ.get("VIRTUAL_ENV") == sys.prefix:
        return path.name
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
