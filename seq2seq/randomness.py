"""Seed, save and restore all random number generators."""

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor


def seed_everything(seed: int) -> None:
    """Seed every random number generator."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_state() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the states of all generators: tensors, and plain numbers for JSON."""
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
    """Restore the states that ``random_state`` returned."""
    torch.set_rng_state(tensors["torch"])
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            if f"cuda{index}" in tensors:
                torch.cuda.set_rng_state(tensors[f"cuda{index}"], index)
    version, words, gauss = plain["python"]
    random.setstate((version, tuple(words), gauss))
    keys = tensors["numpy"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", keys, *plain["numpy"]))
