"""The machine below a run: device, threads, random numbers, and a record of all three."""

import os
import platform
import random
import sys
from importlib import metadata
from typing import Any

import numpy as np
import torch
from torch import Tensor


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
