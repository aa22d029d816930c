"""Each sentence once an epoch, in batches no larger than allowed, with padding only behind."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.data.batching import (
    BatchLimits,
    collate,
    cut,
    pad_sources,
    plan_batches,
    shuffled,
)
from seq2seq.data.store import IdStore, IdWriter
from seq2seq.data.vocabulary import BOS, EOS, PAD

BUCKETS = st.integers(1, 5)
SEEDS = st.tuples(st.integers(0, 2**40), st.integers(0, 1000))
ids = st.lists(st.integers(EOS + 1, 50), max_size=8)
id_pairs = st.lists(st.tuples(ids, ids), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("batching")


def stores(folder, *sides):
    """A store of sentences of these lengths for each side."""
    for stem, lengths in zip(("source", "target"), sides, strict=True):
        with IdWriter(folder / stem) as writer:
            writer.write([9] * sum(lengths), lengths)
    return IdStore(folder / "source"), IdStore(folder / "target")


@st.composite
def corpora(draw):
    """Lengths of the sources and of the targets, and limits of which at least one is set."""
    count = draw(st.integers(1, 60))
    lengths = st.lists(st.integers(0, 30), min_size=count, max_size=count)
    sentences = draw(st.none() | st.integers(1, 12))
    tokens = st.integers(1, 120)
    limits = BatchLimits(sentences, draw(tokens if sentences is None else st.none() | tokens))
    return draw(lengths), draw(lengths), limits


@given(st.integers(1, 300), SEEDS, st.integers(20, 300))
def test_an_order_has_every_number_once_whatever_is_asked_for_at_a_time(count, seed, chunk):
    whole = shuffled(np.arange(count), count, seed)
    assert sorted(whole) == list(range(count))
    parts = [
        shuffled(np.arange(start, min(start + chunk, count)), count, seed)
        for start in range(0, count, chunk)
    ]
    assert np.concatenate(parts).tolist() == whole.tolist()


def test_no_number_of_sentences_is_a_special_case():
    for count in range(1, 70):  # around all powers of two up to 64
        assert sorted(shuffled(np.arange(count), count, (1, 0))) == list(range(count))


@given(st.integers(2**20, 2**40), SEEDS)
def test_numbers_of_a_large_corpus_are_in_range_and_different(count, seed):
    found = shuffled(np.linspace(0, count - 1, 500, dtype=np.int64), count, seed)
    assert len(set(found.tolist())) == 500
    assert 0 <= found.min() <= found.max() < count


@pytest.mark.parametrize("count", [2, 7, 16])
def test_every_number_comes_everywhere_about_equally_often(count):
    """By the binomial distribution one of 256 counts strays by 5 deviations once in 7,000 tests."""
    epochs = 1000
    orders = [shuffled(np.arange(count), count, (1, epoch)) for epoch in range(epochs)]
    counts = sum(np.eye(count)[order] for order in orders)
    deviation = np.sqrt(epochs / count * (1 - 1 / count))
    assert np.abs(counts - epochs / count).max() < 5 * deviation


def test_neighbours_do_not_stay_together():
    """The rank correlation of an order with the next place, the next epoch and the text."""
    count = 10_000
    one, other = (shuffled(np.arange(count), count, (1, epoch)) for epoch in (0, 1))
    for a, b in ((one[:-1], one[1:]), (one, other), (one, np.arange(count))):
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(count)


@given(corpora(), BUCKETS, SEEDS)
def test_an_epoch_has_every_sentence_exactly_once(folder, corpus, bucket_batches, seed):
    *lengths, limits = corpus
    plan = list(plan_batches(*stores(folder, *lengths), limits, bucket_batches, seed))
    assert all(len(batch) for batch in plan)
    assert sorted(np.concatenate(plan)) == list(range(len(lengths[0])))


@given(corpora(), BUCKETS, SEEDS, st.floats(0, 1))
def test_from_any_batch_on_the_plan_goes_on_as_it_would_have(
    folder, corpus, bucket_batches, seed, share
):
    *lengths, limits = corpus
    sides = stores(folder, *lengths)
    plan = [rows.tolist() for rows in plan_batches(*sides, limits, bucket_batches, seed)]
    number = round(share * len(plan))
    used = sum(len(batch) for batch in plan[:number])
    rest = plan_batches(*sides, limits, bucket_batches, seed, used)
    assert [rows.tolist() for rows in rest] == plan[number:]


@given(corpora(), BUCKETS, SEEDS)
def test_a_batch_exceeds_its_limits_only_as_a_single_sentence(folder, corpus, bucket_batches, seed):
    sources, targets, limits = corpus
    for batch in plan_batches(*stores(folder, sources, targets), limits, bucket_batches, seed):
        made = collate([[9] * sources[i] for i in batch], [[9] * targets[i] for i in batch])
        positions = max(made.source.numel(), made.target_out.numel())
        assert limits.sentences is None or len(batch) <= limits.sentences
        assert limits.tokens is None or len(batch) == 1 or positions <= limits.tokens


@given(corpora(), SEEDS)
def test_no_batch_could_have_taken_the_next_sentence_too(corpus, seed):
    sources, targets, limits = corpus
    lengths = np.maximum(sources, targets) + 1
    rows = np.random.default_rng(seed).permutation(len(lengths))
    batches = cut(rows, lengths[rows], limits)
    assert np.concatenate(batches).tolist() == rows.tolist()
    for batch, following in pairwise(batches):
        together = [*batch, following[0]]
        assert not limits.fits(len(together), max(lengths[together]))


@given(corpora(), BUCKETS, SEEDS)
def test_the_plan_depends_on_seed_and_epoch_alone(folder, corpus, bucket_batches, seed):
    *lengths, limits = corpus
    sides = stores(folder, *lengths)
    first = [rows.tolist() for rows in plan_batches(*sides, limits, bucket_batches, seed)]
    np.random.default_rng().random()
    again = [rows.tolist() for rows in plan_batches(*sides, limits, bucket_batches, seed)]
    assert first == again


@pytest.mark.parametrize("bucket_batches", [1, 3])
def test_every_epoch_and_every_seed_has_an_order_of_its_own(folder, bucket_batches):
    lengths = np.arange(200) % 17
    sides = stores(folder, lengths, lengths)
    plans = [
        np.concatenate(
            list(plan_batches(*sides, BatchLimits(8, None), bucket_batches, seed))
        ).tolist()
        for seed in [(1, 0), (1, 1), (1, 2), (2, 0), (0, 1)]
    ]
    assert len({tuple(plan) for plan in plans}) == len(plans)


def test_batches_do_not_come_in_the_order_of_their_lengths(folder):
    """Else every bucket would train on short sentences first."""
    lengths = np.arange(1, 2001)
    sides = stores(folder, lengths, lengths)
    plan = plan_batches(*sides, BatchLimits(20, None), 100, (1, 0))
    means = [lengths[batch].mean() for batch in plan]
    assert abs(np.corrcoef(means, np.arange(100))[0, 1]) < 0.4  # 4 standard deviations


def test_an_epoch_begins_without_a_pass_over_the_corpus(folder, monkeypatch):
    """Flat cost: the first batches ask for the lengths of one bucket of sentences."""
    lengths = np.arange(5000) % 9
    sides = stores(folder, lengths, lengths)
    asked = []
    original = IdStore.lengths

    def counting(store, indices):
        asked.append(len(indices))
        return original(store, indices)

    monkeypatch.setattr(IdStore, "lengths", counting)
    for start in (0, 2000):
        asked.clear()
        next(plan_batches(*sides, BatchLimits(8, None), 5, (1, 0), start))
        assert asked == [40, 40]


def test_buckets_bring_together_sentences_of_similar_length(folder):
    """Sorting must save padding, or it were for nothing."""
    lengths = np.random.default_rng(0).integers(1, 40, 1000)
    sides = stores(folder, lengths, lengths)

    def padding(bucket_batches):
        plan = plan_batches(*sides, BatchLimits(20, None), bucket_batches, (1, 0))
        return sum((lengths[batch].max() - lengths[batch]).sum() for batch in plan)

    assert padding(50) < padding(5) < padding(2) < padding(1)


def test_a_bucket_of_one_batch_keeps_the_random_order(folder):
    lengths = np.arange(200) % 17
    plan = plan_batches(*stores(folder, lengths, lengths), BatchLimits(8, None), 1, (1, 0))
    assert np.concatenate(list(plan)).tolist() == shuffled(np.arange(200), 200, (1, 0)).tolist()


@pytest.mark.parametrize("longer_side", [0, 1])
@pytest.mark.parametrize(("tokens", "in_a_batch"), [(100, 10), (109, 10), (5, 1)])
def test_a_bucket_has_the_batches_asked_for(folder, monkeypatch, longer_side, tokens, in_a_batch):
    """Of 9 words and EOS on the longer side 100 tokens hold ten, 5 tokens none; one must do."""
    lengths = [[4] * 300, [4] * 300]
    lengths[longer_side] = [9] * 300
    sides = stores(folder, *lengths)
    asked = []
    original = IdStore.lengths
    monkeypatch.setattr(
        IdStore, "lengths", lambda store, rows: asked.append(len(rows)) or original(store, rows)
    )
    plan = list(plan_batches(*sides, BatchLimits(None, tokens), 5, (1, 0)))
    assert {len(batch) for batch in plan} == {in_a_batch}
    assert set(asked) == {5 * in_a_batch}


def test_nothing_makes_no_batches(folder):
    nothing = stores(folder, [], [])
    for limits in (BatchLimits(8, None), BatchLimits(None, 100)):
        assert list(plan_batches(*nothing, limits, 5, (1, 0))) == []
        assert cut(np.arange(0), np.arange(0), limits) == []


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


def test_moving_a_batch_keeps_it():
    batch = collate([[10, 11]], [[20]])
    moved = batch.to(torch.device("cpu"))
    assert all(torch.equal(a, b) for a, b in zip(batch, moved, strict=True))
