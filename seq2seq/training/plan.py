"""Which pairs make which update: planned for training, and named where an update went wrong."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from seq2seq.config.training import TrainConfig
from seq2seq.data.batching import Batch, BatchLimits, plan_batches
from seq2seq.data.corpus import locate
from seq2seq.data.preparation import PreparedCorpus
from seq2seq.training.state import Progress

PAIRS_IN_DETAIL = 3


def plan_epoch(
    config: TrainConfig, corpus: PreparedCorpus, epoch: int, start: int
) -> Iterator[NDArray[np.int64]]:
    """Which sentence pairs make which batch of an epoch, once ``start`` of them are used."""
    settings = config.trainer
    return plan_batches(
        corpus.source_ids,
        corpus.target_ids,
        BatchLimits(settings.batch_sentences, settings.batch_tokens),
        settings.bucket_batches,
        (config.seed, epoch),
        start,
    )


def name_pairs(
    config: TrainConfig, corpus: PreparedCorpus, progress: Progress, batches: list[Batch]
) -> str:
    """The pairs of the batches that ``progress`` counted last, by their lines in the files.

    No batch carries its lines: it is planned once more, which gives the same pairs.
    """
    start = progress.position - sum(len(batch.source) for batch in batches)
    plan = plan_epoch(config, corpus, progress.epoch, start)
    rows = np.sort(np.concatenate(list(islice(plan, len(batches)))))
    first = rows[:PAIRS_IN_DETAIL]
    lengths = zip(corpus.source_ids.lengths(first), corpus.target_ids.lengths(first), strict=True)
    files = locate(config.data, "train")
    names = dict.fromkeys(str(path) for path in (files.source, files.target))
    return (
        f"{len(rows)} pairs of {' and '.join(names)}, "
        f"lines {', '.join(map(str, corpus.lines[rows].tolist()))} "
        f"(tokens of the first: {', '.join(f'{a} and {b}' for a, b in lengths)})"
    )
