"""Sequences read from disk are those that were written."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.data.store import IdStore, IdWriter, renumber

sequences = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=6), max_size=10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


def written(stem, *chunks):
    """Write the sequences of all chunks to a store."""
    with IdWriter(stem) as writer:
        for chunk in chunks:
            writer.write([i for ids in chunk for i in ids], [len(ids) for ids in chunk])
    return IdStore(stem)


def contents(store):
    return [store[index].tolist() for index in range(len(store))]


@pytest.mark.guarantee(
    "Prepared ids decode to the text, and changed text or settings are prepared again."
)
@given(st.lists(sequences, max_size=4))
def test_sequences_are_read_as_written_in_any_chunks(folder, chunks):
    store = written(folder / "ids", *chunks)
    expected = [ids for chunk in chunks for ids in chunk]
    assert contents(store) == expected
    assert store.lengths(range(len(store))).tolist() == [len(ids) for ids in expected]
    assert store.num_ids == sum(len(ids) for ids in expected)


def test_sequences_are_read_in_the_requested_order(tmp_path):
    store = written(tmp_path / "ids", [[1], [2, 2], [], [3, 3, 3]])
    indices = np.array([3, 0, 2, 3])
    assert [ids.tolist() for ids in store.read(indices)] == [[3, 3, 3], [1], [], [3, 3, 3]]
    assert store.lengths(indices).tolist() == [3, 1, 0, 3]
    assert store.read([]) == []
    assert store.lengths([]).tolist() == []


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=10), st.integers(1, 7))
def test_renumbering_replaces_ids_and_keeps_boundaries(folder, sequences, chunk):
    written(folder / "old", sequences)
    new_ids = np.arange(100, 110, dtype=np.int32)[::-1].copy()
    renumber(folder / "old", new_ids, chunk)
    assert contents(IdStore(folder / "old")) == [[109 - i for i in ids] for ids in sequences]


def test_empty_sequences_are_counted(tmp_path):
    assert len(written(tmp_path / "none")) == 0
    store = written(tmp_path / "empty", [[], []], [[]])
    assert contents(store) == [[], [], []]
    renumber(tmp_path / "empty", np.array([], dtype=np.int32))
    assert contents(IdStore(tmp_path / "empty")) == [[], [], []]


@pytest.mark.parametrize("index", [-1, 2])
def test_index_outside_the_store_is_refused(tmp_path, index):
    store = written(tmp_path / "ids", [[1, 2], [3]])
    with pytest.raises(IndexError, match=f"{index} of 2"):
        store[index]


def test_read_ids_are_read_only(tmp_path):
    store = written(tmp_path / "ids", [[1, 2]])
    with pytest.raises(ValueError, match="read-only"):
        store[0][0] = 5


@pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="needs the list of open files of Linux"
)
def test_deleted_store_closes_its_files(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    store = written(tmp_path / "ids", [[1, 2]])
    assert len(os.listdir("/proc/self/fd")) == before + 2
    del store
    assert len(os.listdir("/proc/self/fd")) == before
