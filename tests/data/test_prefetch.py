"""Work is done ahead, within bounds; its results, its errors and its end are those of no thread."""

import threading

import pytest
import torch

from seq2seq.data.batching import BatchLimits, collate, load_batches, plan_batches, prefetch
from seq2seq.data.store import IdStore, IdWriter

SOURCES = [[7] * (n % 5) for n in range(50)]
TARGETS = [[n + 4] * (1 + n % 7) for n in range(50)]


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def counted(made, *, until=1000, error=None):
    """Numbers from 0, each noted in ``made``; at ``until`` the end or an error."""
    for number in range(until):
        made.append(number)
        yield number
    if error is not None:
        raise error


@pytest.mark.parametrize("ahead", [1, 3, 50])
@pytest.mark.parametrize("count", [0, 1, 2, 20])
def test_the_items_are_the_same_and_in_order(count, ahead):
    assert list(prefetch(counted([], until=count), ahead)) == list(range(count))
    assert not threads()


def test_no_more_is_made_ahead_than_allowed():
    made, items = [], None
    items = prefetch(counted(made), 4)
    for number in range(20):
        assert next(items) == number
        assert len(made) <= number + 1 + 4
    items.close()
    assert len(made) <= 20 + 4


def test_items_are_made_in_another_thread_while_the_consumer_is_busy():
    third_made = threading.Event()

    def work():
        yield threading.current_thread()
        yield 2
        third_made.set()
        yield 3

    items = prefetch(work(), 2)
    assert next(items) is not threading.current_thread()
    assert third_made.wait(timeout=10)  # nobody has asked for it
    assert list(items) == [2, 3]


@pytest.mark.parametrize("error", [OSError("disk"), KeyboardInterrupt()])
def test_an_error_is_raised_in_its_place(error):
    items = prefetch(counted([], until=3, error=error), 2)
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(type(error)) as caught:
        next(items)
    assert caught.value is error
    assert not threads()


def test_the_thread_ends_when_the_consumer_stops_early():
    """Over many epochs none is left; neither after an error of the consumer."""
    for _ in range(5):
        for number in prefetch(counted([]), 3):
            if number == 2:
                break
        del number
        assert not threads()

    def fail():
        for _ in prefetch(counted([]), 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not threads()


def test_nothing_is_made_before_the_first_item_is_asked_for():
    made = []
    prefetch(counted(made), 3).close()
    assert made == []
    assert not threads()


def test_loaded_batches_are_those_of_the_plan(tmp_path):
    for stem, sequences in (("source", SOURCES), ("target", TARGETS)):
        with IdWriter(tmp_path / stem) as writer:
            writer.write([i for ids in sequences for i in ids], [len(ids) for ids in sequences])
    source, target = IdStore(tmp_path / "source"), IdStore(tmp_path / "target")

    def plan():
        return plan_batches(source, target, BatchLimits(8, None), 2, (1, 0))

    loaded = list(load_batches(source, target, plan(), torch.device("cpu")))
    made = [collate([SOURCES[i] for i in rows], [TARGETS[i] for i in rows]) for rows in plan()]
    assert len(loaded) == len(made) == 7
    for ours, expected in zip(loaded, made, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))
