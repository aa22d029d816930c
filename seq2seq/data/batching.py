"""Padded batches of token ids, in an order that is a pure function of seed and epoch.

Neither memory nor the time to start or resume an epoch grows with the size of the corpus.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2seq.data.store import IdStore
from seq2seq.data.vocabulary import BOS, EOS, PAD

ROUNDS = 8  # rounds of the Feistel network that shuffles an epoch
BATCHES_AHEAD = 4  # batches that are made before the training loop asks for them

T = TypeVar("T")
Ids = Sequence[int] | NDArray[np.integer]


class Batch(NamedTuple):
    """Sentence pairs of similar length."""

    source: Tensor  # ids that end with EOS, then PAD, (B, S)
    source_mask: Tensor  # True at tokens, False at padding, (B, S)
    target_in: Tensor  # ids that start with BOS, then PAD, (B, T)
    target_out: Tensor  # ids that end with EOS, then PAD, (B, T)

    def to(self, device: torch.device) -> "Batch":
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))


class BatchLimits(NamedTuple):
    """Maximum size of a batch; at least one of the two limits is set."""

    sentences: int | None
    tokens: int | None  # positions in the longer of source and target, EOS and padding included

    def fits(self, sentences: int, longest: int) -> bool:
        return (self.sentences is None or sentences <= self.sentences) and (
            self.tokens is None or sentences * longest <= self.tokens
        )


def end_and_pad(sequences: Sequence[Ids]) -> NDArray[np.int64]:
    """Append EOS to B sequences of ids and pad them to a matrix, (B, longest + 1)."""
    lengths = np.array([len(ids) for ids in sequences])
    positions = np.arange(lengths.max() + 1)
    matrix = np.full((len(lengths), len(positions)), PAD, dtype=np.int64)
    # The cast is needed because numpy treats an empty list as floats.
    ids = np.concatenate(sequences, dtype=np.int64, casting="unsafe")
    matrix[positions < lengths[:, None]] = ids
    matrix[np.arange(len(lengths)), lengths] = EOS
    return matrix


def pad_sources(sources: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """Return source ids with EOS, and their mask, both (B, S); a blank sentence is EOS alone."""
    source = end_and_pad(sources)
    return torch.from_numpy(source), torch.from_numpy(source != PAD)


def collate(sources: Sequence[Ids], targets: Sequence[Ids]) -> Batch:
    """Make a batch from ids without BOS and EOS."""
    target_out = end_and_pad(targets)
    target_in = np.full_like(target_out, BOS)
    # EOS is never an input of the decoder: shorter rows continue with padding.
    target_in[:, 1:] = np.where(target_out[:, :-1] == EOS, PAD, target_out[:, :-1])
    return Batch(*pad_sources(sources), torch.from_numpy(target_in), torch.from_numpy(target_out))


def shuffled(positions: NDArray[np.int64], count: int, seed: tuple[int, int]) -> NDArray[np.int64]:
    """Return the elements at these positions of a random permutation of ``range(count)``.

    Each element is computed without computing the others, by a Feistel network. It permutes the
    numbers with an even number of bits (Luby and Rackoff 1988, doi:10.1137/0217022): with
    x = (left, right) and a key k for each round,

        (left, right) -> (right, left ^ mix(right + k))

    Results outside the range go through the network again until they are inside, so the mapping
    stays one to one ("cycle walking", Black and Rogaway 2002,
    doi:10.1007/3-540-45760-7_9).

    Args:
        positions: within ``range(count)``, (N,).
        seed: seed of the run, and epoch; the order depends on nothing else.
    """
    bits = np.uint64((max(count - 1, 1).bit_length() + 1) // 2)  # in each half
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
    """Hash each number so that every output bit depends on every input bit: the finalizer of
    SplitMix64 (Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195, "variant 13")."""
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
    """Yield the sentence indices of each batch of one epoch, or of the rest of one.

    Sentences are shuffled, sorted by length within buckets of about ``bucket_batches`` batches
    and cut into batches; then the batches of each bucket are shuffled. (Bahdanau et al. 2015,
    appendix B.2, sort 20 batches at a time.) One bucket is planned at a time.

    Args:
        source: source ids; only their lengths matter.
        target: target ids; only their lengths matter.
        limits: maximum size of a batch.
        bucket_batches: batches sorted together; with 1, sentences stay in random order.
        seed: seed of the run, and epoch; the plan depends on nothing else.
        start: sentences of this epoch that were already used, in batches of the same plan.
    """
    count = len(source)
    mean = max(source.num_ids, target.num_ids) / max(count, 1) + 1
    size = bucket_batches * (limits.sentences or max(1, int((limits.tokens or 0) / mean)))
    used = start - start % size
    while used < count:
        rows = shuffled(np.arange(used, min(used + size, count)), count, seed)
        lengths = np.stack([source.lengths(rows), target.lengths(rows)])
        if bucket_batches > 1:
            # By target length first: decoder steps are the most expensive.
            by_length = np.lexsort(lengths)
            rows, lengths = rows[by_length], lengths[:, by_length]
        batches = cut(rows, lengths.max(axis=0) + 1, limits)
        np.random.default_rng((*seed, used)).shuffle(batches)
        for batch in batches:
            if used >= start:
                yield batch
            used += len(batch)


def cut(rows: NDArray, lengths: NDArray, limits: BatchLimits) -> list[NDArray[np.int64]]:
    """Cut sentences into consecutive batches, each as large as ``limits`` allow.

    No batch is empty, and a sentence that exceeds the limits gets a batch of its own.

    Args:
        rows: indices of the sentences, in the order in which they are cut.
        lengths: length of the longer of source and target of each pair, EOS included.
    """
    batches, start, longest = [], 0, 0
    for end, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        if end > start and not limits.fits(end - start + 1, longest):
            batches.append(rows[start:end])
            start, longest = end, length
    return [*batches, rows[start:]] if len(rows) else []


def load_batches(
    source: IdStore, target: IdStore, plan: Iterable[NDArray], device: torch.device
) -> Iterator[Batch]:
    """Yield the batches of a plan; later ones are read, padded and moved in the background."""
    batches = (collate(source.read(rows), target.read(rows)).to(device) for rows in plan)
    return prefetch(batches, BATCHES_AHEAD)


def prefetch(items: Iterator[T], ahead: int) -> Iterator[T]:
    """Yield the same items in the same order, computing up to ``ahead`` of them in advance.

    An error while an item is computed is raised when that item is requested. The background
    thread ends with the iterator, whether it is exhausted, closed or garbage-collected, after
    finishing at most the item it is working on.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
    try:
        pending = deque(thread.submit(items.__next__) for _ in range(ahead))
        while True:
            item = pending.popleft().result()
            pending.append(thread.submit(items.__next__))
            yield item
    except StopIteration:
        return  # raised by ``items.__next__`` in the thread: there are no more items
    finally:
        thread.shutdown(cancel_futures=True)
