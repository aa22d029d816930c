"""What is written to disk is what is read back, sequence by sequence."""

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
    """A store of the sequences of all chunks."""
    with IdWriter(stem) as writer:
        for chunk in chunks:
            writer.write(chunk)
    return IdStore(stem)


def contents(store):
    return [store[index].tolist() for index in range(len(store))]


@given(st.lists(sequences, max_size=4))
def test_sequences_come_back_in_order_whatever_the_chunks(folder, chunks):
    store = written(folder / "ids", *chunks)
    expected = [ids for chunk in chunks for ids in chunk]
    assert contents(store) == expected
    assert store.lengths.tolist() == [len(ids) for ids in expected]


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=10), st.integers(1, 7))
def test_renumbering_replaces_every_id_and_no_boundary(folder, sequences, chunk):
    written(folder / "old", sequences)
    new_ids = np.arange(100, 110, dtype=np.int32)[::-1].copy()
    renumber(folder / "old", new_ids, chunk)
    assert contents(IdStore(folder / "old")) == [[109 - i for i in ids] for ids in sequences]


def test_an_empty_store_has_no_sequence(tmp_path):
    store = written(tmp_path / "none")
    assert len(store) == 0
    assert store.lengths.tolist() == []


def test_a_store_of_empty_sequences_still_counts_them(tmp_path):
    store = written(tmp_path / "empty", [[], []], iter([[]]))
    assert contents(store) == [[], [], []]
    renumber(tmp_path / "empty", np.array([], dtype=np.int32))
    assert contents(IdStore(tmp_path / "empty")) == [[], [], []]


def test_reading_cannot_change_the_file(tmp_path):
    store = written(tmp_path / "ids", [[1, 2]])
    with pytest.raises(ValueError, match="read-only"):
        store[0][0] = 5
