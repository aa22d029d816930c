"""Ids become padded batches, in an order that is a pure function of seed and epoch."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2seq.data.vocabulary import BOS, EOS, PAD

Ids = Sequence[int] | NDArray[np.integer]


class Batch(NamedTuple):
    """Sentence pairs of similar length."""

    source: Tensor  # ids that end with EOS, (B, S)
    source_mask: Tensor  # True at tokens, (B, S)
    target_in: Tensor  # ids that start with BOS, (B, T)
    target_out: Tensor  # ids that end with EOS, (B, T); PAD behind

    def to(self, device: torch.device) -> "Batch":
        return Batch(*(part.to(device, non_blocking=True) for part in self))


class BatchLimits(NamedTuple):
    """How large a batch may be; at least one of the two is set."""

    sentences: int | None
    tokens: int | None  # padded positions of the longer side, EOS included

    def fits(self, sentences: int, longest: int) -> bool:
        return (self.sentences is None or sentences <= self.sentences) and (
            self.tokens is None or sentences * longest <= self.tokens
        )


def pad(sequences: Sequence[Ids], value: int = PAD) -> Tensor:
    """Sequences of ids as one matrix, filled up at the end."""
    length = max(len(ids) for ids in sequences)
    matrix = np.full((len(sequences), length), value, dtype=np.int64)
    for row, ids in zip(matrix, sequences, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(matrix)


def pad_sources(sources: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """Source ids with EOS behind, (B, S), and their mask; even a blank sentence has one token."""
    source = pad([np.append(np.asarray(ids, dtype=np.int64), EOS) for ids in sources])
    return source, source != PAD


def collate(sources: Sequence[Ids], targets: Sequence[Ids]) -> Batch:
    """A batch from ids without BOS and EOS."""
    source, source_mask = pad_sources(sources)
    target = pad(
        [np.concatenate([[BOS], np.asarray(ids, dtype=np.int64), [EOS]]) for ids in targets]
    )
    # EOS is never an input: where the row goes on, it does so with padding.
    target_in = target[:, :-1].masked_fill(target[:, :-1] == EOS, PAD)
    return Batch(source, source_mask, target_in, target[:, 1:])


def plan_batches(
    source_lengths: NDArray,
    target_lengths: NDArray,
    limits: BatchLimits,
    bucket_batches: int,
    seed: tuple[int, int],
) -> list[NDArray[np.int64]]:
    """Which sentences make which batch, for one epoch.

    Sentences are shuffled, then sorted by length within buckets of about ``bucket_batches``
    batches, cut, and the batches shuffled. (Bahdanau et al. 2015, appendix B.2, sort 20
    batches at a time.)

    Args:
        source_lengths: tokens of each source sentence, without EOS.
        target_lengths: the same of the targets.
        limits: how large a batch may be.
        bucket_batches: batches sorted together; with 1, sentences stay in random order.
        seed: run and epoch; the plan depends on nothing else.
    """
    random = np.random.default_rng(seed)
    order = random.permutation(len(source_lengths))
    longer = np.maximum(source_lengths, target_lengths) + 1
    size = limits.sentences or max(1, int(limits.tokens / max(longer.mean(), 1)))
    batches = []
    for start in range(0, len(order), size * bucket_batches):
        bucket = order[start : start + size * bucket_batches]
        if bucket_batches > 1:
            # By target first: the decoder's steps cost most.
            keys = np.lexsort((source_lengths[bucket], target_lengths[bucket]))
            bucket = bucket[keys]
        batches += cut(bucket, longer, limits)
    random.shuffle(batches)
    return batches


def cut(order: NDArray, lengths: NDArray, limits: BatchLimits) -> list[NDArray[np.int64]]:
    """Consecutive batches, each as large as ``limits`` let it be; none is empty or left out."""
    batches, start, longest = [], 0, 0
    for end, index in enumerate(order):
        longest = max(longest, int(lengths[index]))
        if end > start and not limits.fits(end - start + 1, longest):
            batches.append(order[start:end])
            start, longest = end, int(lengths[index])
    return [*batches, order[start:]] if len(order) else []
