"""Ids become padded batches, in an order that is a pure function of seed and epoch.

Nothing here grows with the corpus: neither memory, nor what an epoch or a resumed run begins with.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2seq.data.store import IdStore
from seq2seq.data.vocabulary import BOS, EOS, PAD

ROUNDS = 8  # of the network that shuffles an epoch

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


def end_and_pad(sequences: Sequence[Ids]) -> NDArray[np.int64]:
    """B sequences of ids as a matrix, EOS behind each and then PAD: (B, longest + 1)."""
    lengths = np.array([len(ids) for ids in sequences])
    positions = np.arange(lengths.max() + 1)
    matrix = np.full((len(lengths), len(positions)), PAD, dtype=np.int64)
    # A cast only because numpy takes an empty list for floats.
    ids = np.concatenate(sequences, dtype=np.int64, casting="unsafe")
    matrix[positions < lengths[:, None]] = ids
    matrix[np.arange(len(lengths)), lengths] = EOS
    return matrix


def pad_sources(sources: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """Source ids with EOS behind, (B, S), and their mask; even a blank sentence has one token."""
    source = end_and_pad(sources)
    return torch.from_numpy(source), torch.from_numpy(source != PAD)


def collate(sources: Sequence[Ids], targets: Sequence[Ids]) -> Batch:
    """A batch from ids without BOS and EOS."""
    target_out = end_and_pad(targets)
    target_in = np.full_like(target_out, BOS)
    # EOS is never an input: where the row goes on, it does so with padding.
    target_in[:, 1:] = np.where(target_out[:, :-1] == EOS, PAD, target_out[:, :-1])
    return Batch(*pad_sources(sources), torch.from_numpy(target_in), torch.from_numpy(target_out))


def shuffled(positions: NDArray[np.int64], count: int, seed: tuple[int, int]) -> NDArray[np.int64]:
    """What a random order of ``range(count)`` has at these positions; any few of them at once.

    A Feistel network, which maps the numbers of an even number of bits one to one (Luby and
    Rackoff 1988, doi:10.1137/0217022): with x = (left, right) and a key k for each round,

        (left, right) -> (right, left ^ mix(right + k))

    What leaves the range goes through the network again until it is inside, which keeps the
    mapping one to one ("cycle walking", Black and Rogaway 2002, doi:10.1007/3-540-45760-7_9).

    Args:
        positions: within ``range(count)``, (N,).
        seed: run and epoch; the order depends on nothing else.
    """
    bits = np.uint64((max(count - 1, 1).bit_length() + 1) // 2)  # of a half
    mask = (np.uint64(1) << bits) - np.uint64(1)
    keys = np.random.default_rng(seed).integers(1 << 64, size=ROUNDS, dtype=np.uint64)
    found = np.array(positions, dtype=np.uint64)
    outside = np.arange(len(found))
    while len(outside):
        left, right = found[outside] >> bits, found[outside] & mask
        for key in keys:
            left, right = right, left ^ (_mix(right + key) & mask)
        found[outside] = left << bits | right
        outside = outside[found[outside] >= count]
    return found.astype(np.int64)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Every bit of the result depends on every bit of ``x``: the finaliser of SplitMix64
    (Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195, "variant 13")."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def plan_batches(
    source: IdStore,
    target: IdStore,
    limits: BatchLimits,
    bucket_batches: int,
    seed: tuple[int, int],
    start: int = 0,
) -> Iterator[NDArray[np.int64]]:
    """Which sentences make which batch, for one epoch or the rest of one.

    Sentences are shuffled, then sorted by length within buckets of about ``bucket_batches``
    batches, cut, and the batches of a bucket shuffled. (Bahdanau et al. 2015, appendix B.2, sort
    20 batches at a time.) One bucket is planned at a time.

    Args:
        source: ids of the sources; only their lengths matter.
        target: the same of the targets.
        limits: how large a batch may be.
        bucket_batches: batches sorted together; with 1, sentences stay in random order.
        seed: run and epoch; the plan depends on nothing else.
        start: sentences of this epoch already used, in the batches of this very plan.
    """
    count = len(source)
    mean = max(source.num_ids, target.num_ids) / max(count, 1) + 1
    size = bucket_batches * (limits.sentences or max(1, int((limits.tokens or 0) / mean)))
    used = start - start % size
    while used < count:
        rows = shuffled(np.arange(used, min(used + size, count)), count, seed)
        lengths = np.stack([source.lengths(rows), target.lengths(rows)])
        if bucket_batches > 1:
            # By target first: the decoder's steps cost most.
            by_length = np.lexsort(lengths)
            rows, lengths = rows[by_length], lengths[:, by_length]
        batches = cut(rows, lengths.max(axis=0) + 1, limits)
        np.random.default_rng((*seed, used)).shuffle(batches)
        for batch in batches:
            if used >= start:
                yield batch
            used += len(batch)


def cut(rows: NDArray, lengths: NDArray, limits: BatchLimits) -> list[NDArray[np.int64]]:
    """Consecutive batches, each as large as ``limits`` let it be; none is empty or left out.

    Args:
        rows: the sentences, in the order in which they are cut.
        lengths: of the longer side of each, EOS included.
    """
    batches, start, longest = [], 0, 0
    for end, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        if end > start and not limits.fits(end - start + 1, longest):
            batches.append(rows[start:end])
            start, longest = end, length
    return [*batches, rows[start:]] if len(rows) else []
