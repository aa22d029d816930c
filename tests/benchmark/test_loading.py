"""A generated corpus could be trained on, and loading it is measured with real batches."""

import numpy as np
import pytest

from seq2seq.benchmark import corpus
from seq2seq.benchmark.corpus import loading_rate, write_ids
from seq2seq.data.vocabulary import EOS


@pytest.mark.parametrize("num_pairs", [1, 250])
def test_generated_corpus_has_its_size_and_no_control_ids(tmp_path, monkeypatch, num_pairs):
    monkeypatch.setattr(corpus, "CHUNK", 100)
    source, target = write_ids(tmp_path, num_pairs, seed=1)
    assert len(source) == len(target) == num_pairs
    for store in (source, target):
        assert all(len(ids) and ids.min() > EOS for ids in store.read(range(num_pairs)))
    lengths = source.lengths(range(num_pairs)), target.lengths(range(num_pairs))
    assert np.abs(lengths[0] - lengths[1]).max() <= 2


def test_same_seed_gives_the_same_corpus(tmp_path):
    one, same, other = (
        write_ids(tmp_path / name, 20, seed)[1] for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert one[7].tolist() == same[7].tolist() != other[7].tolist()


@pytest.mark.guarantee("Memory does not grow with the number of batches loaded.")
def test_loading_continues_over_epochs_and_is_measured(tmp_path):
    rate = loading_rate(*write_ids(tmp_path, 100, seed=1), num_batches=10, seed=1)
    assert rate.tokens_per_second > 0
    assert rate.memory_growth < 100 << 20
