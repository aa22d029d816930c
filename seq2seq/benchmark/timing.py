"""Clocks that know of GPUs, turns that share the machine's moods, and what many turns say."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

K = TypeVar("K")
T = TypeVar("T")


class Clock:
    """Seconds that the parts of some work take, in the order of ``lap``."""

    def __init__(self, device: torch.device):
        self.device = device
        self.seconds: dict[str, float] = {}
        self._last = self._now()

    def _now(self) -> float:
        if self.device.type == "cuda":  # which works on while Python has gone ahead
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def lap(self, part: str) -> None:
        """Count the time since the last lap, or the beginning, to ``part``."""
        now = self._now()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now

    @property
    def total(self) -> float:
        """Seconds of all laps."""
        return sum(self.seconds.values())


def interleave(tasks: Mapping[K, Callable[[], T]], repeats: int) -> dict[K, list[T]]:
    """What each task gives when all take turns, A B C A B C ..., after one turn not counted.

    A machine that is slow for a minute is so for all of them, which leaves their ratios alone.
    """
    for task in tasks.values():
        task()
    found: dict[K, list[T]] = {name: [] for name in tasks}
    for _ in range(repeats):
        for name, task in tasks.items():
            found[name].append(task())
    return found


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median and quartiles, and what they are of; for JSON."""
    lower, median, upper = np.percentile(values, [25, 50, 75])
    return {
        "median": float(median),
        "quartiles": [float(lower), float(upper)],
        "values": [float(value) for value in values],
    }


def ratios(values: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """The ``spread`` of the ratio of two tasks, taken within each turn."""
    return spread([a / b for a, b in zip(values, others, strict=True)])
