"""A checkpoint comes back as it was, is replaced whole or not at all, and runs nothing."""

import os
import pickle
import stat
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from seq2seq import checkpoint
from seq2seq.checkpoint import FORMAT, load_checkpoint, save_checkpoint

TENSORS = {
    "model.weight": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
    "model.bias": torch.tensor([float("inf"), -0.0, 1e-40]),
    "optimizer.0.step": torch.tensor(7.0),
    "rng.torch": torch.get_rng_state(),
    "tokenizer.source": torch.tensor([], dtype=torch.uint8),
}
HEADER = {"config": {"seed": 1, "words": ["ä", "\u2028", "</s>"]}, "progress": None, "loss": 0.1}

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc.ß", max_size=3), inner),
    max_leaves=8,
)  # fmt: skip


def same(tensors, others):
    return tensors.keys() == others.keys() and all(
        a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
        for a, b in ((tensors[name], others[name]) for name in tensors)
    )


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoints" / "last.safetensors"


def test_everything_comes_back_bit_for_bit(path):
    save_checkpoint(path, TENSORS, HEADER)
    loaded = load_checkpoint(path)
    assert same(loaded.tensors, TENSORS)
    assert loaded.header == HEADER
    assert files_in(path.parent) == [path.name]


@given(plain)
def test_any_plain_header_comes_back(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    save_checkpoint(path, {}, {"content": content})
    assert load_checkpoint(path).header == {"content": content}


def test_a_part_is_what_its_name_says(path):
    save_checkpoint(path, TENSORS | {"modelling.weight": torch.ones(1)}, HEADER)
    loaded = load_checkpoint(path, parts=("model", "rng"))
    assert set(loaded.tensors) == {"model.weight", "model.bias", "rng.torch"}
    assert same(loaded.part("model"), {k: TENSORS[f"model.{k}"] for k in ("weight", "bias")})
    assert loaded.part("optimizer") == {}


def test_tensors_that_share_storage_are_kept_both(path):
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {"a": base, "b": base, "c": base[1:], "d": base.t(), "e": base[:, ::2]}
    save_checkpoint(path, tensors, {})
    assert same(load_checkpoint(path).tensors, {k: v.contiguous() for k, v in tensors.items()})


def test_parameters_may_need_gradients(path):
    save_checkpoint(path, {"a": torch.nn.Parameter(torch.ones(2))}, {})
    assert load_checkpoint(path).tensors["a"].tolist() == [1, 1]


def fail_at_once(*arguments):
    raise OSError(28, "No space left on device")


def fail_half_way(tensors, filename, metadata):
    with open(filename, "wb") as file:
        file.write(b"half of it")
    fail_at_once()


@pytest.mark.parametrize(
    ("name", "failing"),
    [("save_file", fail_at_once), ("save_file", fail_half_way), ("_flush", fail_at_once)],
)
def test_a_failed_write_leaves_the_previous_file(path, monkeypatch, name, failing):
    save_checkpoint(path, TENSORS, HEADER)
    monkeypatch.setattr(checkpoint, name, failing)
    with pytest.raises(OSError, match="No space left") as caught:
        save_checkpoint(path, {"model.weight": torch.zeros(1)}, {})
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert files_in(path.parent) == [path.name]
    assert same(load_checkpoint(path).tensors, TENSORS)


def test_an_interrupted_write_leaves_the_previous_file(path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    save_checkpoint(path, TENSORS, HEADER)
    monkeypatch.setattr(checkpoint, "save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(path, {}, {})
    assert files_in(path.parent) == [path.name]
    assert load_checkpoint(path).header == HEADER


def test_what_a_killed_write_left_goes_with_the_next(path):
    save_checkpoint(path, TENSORS, HEADER)
    stale = path.with_name(path.name + "abc123.partial")  # as kill -9 would leave it
    stale.write_bytes(b"half of it")
    other = path.with_name("best.safetensorsabc123.partial")
    other.write_bytes(b"another file's")
    save_checkpoint(path, TENSORS, HEADER)
    assert files_in(path.parent) == [other.name, path.name]


def test_a_header_that_json_cannot_hold_is_refused_before_anything_is_written(path):
    save_checkpoint(path, TENSORS, HEADER)
    with pytest.raises(ValueError, match="JSON"):
        save_checkpoint(path, TENSORS, {"loss": float("nan")})
    assert files_in(path.parent) == [path.name]
    assert load_checkpoint(path).header == HEADER


def test_others_may_read_a_checkpoint(path):
    save_checkpoint(path, TENSORS, HEADER)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


class Trap:
    """Unpickling this runs a command."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (self.marker,)


@pytest.mark.parametrize("write", [pickle.dump, torch.save], ids=["pickle", "torch"])
def test_a_foreign_pickle_is_refused_and_not_run(tmp_path, write):
    marker, path = tmp_path / "marker", tmp_path / "stranger.safetensors"
    with path.open("wb") as file:
        write(Trap(str(marker)), file)
    with pytest.raises(ValueError, match="no safetensors file") as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)
    assert not marker.exists()
    # The trap is a real one: unpickling it springs it.
    if write is pickle.dump:
        pickle.loads(path.read_bytes())
        assert marker.exists()


@pytest.mark.parametrize("kept", [0, 4, 8, 50, -1])
def test_a_truncated_file_is_refused(path, kept):
    save_checkpoint(path, TENSORS, HEADER)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"checkpoint=.*damaged") as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)


def test_text_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("This is no checkpoint at all, whatever its length may be.\n" * 20)
    with pytest.raises(ValueError, match="damaged or no safetensors"):
        load_checkpoint(path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"format": "1"}, {"header": "{}"}])
def test_another_programs_file_is_refused(tmp_path, metadata):
    save_file({"weight": torch.ones(2)}, tmp_path / "other.safetensors", metadata)
    with pytest.raises(ValueError, match="another program") as caught:
        load_checkpoint(tmp_path / "other.safetensors")
    assert "\n" not in str(caught.value)


def test_a_newer_format_is_refused(tmp_path):
    metadata = {"format": str(FORMAT + 1), "header": "{}"}
    save_file({"weight": torch.ones(2)}, tmp_path / "new.safetensors", metadata)
    with pytest.raises(ValueError, match="update seq2seq") as caught:
        load_checkpoint(tmp_path / "new.safetensors")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["missing.safetensors", "."])
def test_a_missing_file_is_refused(tmp_path, name):
    with pytest.raises(FileNotFoundError, match="checkpoint=") as caught:
        load_checkpoint(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_the_file_is_what_safetensors_says_it_is(path):
    """Eight bytes of length, then JSON: anybody's reader can read it."""
    save_checkpoint(path, TENSORS, HEADER)
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert content[8:9] == b"{"
    assert content[8 : 8 + length].rstrip().endswith(b"}")
