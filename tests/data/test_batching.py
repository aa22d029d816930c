"""Each sentence once an epoch, in batches no larger than allowed, with padding only behind."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.data.batching import BatchLimits, collate, cut, pad, pad_sources, plan_batches
from seq2seq.data.vocabulary import BOS, EOS, PAD

BUCKETS = st.integers(1, 5)
SEEDS = st.tuples(st.integers(0, 2**40), st.integers(0, 1000))
ids = st.lists(st.integers(EOS + 1, 50), max_size=8)
id_pairs = st.lists(st.tuples(ids, ids), min_size=1, max_size=6)


@st.composite
def corpora(draw):
    """Lengths of the sources and of the targets, and limits of which at least one is set."""
    count = draw(st.integers(1, 60))
    lengths = st.lists(st.integers(0, 30), min_size=count, max_size=count).map(np.array)
    sentences = draw(st.none() | st.integers(1, 12))
    tokens = st.integers(1, 120)
    limits = BatchLimits(sentences, draw(tokens if sentences is None else st.none() | tokens))
    return draw(lengths), draw(lengths), limits


@given(corpora(), BUCKETS, SEEDS)
def test_an_epoch_has_every_sentence_exactly_once(corpus, bucket_batches, seed):
    plan = plan_batches(*corpus, bucket_batches, seed)
    assert all(len(batch) for batch in plan)
    assert sorted(np.concatenate(plan)) == list(range(len(corpus[0])))


@given(corpora(), BUCKETS, SEEDS)
def test_a_batch_exceeds_its_limits_only_as_a_single_sentence(corpus, bucket_batches, seed):
    sources, targets, limits = corpus
    for batch in plan_batches(*corpus, bucket_batches, seed):
        made = collate([[9] * sources[i] for i in batch], [[9] * targets[i] for i in batch])
        positions = max(made.source.numel(), made.target_out.numel())
        assert limits.sentences is None or len(batch) <= limits.sentences
        assert limits.tokens is None or len(batch) == 1 or positions <= limits.tokens


@given(corpora(), SEEDS)
def test_no_batch_could_have_taken_the_next_sentence_too(corpus, seed):
    sources, targets, limits = corpus
    lengths = np.maximum(sources, targets) + 1
    batches = cut(np.random.default_rng(seed).permutation(len(lengths)), lengths, limits)
    for batch, following in pairwise(batches):
        together = [*batch, following[0]]
        assert not limits.fits(len(together), max(lengths[together]))


@given(corpora(), BUCKETS, SEEDS)
def test_the_plan_depends_on_seed_and_epoch_alone(corpus, bucket_batches, seed):
    first = plan_batches(*corpus, bucket_batches, seed)
    np.random.default_rng().random()
    again = plan_batches(*corpus, bucket_batches, seed)
    assert [batch.tolist() for batch in first] == [batch.tolist() for batch in again]


@pytest.mark.parametrize("bucket_batches", [1, 3])
def test_every_epoch_and_every_seed_has_an_order_of_its_own(bucket_batches):
    lengths = np.arange(200) % 17
    plans = [
        np.concatenate(
            plan_batches(lengths, lengths, BatchLimits(8, None), bucket_batches, seed)
        ).tolist()
        for seed in [(1, 0), (1, 1), (1, 2), (2, 0), (0, 1)]
    ]
    assert len({tuple(plan) for plan in plans}) == len(plans)


def test_buckets_bring_together_sentences_of_similar_length():
    """Sorting must save padding, or it were for nothing."""
    lengths = np.random.default_rng(0).integers(1, 40, 1000)

    def padding(bucket_batches):
        plan = plan_batches(lengths, lengths, BatchLimits(20, None), bucket_batches, (1, 0))
        return sum((lengths[batch].max() - lengths[batch]).sum() for batch in plan)

    assert padding(50) < padding(5) < padding(1)


def test_three_target_words_make_four_targets():
    batch = collate([[10, 11]], [[20, 21, 22]])
    assert batch.target_in.tolist() == [[BOS, 20, 21, 22]]
    assert batch.target_out.tolist() == [[20, 21, 22, EOS]]
    assert batch.source.tolist() == [[10, 11, EOS]]


@given(id_pairs)
def test_a_batch_is_its_sentences_between_bos_and_eos_with_padding_behind(pairs):
    sources, targets = zip(*pairs, strict=True)
    batch = collate(sources, targets)
    for row, (source, target) in enumerate(pairs):
        rows = [part[row].tolist() for part in batch]
        for found, expected in zip(
            (rows[0], rows[2], rows[3]),
            ([*source, EOS], [BOS, *target], [*target, EOS]),
            strict=True,
        ):
            assert found == expected + [PAD] * (len(found) - len(expected))
        assert rows[1] == [position <= len(source) for position in range(len(rows[1]))]
    assert not (batch.target_in == EOS).any()
    assert batch.source.shape[1] == max(len(source) for source in sources) + 1
    assert batch.target_in.shape == batch.target_out.shape
    assert batch.target_in.shape[1] == max(len(target) for target in targets) + 1


@given(id_pairs)
def test_a_batch_looks_the_same_from_lists_and_from_arrays(pairs):
    lists = collate(*zip(*pairs, strict=True))
    arrays = collate(
        *([np.array(side, np.int32) for side in sides] for sides in zip(*pairs, strict=True))
    )
    assert all(torch.equal(a, b) for a, b in zip(lists, arrays, strict=True))


def test_a_blank_source_has_one_token():
    source, mask = pad_sources([[], [7, 8]])
    assert source.tolist() == [[EOS, PAD, PAD], [7, 8, EOS]]
    assert mask.sum(dim=1).tolist() == [1, 3]


def test_padding_has_the_value_asked_for():
    assert pad([[5], [6, 7]], value=-1).tolist() == [[5, -1], [6, 7]]


def test_moving_a_batch_keeps_it():
    batch = collate([[10, 11]], [[20]])
    moved = batch.to(torch.device("cpu"))
    assert all(torch.equal(a, b) for a, b in zip(batch, moved, strict=True))
