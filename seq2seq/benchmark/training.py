"""Benchmark of training: several implementations of the same update."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from seq2seq.benchmark.memory import peak_memory
from seq2seq.benchmark.peak import count_operations, product_tasks
from seq2seq.benchmark.timing import Clock, interleave, ratios, spread
from seq2seq.benchmark.tutorial import TutorialUpdate
from seq2seq.benchmark.updates import LowUpdate, PlainUpdate, Update
from seq2seq.benchmark.workload import draw_batches
from seq2seq.config.scripts import BenchmarkConfig
from seq2seq.data.batching import Batch
from seq2seq.training.loss import count_tokens

WAYS: dict[str, type[Update]] = {
    "tutorial": TutorialUpdate,
    "plain": PlainUpdate,
    "fast": Update,
    "bf16": LowUpdate,
}


def turn(update: Update, batches: list[Batch]) -> Clock:
    """Run an update on each batch."""
    clock = Clock(batches[0].source.device)
    for batch in batches:
        update(batch, clock)
    return clock


def build_updates(
    config: BenchmarkConfig, device: torch.device
) -> tuple[dict[str, Update], dict[str, str]]:
    """Return the variants that the device supports, and the reasons against the others."""
    updates, refused = {}, {}
    for name, kind in WAYS.items():
        try:
            updates[name] = kind(config.model, device, config.seed)
        except ValueError as error:
            if kind.precision_name == "fp32":
                raise  # because of the settings, not of the device
            refused[name] = str(error)
    return updates, refused


def measure_training(config: BenchmarkConfig, device: torch.device) -> dict[str, Any]:
    """Measure the parts ``training``, ``peak`` and ``memory`` of all variants, in turns.

    The fraction of the peak counts useful work only: the operations of the fast path for the same
    batches, even for variants that need more.
    """
    updates, refused = build_updates(config, device)
    batches = draw_batches(config.updates, config.seed, device)
    turns: dict[str, Callable[[], Clock]] = {}
    if "training" in config.parts:
        turns = {name: partial(turn, update, batches) for name, update in updates.items()}
    products: dict[tuple[str, str], Callable[[], float]] = {}
    if "peak" in config.parts:
        dtypes = {u.precision_name: u.precision.dtype for u in updates.values()}
        for name, dtype in dtypes.items():
            products |= {(name, k): task for k, task in product_tasks(dtype, device).items()}
    found: dict[Any, list[Any]] = interleave({**turns, **products}, config.repeats)

    result: dict[str, Any] = {"tokens": sum(count_tokens(batch.target_out) for batch in batches)}
    if products:
        operations = count_operations(partial(turn, updates["fast"], batches))
        result["operations_per_token"] = operations / result["tokens"]
        result["peak"] = _peaks({key: found[key] for key in products})
    if turns:
        clocks = {name: found[name] for name in turns}
        result["ways"] = {name: _figures(name, clocks, result) for name in turns}
        result["ways"] |= {name: {"unsupported": reason} for name, reason in refused.items()}
    if turns and "memory" in config.parts:
        result["memory"] = {
            name: peak_memory(train_a_little, name, config, device, threads=config.threads)
            for name in turns
        }
    return result


def train_a_little(name: str, config: BenchmarkConfig, device: torch.device) -> None:
    """Run one turn in a process whose memory is measured."""
    batches = draw_batches(config.updates, config.seed, device)
    turn(WAYS[name](config.model, device, config.seed), batches)


def _peaks(rates: dict[tuple[str, str], list[float]]) -> dict[str, Any]:
    """Return the operations per second of each precision and shape, and the best of them."""
    peaks: dict[str, Any] = {}
    for (precision, shape), values in rates.items():
        of_precision = peaks.setdefault(precision, {"best": 0.0, "shapes": {}})
        of_precision["shapes"][shape] = spread(values)
        of_precision["best"] = max(of_precision["best"], of_precision["shapes"][shape]["median"])
    return peaks


def _figures(name: str, clocks: dict[str, list[Clock]], result: dict[str, Any]) -> dict[str, Any]:
    """Return the measurements of one variant."""
    kind, tokens = WAYS[name], result["tokens"]
    rates = {way: [tokens / clock.total for clock in turns] for way, turns in clocks.items()}
    figures: dict[str, Any] = {
        "meaning": kind.meaning,
        "tokens_per_second": spread(rates[name]),
        "speedup": ratios(rates[name], rates["tutorial"]),
        "seconds": {
            phase: spread([clock.seconds[phase] for clock in clocks[name]])
            for phase in clocks[name][0].seconds
        },
    }
    if "peak" in result:
        peak = result["peak"][kind.precision_name]["best"]
        rate = figures["tokens_per_second"]["median"] * result["operations_per_token"]
        figures["fraction_of_peak"] = rate / peak
    return figures
