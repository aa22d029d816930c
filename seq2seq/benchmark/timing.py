"""Clocks, interleaved measurements, and their medians and quartiles."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

K = TypeVar("K")
T = TypeVar("T")


class Clock:
    """Measures the seconds of the phases of some work; it waits for the GPU."""

    def __init__(self, device: torch.device):
        self.device = device
        self.seconds: dict[str, float] = {}
        self._last = self._now()

    def _now(self) -> float:
        if self.device.type == "cuda":  # Python only queues work, which may still be running
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def lap(self, phase: str) -> None:
        """Add the time since the last lap, or since the start, to ``phase``."""
        now = self._now()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now

    @property
    def total(self) -> float:
        """Seconds of all phases."""
        return sum(self.seconds.values())


def interleave(tasks: Mapping[K, Callable[[], T]], repeats: int) -> dict[K, list[T]]:
    """Run tasks in turns, A B C A B C ..., and return the results of each.

    The first turn does not count. When the machine is slow for a minute, it is slow for all tasks,
    so their ratios stay.
    """
    for task in tasks.values():
        task()
    found: dict[K, list[T]] = {name: [] for name in tasks}
    for _ in range(repeats):
        for name, task in tasks.items():
            found[name].append(task())
    return found


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return median, quartiles and the values themselves, for JSON."""
    lower, median, upper = np.percentile(values, [25, 50, 75])
    return {
        "median": float(median),
        "quartiles": [float(lower), float(upper)],
        "values": [float(value) for value in values],
    }


def ratios(values: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """Return the ``spread`` of the ratios of two tasks, each within one turn."""
    return spread([a / b for a, b in zip(values, others, strict=True)])
