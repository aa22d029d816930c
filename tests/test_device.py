import ctypes
import json
import os
import platform
import threading
from pathlib import Path

import pytest
import torch
from conftest import torch_threads

from seq2seq import device as device_module
from seq2seq import precision as precision_module
from seq2seq.device import (
    environment,
    map_single_threaded,
    release_memory,
    select_device,
    set_threads,
)
from seq2seq.precision import Precision, select_precision

REFUSED = pytest.mark.guarantee(
    "A precision or device that this machine does not support is refused, never replaced."
)


@REFUSED
@pytest.mark.parametrize("name", ["gpu", "cuda:99", "cpu:x", "", "tpu0", "meta"])
def test_unusable_device_is_refused(name):
    with pytest.raises(ValueError, match=f"device={name} cannot be used here") as caught:
        select_device(name)
    assert "\n" not in str(caught.value)
    assert "device=cpu" in str(caught.value)


def test_auto_selects_a_working_device():
    device = select_device("auto")
    assert torch.ones(2, device=device).sum().item() == 2
    assert select_device("cpu") == torch.device("cpu")


@pytest.fixture
def _threads():
    with torch_threads(torch.get_num_threads()):
        yield


@pytest.mark.guarantee(
    "The number of threads is a setting; by default it is the number of cores available to the "
    "process."
)
@pytest.mark.usefixtures("_threads")
def test_number_of_threads_is_as_requested(monkeypatch):
    assert set_threads(2) == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert set_threads(None) == 2
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(
        device_module.os, "sched_getaffinity", lambda process: {0, 5, 6}, raising=False
    )
    assert set_threads(None) == 3  # not all cores of the machine


def test_environment_is_json():
    record = environment(torch.device("cpu"))
    assert json.loads(json.dumps(record)) == record
    assert record["torch"] in torch.__version__
    assert record["device"] == "cpu"


CPU = torch.device("cpu")


@REFUSED
@pytest.mark.parametrize(("ratio", "refused"), [(0.3, False), (1.0, False), (20.0, True)])
def test_emulated_precision_is_refused(monkeypatch, ratio, refused):
    seconds = {torch.float32: 1.0, torch.bfloat16: ratio}
    monkeypatch.setattr(precision_module, "_product_seconds", lambda dtype, device: seconds[dtype])
    if not refused:
        assert select_precision("bf16", CPU).dtype == torch.bfloat16
        return
    with pytest.raises(ValueError, match=r"precision=bf16 .* 20 times as long .* precision=fp32.$"):
        select_precision("bf16", CPU)


@REFUSED
def test_unsupported_precision_is_refused(monkeypatch):
    with pytest.raises(ValueError, match=r"^precision=fp16 .* device=cpu: it needs a GPU"):
        select_precision("fp16", CPU)

    def fail(self, x):
        raise RuntimeError("'gru' not implemented for 'BFloat16'\nat some line")

    monkeypatch.setattr(torch.nn.GRU, "forward", fail)
    with pytest.raises(ValueError, match=r"'gru' not implemented for 'BFloat16'.; use prec"):
        select_precision("bf16", CPU)


def test_only_products_use_lower_precision():
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
def test_results_of_threads_are_in_order(three_threads, count):
    assert map_single_threaded(lambda item: item * item, range(count)) == [
        n * n for n in range(count)
    ]
    assert torch.get_num_threads() == 3


def test_workers_run_in_parallel_with_one_thread_each(three_threads):
    together = threading.Barrier(3, timeout=60)  # waits for three workers

    def work(_):
        together.wait()
        return torch.get_num_threads()

    assert map_single_threaded(work, range(3)) == [1, 1, 1]


def test_error_in_a_thread_stops_the_others_and_restores_the_number_of_threads(three_threads):
    begun = []

    def work(item):
        begun.append(item)
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 0"):
        map_single_threaded(work, range(1000))
    assert len(begun) < 1000
    assert torch.get_num_threads() == 3


def resident():
    """Return the resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries keep no freed memory"
)
def test_freed_memory_is_returned_to_the_system():
    # Small enough for the heap, which cannot shrink as long as its last tensor lives.
    *many, last = [torch.ones(2**14) for _ in range(2**11)]  # 128 MiB
    del many
    before = resident()
    release_memory()
    assert resident() < before - 100 * 2**20
    assert last.sum() == 2**14


def test_other_c_libraries_are_supported(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    release_memory()
