"""Benchmark of loading batches from a small and a large corpus; the cost should be the same."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seq2seq.benchmark.corpus import LoadingRate, loading_rate, write_ids
from seq2seq.benchmark.memory import peak_memory
from seq2seq.benchmark.timing import interleave, spread
from seq2seq.config.scripts import BenchmarkConfig
from seq2seq.data.store import IdStore

NUM_BATCHES = 1000  # per turn


def load(folder: Path, seed: int) -> LoadingRate:
    """Load ``NUM_BATCHES`` batches of the corpus in ``folder``."""
    return loading_rate(IdStore(folder / "source"), IdStore(folder / "target"), NUM_BATCHES, seed)


def measure_loading(config: BenchmarkConfig, folder: Path) -> list[dict[str, Any]]:
    """Measure the target tokens per second, and the memory of a process that only loads.

    The corpora are in a temporary folder within ``folder``.
    """

    def task(corpus: Path) -> Callable[[], float]:
        return lambda: load(corpus, config.seed).tokens_per_second

    rows = []
    with TemporaryDirectory(dir=folder) as temporary:
        corpora = {
            size: Path(temporary) / str(size) for size in (config.small_pairs, config.large_pairs)
        }
        for size, corpus in corpora.items():
            write_ids(corpus, size, config.seed)
        found = interleave({size: task(corpus) for size, corpus in corpora.items()}, config.repeats)
        for size, rates in found.items():
            row: dict[str, Any] = {"pairs": size, "tokens_per_second": spread(rates)}
            if "memory" in config.parts:
                row["memory"] = peak_memory(
                    load, corpora[size], config.seed, threads=config.threads
                )
            rows.append(row)
    return rows
