"""Generated corpora of any size, and the rate at which their batches load."""

import os
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from seq2seq.data.batching import Batch, BatchLimits, load_batches, plan_batches
from seq2seq.data.store import IdStore, IdWriter
from seq2seq.data.vocabulary import EOS, PAD

CHUNK = 100_000  # sentences drawn at a time
VOCABULARY_SIZE = 8000
BUCKET_BATCHES = 100
LIMITS = BatchLimits(sentences=64, tokens=None)


class LoadingRate(NamedTuple):
    tokens_per_second: float  # of the target, EOS included
    memory_growth: int  # growth of the resident memory, in bytes


def write_ids(folder: Path, num_pairs: int, seed: int) -> tuple[IdStore, IdStore]:
    """Write random ids as a prepared corpus: ``source`` and ``target`` in ``folder``.

    Sentences have about 15 tokens, both sentences of a pair about as many. 10 million pairs take
    1.4 GB.
    """
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    with IdWriter(folder / "source") as source, IdWriter(folder / "target") as target:
        for start in range(0, num_pairs, CHUNK):
            lengths = 1 + random.poisson(14, min(CHUNK, num_pairs - start))
            for writer in (source, target):
                ids = random.integers(EOS + 1, VOCABULARY_SIZE, lengths.sum(), dtype=np.int32)
                writer.write(ids, lengths)
                lengths = np.maximum(1, lengths + random.integers(-2, 3, len(lengths)))
    return IdStore(folder / "source"), IdStore(folder / "target")


def loading_rate(source: IdStore, target: IdStore, num_batches: int, seed: int) -> LoadingRate:
    """Load batches as training does, epoch after epoch, without training on them.

    Time and memory count from the second bucket on, so that the cost of starting is not taken for
    growth. Linux only: memory is read from ``/proc``.
    """
    batches = _batches(source, target, seed)
    for _ in islice(batches, BUCKET_BATCHES):
        pass
    memory, started, tokens = _resident_memory(), time.perf_counter(), 0
    for batch in islice(batches, num_batches):
        tokens += int((batch.target_out != PAD).sum())
    seconds = time.perf_counter() - started
    return LoadingRate(tokens / seconds, _resident_memory() - memory)


def _batches(source: IdStore, target: IdStore, seed: int) -> Iterator[Batch]:
    for epoch in count():
        plan = plan_batches(source, target, LIMITS, BUCKET_BATCHES, (seed, epoch))
        yield from load_batches(source, target, plan, torch.device("cpu"))


def _resident_memory() -> int:
    """Return the resident memory of this process in bytes."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
