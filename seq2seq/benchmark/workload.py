"""Random sentence pairs with the lengths of Multi30k, so that no download is needed."""

import numpy as np
import torch
from numpy.typing import NDArray

from seq2seq.data.batching import Batch, collate
from seq2seq.data.vocabulary import SPECIALS

VOCABULARY_SIZES = 5477, 4276  # of Multi30k's German and English, in pieces of a joint BPE of 8,000
BATCH_SIZE = 64  # sentences
BUCKET_BATCHES = 100  # batches whose sentences are sorted by length together

Ids = NDArray[np.int64]


def draw_pairs(num_pairs: int, seed: int) -> list[tuple[Ids, Ids]]:
    """Draw sentence pairs as ids without BOS and EOS.

    Targets have 15.3 tokens on average, including EOS, with a standard deviation of 4.8; the
    lengths of source and target differ with a standard deviation of 2.7. These are the figures of
    Multi30k, German to English. All ids are equally probable.
    """
    random = np.random.default_rng(seed)
    mean, deviation = 15.3, 4.8
    with_end = random.gamma((mean / deviation) ** 2, deviation**2 / mean, num_pairs)
    targets = np.maximum(1, with_end.round().astype(int) - 1)
    sources = np.maximum(1, targets + random.normal(0, 2.7, num_pairs).round().astype(int))
    source_size, target_size = VOCABULARY_SIZES
    return [
        (
            random.integers(len(SPECIALS), source_size, source),
            random.integers(len(SPECIALS), target_size, target),
        )
        for source, target in zip(sources, targets, strict=True)
    ]


def draw_batches(num_batches: int, seed: int, device: torch.device) -> list[Batch]:
    """Draw batches of sentences of similar length, from short to long, from one sorted bucket."""
    bucket = max(BUCKET_BATCHES, num_batches)
    pairs = draw_pairs(bucket * BATCH_SIZE, seed)
    pairs.sort(key=lambda pair: (len(pair[1]), len(pair[0])))
    # From the middle of equal sections of the bucket.
    chosen = (np.arange(num_batches) + 0.5) * bucket / num_batches
    batches = []
    for start in chosen.astype(int) * BATCH_SIZE:
        sources, targets = zip(*pairs[start : start + BATCH_SIZE], strict=True)
        batches.append(collate(sources, targets).to(device))
    return batches
