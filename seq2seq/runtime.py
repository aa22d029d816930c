"""The machine below a run: device, threads, random numbers, and a record of all three."""

import ctypes
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

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


def counted(number: int, noun: str) -> str:
    """``1 thread``, ``2 threads``."""
    return f"{number} {noun}" + "s" * (number != 1)


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


def interpreter() -> str:
    """What to type for this Python: its path, but for an environment that is active."""
    path = Path(sys.executable)
    if sys.prefix == sys.base_prefix or os.environ.get("VIRTUAL_ENV") == sys.prefix:
        return path.name
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def is_out_of_memory(error: Exception) -> bool:
    """Whether that is what went wrong; torch has no type of its own for main memory."""
    texts = "out of memory", "can't allocate memory", "Storage size calculation overflowed"
    return isinstance(error, MemoryError) or any(text in str(error) for text in texts)


class Precision:
    """In what precision matrix products of the training are computed.

    Parameters, their gradients, states, softmax and loss are in float32 always.
    """

    def __init__(self, name: str, device: torch.device):
        """``fp32``, ``bf16`` or ``fp16``; whether the device has it, ``select_precision`` knows."""
        self.device = device
        self.dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
        # Small gradients would be 0 in fp16, whose smallest number is 6e-8.
        self.scaler = torch.amp.GradScaler(device.type, enabled=name == "fp16")

    def autocast(self) -> torch.autocast:
        """Within it, products are computed so."""
        lower = self.dtype != torch.float32
        return torch.autocast(self.device.type, self.dtype if lower else None, enabled=lower)

    @property
    def scaling(self) -> tuple[float, int]:
        """By how much gradients are scaled, and for how many updates that went well."""
        state = self.scaler.state_dict()
        return (state["scale"], state["_growth_tracker"]) if state else (1.0, 0)

    @scaling.setter
    def scaling(self, scaling: tuple[float, int]) -> None:
        if self.scaler.is_enabled() and scaling != (1.0, 0):  # not of a run without any
            known = dict(zip(("scale", "_growth_tracker"), scaling, strict=True))
            self.scaler.load_state_dict(self.scaler.state_dict() | known)


def select_precision(name: str, device: torch.device) -> Precision:
    """The precision that ``precision=`` asks for, tried out.

    Raises:
        ValueError: this device cannot compute in it, or only by detours that take longer.
    """
    precision = Precision(name, device)
    if name == "fp32":
        return precision
    refusal = f"precision={name} cannot be used on device={device}"
    if name == "fp16" and device.type == "cpu":
        raise ValueError(f"{refusal}: it needs a GPU; use precision=fp32 or, where it is, bf16.")
    try:
        layer = torch.nn.GRU(8, 8).to(device)
        with precision.autocast():
            layer(torch.ones(2, 2, 8, device=device))[0].sum().backward()
    except RuntimeError as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"{refusal} ({reason}); use precision=fp32.") from error
    # A processor without such instructions computes the same, slower; nobody asks for that.
    ratio = _product_seconds(precision.dtype, device) / _product_seconds(torch.float32, device)
    if device.type == "cpu" and ratio > 1.5:
        raise ValueError(
            f"{refusal}: {_processor()} has no instructions for it, matrix products take "
            f"{ratio:.0f} times as long as in float32; use precision=fp32."
        )
    return precision


def _product_seconds(dtype: torch.dtype, device: torch.device) -> float:
    """Of one matrix product; the shortest time, which others on the machine disturb least."""
    left, right = (torch.ones(256, 256, dtype=dtype, device=device) for _ in range(2))
    seconds = []
    for _ in range(8):
        started = time.perf_counter()
        (left @ right)[0, 0].item()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def seed_everything(seed: int) -> None:
    """Start every random number generator from ``seed``."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_state() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Where every generator stands: tensors, and what is plain numbers."""
    tensors = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        for index, state in enumerate(torch.cuda.get_rng_state_all()):
            tensors[f"cuda{index}"] = state
    version, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state()
    tensors["numpy"] = torch.from_numpy(np.asarray(keys).astype(np.int64))
    plain = {
        "python": [version, list(words), gauss],
        "numpy": [int(position), int(has_gauss), float(cached)],
    }
    return tensors, plain


def restore_random_state(tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
    """Put every generator where ``random_state`` found it."""
    torch.set_rng_state(tensors["torch"])
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            if f"cuda{index}" in tensors:
                torch.cuda.set_rng_state(tensors[f"cuda{index}"], index)
    version, words, gauss = plain["python"]
    random.setstate((version, tuple(words), gauss))
    keys = tensors["numpy"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", keys, *plain["numpy"]))


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
        "processor": _processor(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "threads": torch.get_num_threads(),
        **{name: metadata.version(name) for name in packages},
    }


def _processor() -> str:
    """The name that the processor gives itself, where the system tells."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor()
