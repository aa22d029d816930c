"""A checkpoint is restored exactly, replaced atomically, and loaded without executing code."""

import copy
import errno
import json
import os
import pickle
import resource
import signal
import stat
import struct
from dataclasses import asdict

import pytest
import torch
from conftest import small_run
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from seq2seq import checkpoint, files
from seq2seq.checkpoint import (
    FORMAT,
    DamagedCheckpointError,
    link_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from seq2seq.config.training import DecodingConfig
from seq2seq.search.loading import load_translator
from seq2seq.training.state import restore_run

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


RESTORED = pytest.mark.guarantee("A checkpoint restores everything bit for bit.")
ATOMIC = pytest.mark.guarantee(
    "A complete checkpoint exists at every moment of a save, also after a crash."
)
REPORTED = pytest.mark.guarantee(
    "A full disk, an exceeded quota or a read-only folder is reported in one line; the previous "
    "checkpoint stays."
)
DAMAGED = pytest.mark.guarantee(
    "A damaged file is detected; if it is the newest, the run resumes from the previous one and "
    "says so."
)
SAFE = pytest.mark.guarantee(
    "Loading executes no code, and files of other programs or newer formats are refused."
)


@RESTORED
def test_tensors_and_header_are_restored_exactly(path):
    save_checkpoint(path, TENSORS, HEADER)
    loaded = load_checkpoint(path)
    assert same(loaded.tensors, TENSORS)
    assert loaded.header == HEADER
    assert files_in(path.parent) == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644  # others may read it


@RESTORED
@given(plain)
def test_any_json_header_is_restored(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    save_checkpoint(path, {}, {"content": content})
    assert load_checkpoint(path).header == {"content": content}


def test_sections_are_selected_by_whole_prefixes(path):
    save_checkpoint(path, TENSORS | {"modelling.weight": torch.ones(1)}, HEADER)
    loaded = load_checkpoint(path, sections=("model", "rng"))
    assert set(loaded.tensors) == {"model.weight", "model.bias", "rng.torch"}
    assert same(loaded.section("model"), {k: TENSORS[f"model.{k}"] for k in ("weight", "bias")})
    assert loaded.section("optimizer") == {}


def test_tensors_that_share_storage_or_need_gradients_are_saved(path):
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {"a": base, "b": base, "c": base[1:], "d": base.t(), "e": base[:, ::2]}
    save_checkpoint(path, tensors | {"p": torch.nn.Parameter(base)}, {})
    expected = {name: tensor.contiguous() for name, tensor in (tensors | {"p": base}).items()}
    assert same(load_checkpoint(path).tensors, expected)


def fail_with(number):
    """A function that fails with an error of the operating system."""

    def fail(*arguments, **named):
        raise OSError(number, os.strerror(number))

    return fail


def fail_half_way(tensors, filename, metadata):
    with open(filename, "wb") as file:
        file.write(b"half of it")
    fail_with(errno.ENOSPC)()


def interrupt(*arguments):
    raise KeyboardInterrupt


def save_other(path):
    save_checkpoint(path, {"model.weight": torch.zeros(1)}, {})


def link(path):
    link_checkpoint(path, path)


@ATOMIC
@REPORTED
@pytest.mark.parametrize(
    ("write", "module", "name", "failing"),
    [
        (save_other, checkpoint, "save_file", fail_with(errno.ENOSPC)),
        (save_other, checkpoint, "save_file", fail_half_way),
        (save_other, checkpoint, "save_file", interrupt),
        (save_other, files, "_flush", fail_with(errno.ENOSPC)),
        (save_other, files.os, "fsync", fail_with(errno.EDQUOT)),
        (save_other, files.tempfile, "mkstemp", fail_with(errno.EROFS)),
        (link, files.tempfile, "mkstemp", fail_with(errno.EACCES)),
        (link, files.os, "replace", fail_with(errno.EACCES)),
    ],
)
def test_failed_write_keeps_previous_file(path, monkeypatch, write, module, name, failing):
    save_checkpoint(path, TENSORS, HEADER)
    monkeypatch.setattr(module, name, failing)
    with pytest.raises((OSError, KeyboardInterrupt)) as caught:
        write(path)
    if failing is not interrupt:
        assert f"{path} could not be written" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert files_in(path.parent) == [path.name]
    assert same(load_checkpoint(path).tensors, TENSORS)


@REPORTED
def test_file_in_place_of_folder_is_reported(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match=r"file/last\.safetensors could not be written"):
        save_checkpoint(tmp_path / "file" / "last.safetensors", TENSORS, HEADER)


@REPORTED
def test_write_stopped_by_the_system_keeps_previous_file(path):
    """T2: as on a full disk, the system itself ends the write in the middle."""
    save_checkpoint(path, TENSORS, HEADER)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
        with pytest.raises(OSError, match="could not be written"):
            save_checkpoint(path, {"model.weight": torch.zeros(10_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert files_in(path.parent) == [path.name]
    assert same(load_checkpoint(path).tensors, TENSORS)


@ATOMIC
def test_next_write_removes_leftovers_of_a_killed_one(path):
    save_checkpoint(path, TENSORS, HEADER)
    stale = path.with_name(path.name + "abc123.partial")  # as left by kill -9
    stale.write_bytes(b"half of it")
    other = path.with_name("best.safetensorsabc123.partial")
    other.write_bytes(b"belongs to another file")
    save_checkpoint(path, TENSORS, HEADER)
    assert files_in(path.parent) == [other.name, path.name]


@pytest.mark.guarantee("`last` and `best` are real files: a run can be moved or copied.")
def test_link_is_the_same_file(path):
    save_checkpoint(path, TENSORS, HEADER)
    other = path.with_name("best.safetensors")
    for _ in range(2):  # linking again changes nothing
        link_checkpoint(path, other)
        assert other.samefile(path)
        assert not other.is_symlink()  # T11
        assert files_in(path.parent) == [other.name, path.name]
    save_checkpoint(path, {}, {})  # replaces one name; the other name keeps the old file
    assert same(load_checkpoint(other).tensors, TENSORS)


@pytest.mark.guarantee("`last` and `best` are real files: a run can be moved or copied.")
def test_link_is_a_copy_without_hard_links(path, monkeypatch):
    monkeypatch.setattr(checkpoint.os, "link", fail_with(errno.EPERM))
    save_checkpoint(path, TENSORS, HEADER)
    other = path.with_name("best.safetensors")
    link_checkpoint(path, other)
    assert not other.samefile(path)
    assert other.read_bytes() == path.read_bytes()
    assert files_in(path.parent) == [other.name, path.name]


def test_header_that_is_not_json_is_refused_before_writing(path):
    save_checkpoint(path, TENSORS, HEADER)
    with pytest.raises(ValueError, match="JSON"):
        save_checkpoint(path, TENSORS, {"loss": float("nan")})
    assert files_in(path.parent) == [path.name]
    assert load_checkpoint(path).header == HEADER


class Trap:
    """Creates a folder when unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (self.marker,)


@SAFE
@pytest.mark.parametrize("write", [pickle.dump, torch.save], ids=["pickle", "torch"])
def test_pickle_is_refused_and_not_executed(tmp_path, write):
    marker, path = tmp_path / "marker", tmp_path / "foreign.safetensors"
    with path.open("wb") as file:
        write(Trap(str(marker)), file)
    with pytest.raises(ValueError, match="not a safetensors file") as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)
    assert not marker.exists()
    if write is pickle.dump:  # the class works as intended
        pickle.loads(path.read_bytes())
        assert marker.exists()


@DAMAGED
@pytest.mark.parametrize("kept", [0, 4, 8, 50, -1])
def test_truncated_file_is_refused(path, kept):
    save_checkpoint(path, TENSORS, HEADER)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"checkpoint=.*damaged") as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)


@SAFE
@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "another program"),
        ({"format": "pt"}, "another program"),
        ({"format": "1"}, "another program"),
        ({"header": "{}"}, "another program"),
        ({"format": str(FORMAT + 1), "header": "{}"}, "update seq2seq"),
    ],
)
def test_foreign_and_newer_files_are_refused(tmp_path, metadata, message):
    path = tmp_path / "other.safetensors"
    save_file({"weight": torch.ones(2)}, path, metadata)
    with pytest.raises(ValueError, match=message) as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)
    path.write_text("This is not a checkpoint.\n" * 20)
    with pytest.raises(ValueError, match="damaged or not a safetensors"):
        load_checkpoint(path)


@pytest.mark.parametrize("name", ["missing.safetensors", "."])
def test_missing_file_is_refused(tmp_path, name):
    with pytest.raises(FileNotFoundError, match="checkpoint=") as caught:
        load_checkpoint(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_format_1_is_read_without_progress(tmp_path):
    """Format 1 had no digests, and counted the position in the data in another unit."""
    path = tmp_path / "old.safetensors"
    save_file(TENSORS, path, {"format": "1", "header": json.dumps(HEADER)})
    loaded = load_checkpoint(path)
    assert same(loaded.tensors, TENSORS)
    assert loaded.header == {key: HEADER[key] for key in HEADER if key != "progress"}


# --- damaged and hostile files ----------------------------------------------------------------
#
# T8: loading any file gives an equal copy or a one-line error that names it, and executes nothing.


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The checkpoint of a run: its path, and the task to restore it to."""
    path = tmp_path_factory.mktemp("whole") / "last.safetensors"
    task, _ = small_run(path)
    return path, task


def use(path, task):
    """Load, translate and resume; None if the file is refused in one line that names it."""
    try:
        loaded = load_checkpoint(path)
        translator, _ = load_translator(path, DecodingConfig(), torch.device("cpu"))
        progress = restore_run(loaded, task)
    except (ValueError, OSError) as error:
        refusal = str(error)
    else:
        return loaded, translator, progress
    assert str(path) in refusal
    assert "\n" not in refusal
    return None


damages = st.one_of(
    st.tuples(st.just("flip"), st.floats(0, 1, exclude_max=True), st.integers(0, 7)),
    st.tuples(st.just("cut"), st.floats(0, 1, exclude_max=True), st.integers(1, 100)),
    st.tuples(st.just("insert"), st.floats(0, 1), st.binary(min_size=1, max_size=9)),
    st.tuples(st.just("truncate"), st.floats(0, 1), st.none()),
)


def damaged(content, kind, where, what):
    place = int(where * len(content))
    if kind == "flip" and content:
        content = bytearray(content)
        content[place] ^= 1 << what
        return bytes(content)
    if kind in ("flip", "truncate"):
        return content[:place]
    rest = content[place + what :] if kind == "cut" else what + content[place:]
    return content[:place] + rest


@DAMAGED
@given(st.lists(damages, min_size=1, max_size=3), st.booleans())
def test_damaged_bytes_are_refused_or_change_nothing(whole, tmp_path_factory, changes, in_header):
    original, task = whole
    path = tmp_path_factory.getbasetemp() / "bytes.safetensors"
    content = original.read_bytes()
    # Most bytes belong to tensors, but most kinds of damage concern the metadata before them.
    end = 8 + struct.unpack("<Q", content[:8])[0] if in_header else len(content)
    head = content[:end]
    for change in changes:
        head = damaged(head, *change)
    path.write_bytes(head + content[end:])
    if (used := use(path, task)) is not None:
        true = load_checkpoint(original)
        assert same(used[0].tensors, true.tensors)
        assert used[0].header == true.header


@DAMAGED
@pytest.mark.parametrize("place", [0.0, 0.3, 0.7, 0.999])
def test_flipped_bit_of_a_tensor_is_detected(whole, tmp_path, place):
    """Any 32 bits are a valid number, so only the digest reveals it."""
    content = bytearray(whole[0].read_bytes())
    start = 8 + struct.unpack("<Q", content[:8])[0]
    content[start + int(place * (len(content) - start))] ^= 4
    path = tmp_path / "flipped.safetensors"
    path.write_bytes(content)
    with pytest.raises(DamagedCheckpointError, match=r"its tensor '.*' has changed since"):
        load_checkpoint(path)


def test_only_the_tensors_that_are_read_are_checked(whole, tmp_path):
    """Translation does not need the optimizer, nor the time to check it."""
    metadata = describe(whole[0])
    tensors = load_file(whole[0])
    tensors["optimizer.0.exp_avg"] += 1
    path = tmp_path / "part.safetensors"
    save_file(tensors, path, metadata)
    load_checkpoint(path, sections=("model", "tokenizer"))
    with pytest.raises(DamagedCheckpointError, match=r"'optimizer\.0\.exp_avg'"):
        load_checkpoint(path)


def describe(path):
    with checkpoint.safe_open(path, framework="pt") as file:
        return file.metadata()


def write_sealed(path, tensors, header):
    """Write a file with valid digests and any header, as an attacker could."""
    digests = {name: checkpoint._digest(name, tensor) for name, tensor in tensors.items()}
    texts = {"header": header, "digests": json.dumps(digests)}
    metadata = {"format": str(FORMAT), **texts, "sha256": checkpoint._seal(texts)}
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, path, metadata)


def paths_in(value, path=()):
    """Yield the paths of all entries of a JSON object; of lists, only the first entry."""
    for key in value if isinstance(value, dict) else range(min(len(value), 1)):
        yield (*path, key)
        if isinstance(value[key], dict | list):
            yield from paths_in(value[key], (*path, key))


ODD = [
    *(None, True, -1, 0, 2, 10**9, 10**30, 10**400, 0.5, -1e308),
    *("", "x\n", "\ud800", "/etc", "lstm", "paper"),
    *([], [[1]], {}, {"a\nb": 1}, ["x"] * 7, ["<pad>", "<unk>", "<s>", "</s>", "a", "b", "d"]),
]


@SAFE
@settings(max_examples=30)
@given(st.data())
def test_changed_header_is_refused_or_used_as_it_is(whole, tmp_path_factory, data):
    original, task = whole
    true = load_checkpoint(original)
    header = copy.deepcopy(true.header)
    for _ in range(data.draw(st.integers(1, 2))):
        *groups, last = data.draw(st.sampled_from(list(paths_in(header))))
        owner = header
        for group in groups:
            owner = owner[group]
        if data.draw(st.booleans()):
            owner[last] = data.draw(st.sampled_from(ODD))
        else:
            del owner[last]
    path = tmp_path_factory.getbasetemp() / "header.safetensors"
    write_sealed(path, true.tensors, json.dumps(header))
    if (used := use(path, task)) is not None:
        assert used[0].header == header
        assert asdict(used[2]).items() >= header["progress"].items()
        assert used[1].source.vocabulary.token_list == header["sides"]["source"]["vocabulary"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "[" * 200_000, '{"a":' * 100_000, '{"a": NaN}', '{"a": -Infinity}',
     '{"a": 1e999}', '{"a": ' + "9" * 5000 + "}", "null", "{}", '"config"'],
    ids=lambda text: text[:12] or "empty",
)  # fmt: skip
def test_header_without_a_run_is_refused(whole, tmp_path, text):
    path = tmp_path / "header.safetensors"
    write_sealed(path, load_checkpoint(whole[0]).tensors, text)
    assert use(path, *whole[1:]) is None


@SAFE
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("config.model", {"encoder_size": 10**6}),  # terabytes
        ("config.model", {"decoder_size": 10**9, "initialization": "paper"}),
        ("config.model.embedding_size", 10**18),
        ("config.model.decoder_size", 10**30),
        ("config.model.encoder_layers", 10**9),  # an endless loop
        ("config.model.attention.heads", 10**9),
        ("config.model.dropout", 1.5),
        ("config.model.cell", "lstm"),
        ("config.model.cell", "rnn"),
        ("config.model.embedding_size", "3"),
        ("config.model.embedding_size", True),
        ("sides.source.tokenizer.name", "pickle"),
        ("sides.source.tokenizer.name", "sentencepiece"),
        ("sides.target.tokenizer.language", "/tmp/of_the_attacker"),
        ("sides.source.vocabulary", [1, 2, 3]),
        ("sides.source.vocabulary", ["<pad>", "<unk>", "<s>", "</s>", "a", "a", "b"]),
        ("random.numpy", [10**9, 0, 0.0]),  # NumPy would read beyond the array
        ("random.numpy", [-1, 0, 0.0]),
        ("random.python", [3, [2**40] * 625, None]),
        ("random.python", [3, [0] * 625, "x"]),
        ("random.python", None),
        ("progress.step", 1.5),
        ("progress.ranking", [[1, 2, 3]]),
        ("progress.unknown", 1),
        ("progress", []),
    ],
)
def test_costly_or_invalid_settings_are_refused_before_use(whole, tmp_path, key, value):
    loaded = load_checkpoint(whole[0])
    *groups, last = key.split(".")
    owner = loaded.header
    for group in groups:
        owner = owner[group]
    owner[last] = value
    path = tmp_path / "hostile.safetensors"
    write_sealed(path, loaded.tensors, json.dumps(loaded.header))
    assert use(path, *whole[1:]) is None


@given(st.data())
def test_changed_tensors_are_refused(whole, tmp_path_factory, data):
    original, task = whole
    true = load_checkpoint(original)
    tensors = dict(true.tensors)
    name = data.draw(st.sampled_from(sorted(tensors)))
    kind = data.draw(st.sampled_from(["drop", "rename", "type", "shape", "more", "move"]))
    if kind == "drop":
        del tensors[name]
    elif kind == "rename":
        tensors[name + "x"] = tensors.pop(name)
    elif kind == "more":
        tensors["model.another"] = torch.ones(1)
    elif kind == "type":
        types = [torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64]
        tensors[name] = tensors[name].to(data.draw(st.sampled_from(types)))
    elif kind == "shape":
        tensors[name] = data.draw(
            st.sampled_from([tensors[name].unsqueeze(0), torch.zeros(0), torch.zeros(2, 2)])
        ).to(tensors[name].dtype)
    else:
        tensors["optimizer.99.exp_avg"] = tensors["optimizer.0.exp_avg"]
    path = tmp_path_factory.getbasetemp() / "tensors.safetensors"
    write_sealed(path, tensors, json.dumps(true.header))
    used = use(path, task)
    if used is not None:  # equal values; the state of NumPy may have another integer type
        assert same(used[0].tensors, tensors)
        assert same(tensors, true.tensors) or name == "rng.numpy"
