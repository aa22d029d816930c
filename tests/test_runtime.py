"""Random numbers go on where they stopped, and a device that is not there is named."""

import ctypes
import json
import os
import platform
import random
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import torch_threads

from seq2seq import device as device_module
from seq2seq import precision as precision_module
from seq2seq.device import (
    environment,
    hand_back_memory,
    one_thread_each,
    select_device,
    set_threads,
)
from seq2seq.precision import Precision, select_precision
from seq2seq.randomness import random_state, restore_random_state, seed_everything


def draws():
    """Some numbers of every generator, Gaussian ones too: these come in pairs."""
    return [
        random.random(),
        random.gauss(0, 1),
        *np.random.rand(2).tolist(),
        np.random.randn(),
        *torch.rand(3).tolist(),
        torch.nn.functional.dropout(torch.ones(20)).tolist(),
    ]


@pytest.mark.parametrize("before", [0, 1, 3])
def test_restored_generators_give_the_same_next_numbers(before):
    seed_everything(5)
    for _ in range(before):
        draws()
    tensors, plain = random_state()
    expected = [draws() for _ in range(3)]
    seed_everything(6)
    # Through JSON, as a checkpoint keeps it.
    restore_random_state(tensors, json.loads(json.dumps(plain)))
    assert [draws() for _ in range(3)] == expected


def test_a_kept_state_does_not_change_with_the_generators():
    tensors, plain = random_state()
    copies = {name: tensor.clone() for name, tensor in tensors.items()}, json.dumps(plain)
    draws()
    assert all(torch.equal(tensors[name], copies[0][name]) for name in tensors)
    assert json.dumps(plain) == copies[1]


def test_a_seed_decides_every_number():
    seed_everything(1)
    first = draws()
    seed_everything(1)
    assert draws() == first
    seed_everything(2)
    assert all(a != b for a, b in zip(draws(), first, strict=True))


def test_seeds_may_be_larger_than_numpy_allows():
    seed_everything(2**40 + 3)


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "cpu:x", "", "tpu0", "meta"])
def test_a_device_that_cannot_be_used_is_refused_in_one_line(name):
    with pytest.raises(ValueError, match=f"device={name} cannot be used here") as caught:
        select_device(name)
    assert "\n" not in str(caught.value)
    assert "device=cpu" in str(caught.value)


def test_auto_finds_a_device_that_works():
    device = select_device("auto")
    assert torch.ones(2, device=device).sum().item() == 2
    assert select_device("cpu") == torch.device("cpu")


@pytest.fixture
def _threads():
    with torch_threads(torch.get_num_threads()):
        yield


@pytest.mark.usefixtures("_threads")
def test_threads_are_those_asked_for(monkeypatch):
    assert set_threads(2) == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert set_threads(None) == 2  # the user's word stands
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(
        device_module.os, "sched_getaffinity", lambda process: {0, 5, 6}, raising=False
    )
    assert set_threads(None) == 3  # not the cores of the machine


def test_the_record_of_the_machine_is_plain_json():
    record = environment(torch.device("cpu"))
    assert json.loads(json.dumps(record)) == record
    assert (
        record["torch"] == torch.__version__.split("+")[0] or record["torch"] in torch.__version__
    )
    assert record["device"] == "cpu"


CPU = torch.device("cpu")


@pytest.mark.parametrize(("times", "refused"), [(0.3, False), (1.0, False), (20.0, True)])
def test_a_precision_that_takes_longer_is_refused_in_one_sentence(monkeypatch, times, refused):
    seconds = {torch.float32: 1.0, torch.bfloat16: times}
    monkeypatch.setattr(precision_module, "_product_seconds", lambda dtype, device: seconds[dtype])
    if not refused:
        assert select_precision("bf16", CPU).dtype == torch.bfloat16
        return
    with pytest.raises(ValueError, match=r"precision=bf16 .* 20 times as long .* precision=fp32.$"):
        select_precision("bf16", CPU)


def test_a_precision_that_the_device_cannot_compute_is_refused_in_one_sentence(monkeypatch):
    with pytest.raises(ValueError, match=r"^precision=fp16 .* device=cpu: it needs a GPU"):
        select_precision("fp16", CPU)

    def fail(self, x):
        raise RuntimeError("'gru' not implemented for 'BFloat16'\nat some line")

    monkeypatch.setattr(torch.nn.GRU, "forward", fail)
    with pytest.raises(ValueError, match=r"'gru' not implemented for 'BFloat16'.; use prec"):
        select_precision("bf16", CPU)


def test_products_have_the_precision_and_sums_have_not():
    x = torch.ones(3, 3)
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        with Precision(name, CPU).autocast():
            assert (x @ x).dtype == dtype
            assert (x + x).dtype == torch.float32


@pytest.fixture
def three_threads():
    with torch_threads(3):
        yield


@pytest.mark.parametrize("count", [0, 2, 3, 20])
def test_work_in_threads_comes_back_in_order(three_threads, count):
    assert one_thread_each(lambda item: item * item, range(count)) == [n * n for n in range(count)]
    assert torch.get_num_threads() == 3


def test_each_of_several_threads_is_alone(three_threads):
    together = threading.Barrier(3, timeout=60)  # waits for three: one after another would not end

    def work(_):
        together.wait()
        return torch.get_num_threads()

    assert one_thread_each(work, range(3)) == [1, 1, 1]


def test_an_error_in_a_thread_ends_the_others_and_leaves_the_threads_as_they_were(three_threads):
    begun = []

    def work(item):
        begun.append(item)
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 0"):
        one_thread_each(work, range(1000))
    assert len(begun) < 1000
    assert torch.get_num_threads() == 3


def resident():
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep nothing")
def test_what_was_freed_is_handed_back():
    # Small enough for the heap, whose end the last of them keeps where it is.
    *many, last = [torch.ones(2**14) for _ in range(2**11)]  # 128 MiB
    del many
    before = resident()
    hand_back_memory()
    assert resident() < before - 100 * 2**20
    assert last.sum() == 2**14


def test_a_library_that_keeps_no_memory_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    hand_back_memory()
