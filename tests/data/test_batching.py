"""Each sentence occurs once per epoch, in batches within the limits, padded at the end."""

import threading
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
    load_batches,
    plan_batches,
    prefetch,
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


def stores(folder, *both_lengths):
    """Stores of source and target sentences of these lengths."""
    for stem, lengths in zip(("source", "target"), both_lengths, strict=True):
        with IdWriter(folder / stem) as writer:
            writer.write([9] * sum(lengths), lengths)
    return IdStore(folder / "source"), IdStore(folder / "target")


@st.composite
def corpora(draw):
    """Lengths of sources, lengths of targets, and limits."""
    count = draw(st.integers(1, 60))
    lengths = st.lists(st.integers(0, 30), min_size=count, max_size=count)
    sentences = draw(st.none() | st.integers(1, 12))
    tokens = st.integers(1, 120)
    limits = BatchLimits(sentences, draw(tokens if sentences is None else st.none() | tokens))
    return draw(lengths), draw(lengths), limits


@given(st.integers(1, 300), SEEDS, st.integers(20, 300))
def test_order_is_a_permutation_and_can_be_computed_in_chunks(count, seed, chunk):
    whole = shuffled(np.arange(count), count, seed)
    assert sorted(whole) == list(range(count))
    chunks = [
        shuffled(np.arange(start, min(start + chunk, count)), count, seed)
        for start in range(0, count, chunk)
    ]
    assert np.concatenate(chunks).tolist() == whole.tolist()


@given(st.integers(2**20, 2**40), SEEDS)
def test_order_of_a_large_corpus_is_in_range_and_unique(count, seed):
    found = shuffled(np.linspace(0, count - 1, 500, dtype=np.int64), count, seed)
    assert len(set(found.tolist())) == 500
    assert 0 <= found.min() <= found.max() < count


@pytest.mark.parametrize("count", [2, 7, 16])
def test_every_position_is_about_equally_likely(count):
    """By the binomial distribution one of 256 counts is 5 deviations off once in 7,000 tests."""
    epochs = 1000
    orders = [shuffled(np.arange(count), count, (1, epoch)) for epoch in range(epochs)]
    counts = sum(np.eye(count)[order] for order in orders)
    deviation = np.sqrt(epochs / count * (1 - 1 / count))
    assert np.abs(counts - epochs / count).max() < 5 * deviation


def test_order_is_not_correlated():
    """Not with the next position, the next epoch, or the order of the text."""
    count = 10_000
    one, other = (shuffled(np.arange(count), count, (1, epoch)) for epoch in (0, 1))
    for a, b in ((one[:-1], one[1:]), (one, other), (one, np.arange(count))):
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(count)


@pytest.mark.guarantee("Every sentence is trained on once per epoch, in batches within the limits.")
@pytest.mark.guarantee(
    "The order of batches depends only on seed and epoch, and can be resumed anywhere."
)
@given(corpora(), BUCKETS, SEEDS, st.floats(0, 1))
def test_epoch_has_every_sentence_once_within_limits_and_can_be_resumed(
    folder, corpus, bucket_batches, seed, share
):
    sources, targets, limits = corpus
    both = stores(folder, sources, targets)
    plan = [rows.tolist() for rows in plan_batches(*both, limits, bucket_batches, seed)]
    assert sorted(row for rows in plan for row in rows) == list(range(len(sources)))
    for rows in plan:
        longest = max(max(sources[row], targets[row]) for row in rows) + 1
        assert limits.sentences is None or len(rows) <= limits.sentences
        assert limits.tokens is None or len(rows) == 1 or len(rows) * longest <= limits.tokens
    number = round(share * len(plan))
    used = sum(len(rows) for rows in plan[:number])
    rest = plan_batches(*both, limits, bucket_batches, seed, used)
    assert [rows.tolist() for rows in rest] == plan[number:]


@given(corpora(), SEEDS)
def test_batches_are_as_large_as_allowed(corpus, seed):
    sources, targets, limits = corpus
    lengths = np.maximum(sources, targets) + 1
    rows = np.random.default_rng(seed).permutation(len(lengths))
    batches = cut(rows, lengths[rows], limits)
    assert np.concatenate(batches).tolist() == rows.tolist()
    for batch, following in pairwise(batches):
        together = [*batch, following[0]]
        assert not limits.fits(len(together), max(lengths[together]))


@pytest.mark.guarantee(
    "The order of batches depends only on seed and epoch, and can be resumed anywhere."
)
@pytest.mark.parametrize("bucket_batches", [1, 3])
def test_epochs_and_seeds_have_different_orders(folder, bucket_batches):
    lengths = np.arange(200) % 17
    both = stores(folder, lengths, lengths)
    plans = [
        np.concatenate(
            list(plan_batches(*both, BatchLimits(8, None), bucket_batches, seed))
        ).tolist()
        for seed in [(1, 0), (1, 1), (1, 2), (2, 0), (0, 1)]
    ]
    assert len({tuple(plan) for plan in plans}) == len(plans)


def test_batches_of_a_bucket_are_shuffled(folder):
    """Otherwise every bucket would begin with short sentences."""
    lengths = np.arange(1, 2001)
    both = stores(folder, lengths, lengths)
    plan = plan_batches(*both, BatchLimits(20, None), 100, (1, 0))
    means = [lengths[batch].mean() for batch in plan]
    assert abs(np.corrcoef(means, np.arange(100))[0, 1]) < 0.4  # 4 standard deviations


@pytest.mark.parametrize("longer", [0, 1])
@pytest.mark.parametrize(
    ("limits", "size"),
    [
        (BatchLimits(8, None), 8),
        (BatchLimits(None, 109), 10),  # ten sentences of 9 words and EOS
        (BatchLimits(None, 5), 1),
    ],
)
def test_only_one_bucket_is_planned_at_a_time(folder, monkeypatch, longer, limits, size):
    """Starting or resuming an epoch does not read the whole corpus."""
    lengths = [[4] * 3000, [4] * 3000]
    lengths[longer] = [9] * 3000
    both = stores(folder, *lengths)
    requested = []
    original = IdStore.lengths

    def counting(store, indices):
        requested.append(len(indices))
        return original(store, indices)

    monkeypatch.setattr(IdStore, "lengths", counting)
    for start in (0, 200):
        requested.clear()
        assert len(next(plan_batches(*both, limits, 5, (1, 0), start))) == size
        assert requested == [5 * size] * 2


def test_larger_buckets_need_less_padding(folder):
    lengths = np.random.default_rng(0).integers(1, 40, 1000)
    both = stores(folder, lengths, lengths)

    def padding(bucket_batches):
        plan = plan_batches(*both, BatchLimits(20, None), bucket_batches, (1, 0))
        return sum((lengths[batch].max() - lengths[batch]).sum() for batch in plan)

    assert padding(50) < padding(5) < padding(2) < padding(1)
    unsorted = list(plan_batches(*both, BatchLimits(20, None), 1, (1, 0)))
    order = shuffled(np.arange(1000), 1000, (1, 0))
    assert np.concatenate(unsorted).tolist() == order.tolist()


def test_empty_corpus_has_no_batches(folder):
    empty = stores(folder, [], [])
    for limits in (BatchLimits(8, None), BatchLimits(None, 100)):
        assert list(plan_batches(*empty, limits, 5, (1, 0))) == []
        assert cut(np.arange(0), np.arange(0), limits) == []


@pytest.mark.guarantee("Every sentence is trained on once per epoch, in batches within the limits.")
@given(id_pairs)
def test_batch_has_bos_eos_and_padding(pairs):
    sources, targets = zip(*pairs, strict=True)
    batch = collate(sources, [np.array(ids, np.int32) for ids in targets])
    for row, (source, target) in enumerate(pairs):
        rows = [tensor[row].tolist() for tensor in batch]
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


# --- prefetching


def prefetch_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def counted(made, *, until=1000, error=None):
    """Yield numbers from 0 and append each to ``made``; ``until`` is the end or an error."""
    for number in range(until):
        made.append(number)
        yield number
    if error is not None:
        raise error


@pytest.mark.guarantee("Prefetching changes neither the batches nor their order.")
@pytest.mark.parametrize("ahead", [1, 3, 50])
@pytest.mark.parametrize("count", [0, 1, 2, 20])
def test_prefetched_items_are_the_same_in_order(count, ahead):
    assert list(prefetch(counted([], until=count), ahead)) == list(range(count))
    assert not prefetch_threads()


def test_prefetching_starts_on_demand_and_is_bounded():
    made = []
    prefetch(counted(made), 3).close()
    assert made == []
    items = prefetch(counted(made), 4)
    for number in range(20):
        assert next(items) == number
        assert len(made) <= number + 1 + 4
    items.close()
    assert not prefetch_threads()


def test_items_are_made_while_the_consumer_is_busy():
    third_made = threading.Event()

    def work():
        yield threading.current_thread()
        yield 2
        third_made.set()
        yield 3

    items = prefetch(work(), 2)
    assert next(items) is not threading.current_thread()
    assert third_made.wait(timeout=10)  # before it is requested
    assert list(items) == [2, 3]


@pytest.mark.guarantee("Prefetching changes neither the batches nor their order.")
@pytest.mark.parametrize("error", [OSError("disk"), KeyboardInterrupt()])
def test_error_is_raised_at_its_item(error):
    items = prefetch(counted([], until=3, error=error), 2)
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(type(error)) as caught:
        next(items)
    assert caught.value is error
    assert not prefetch_threads()


def test_thread_ends_when_the_consumer_stops_early():
    for _ in range(5):
        for number in prefetch(counted([]), 3):
            if number == 2:
                break
        assert not prefetch_threads()

    def fail():
        for _ in prefetch(counted([]), 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not prefetch_threads()


@pytest.mark.guarantee("Prefetching changes neither the batches nor their order.")
def test_loaded_batches_are_those_of_the_plan(folder):
    both = stores(folder, [n % 5 for n in range(50)], [1 + n % 7 for n in range(50)])

    def plan():
        return plan_batches(*both, BatchLimits(8, None), 2, (1, 0))

    loaded = list(load_batches(*both, plan(), torch.device("cpu")))
    assert len(loaded) == 7
    for batch, rows in zip(loaded, plan(), strict=True):
        expected = collate(*(store.read(rows) for store in both))
        assert all(torch.equal(a, b) for a, b in zip(batch, expected, strict=True))
