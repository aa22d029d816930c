"""Averages of checkpoints: exact means that translate, but cannot be resumed."""

import json
import shutil
from fractions import Fraction

import pytest
import torch
from conftest import call_script, small_run
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.checkpoint import load_checkpoint, save_checkpoint
from seq2seq.config.training import DecodingConfig
from seq2seq.run_folder import RunFolder
from seq2seq.runs.averaging import average_checkpoints, newest_steps
from seq2seq.search.loading import load_translator
from seq2seq.training.state import restore_run


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Checkpoints of one model with other parameters."""
    folder = tmp_path_factory.mktemp("pair")
    for seed in (1, 2):
        small_run(folder / f"{seed}.safetensors", step=10 * seed, seed=seed)
    return folder / "1.safetensors", folder / "2.safetensors"


def parameters(path):
    return load_checkpoint(path).section("model")


def bits(tensors):
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def with_parameters(path, example, values, dtype=torch.float32):
    """A copy of a checkpoint whose parameters are these values, over and over."""
    loaded = load_checkpoint(example)
    tensors = {
        name: torch.tensor((values * tensor.numel())[: tensor.numel()], dtype=dtype).reshape(
            tensor.shape
        )
        for name, tensor in loaded.tensors.items()
        if name.startswith("model.")
    }
    save_checkpoint(path, loaded.tensors | tensors, loaded.header)
    return path


def test_average_is_the_mean_of_all_parameters(pair, tmp_path):
    average_checkpoints(pair, tmp_path / "a.safetensors")
    one, two = map(parameters, pair)
    for name, tensor in parameters(tmp_path / "a.safetensors").items():
        assert torch.equal(tensor, ((one[name].double() + two[name].double()) / 2).float())
        assert not torch.equal(one[name], two[name]) or "bias" in name


floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.mark.guarantee(
    "Averaging takes the mean of checkpoints of one model, and never overwrites a file."
)
@given(st.lists(floats, min_size=1, max_size=6))
def test_the_mean_is_exact_up_to_rounding(pair, tmp_path_factory, values):
    """Compare with exact arithmetic: the result is the nearest number of its type, except for the
    rounding of the sum, which is 2**-29 of the last digit."""
    folder = tmp_path_factory.mktemp("exact")
    paths = [
        with_parameters(folder / f"{number}.safetensors", pair[0], [value])
        for number, value in enumerate(values)
    ]
    average_checkpoints(paths, folder / "a.safetensors")
    found = parameters(folder / "a.safetensors")["encoder.embedding.weight"].flatten()[0]
    exact = sum(map(Fraction, values)) / len(values)
    error = abs(Fraction(found.item()) - exact)
    above, below = (torch.nextafter(found, torch.tensor(end)) for end in (torch.inf, -torch.inf))
    unit = max(Fraction(a.item()) for a in (above - found, found - below) if a.isfinite())
    # What float64 rounds away of a sum is relative to its largest term, not to the sum.
    largest = max(abs(Fraction(value)) for value in values)
    assert error <= unit / 2 + len(values) * largest / 2**52


@given(st.lists(floats, min_size=1, max_size=12), st.integers(1, 7))
def test_average_of_copies_of_a_checkpoint_equals_it(pair, tmp_path_factory, values, times):
    folder = tmp_path_factory.mktemp("same")
    path = with_parameters(folder / "one.safetensors", pair[0], values)
    average_checkpoints([path] * times, folder / "a.safetensors")
    assert bits(parameters(folder / "a.safetensors")) == bits(parameters(path))


def test_half_precision_is_summed_without_overflow_and_kept(pair, tmp_path):
    """65504 + 65504 is infinite in float16."""
    paths = [
        with_parameters(tmp_path / f"{name}.safetensors", pair[0], [65504.0], torch.float16)
        for name in "bc"
    ]
    average_checkpoints(paths, tmp_path / "a.safetensors")
    for tensor in parameters(tmp_path / "a.safetensors").values():
        assert tensor.dtype == torch.float16
        assert (tensor == 65504).all()


def test_the_header_names_the_original_checkpoints(pair, tmp_path):
    average_checkpoints(pair, tmp_path / "a.safetensors")
    loaded = load_checkpoint(tmp_path / "a.safetensors")
    origins = loaded.header["averaged"]
    assert [origin["file"] for origin in origins] == [str(path) for path in pair]
    assert [origin["step"] for origin in origins] == [10, 20]
    assert len({origin["sha256"] for origin in origins}) == 2
    assert {name.split(".")[0] for name in loaded.tensors} == {"model"}


def test_an_average_translates_but_cannot_be_resumed(pair, tmp_path):
    path = tmp_path / "a.safetensors"
    average_checkpoints(pair, path)
    translator, _ = load_translator(path, DecodingConfig(beam_size=1), torch.device("cpu"))
    assert len(translator.translate(["a b", ""])) == 2
    average_checkpoints([path, path], tmp_path / "again.safetensors")
    assert bits(parameters(tmp_path / "again.safetensors")) == bits(parameters(path))
    task, _ = small_run(tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match=r"evaluate\.py and translate\.py only") as caught:
        restore_run(load_checkpoint(path), task)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.guarantee(
    "Averaging takes the mean of checkpoints of one model, and never overwrites a file."
)
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"encoder_size": 4}, "model.encoder_size: 3 -> 4"),
        ({"cell": "lstm"}, "model.cell: gru -> lstm"),
    ],
)
def test_another_model_is_refused(pair, tmp_path, settings, named):
    small_run(tmp_path / "other.safetensors", **settings)
    check_refused([pair[0], tmp_path / "other.safetensors"], tmp_path, named)


def check_refused(paths, tmp_path, named):
    with pytest.raises(ValueError, match="cannot be averaged with") as caught:
        average_checkpoints(paths, tmp_path / "a.safetensors")
    message = str(caught.value)
    assert "\n" not in message
    assert all(part in message for part in (*map(str, paths), named))
    assert not (tmp_path / "a.safetensors").exists()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("vocabulary", ["<pad>", "<unk>", "<s>", "</s>", "c", "b", "a"]),  # D9: another order
        ("tokenizer", {"name": "moses", "language": "en", "lowercase": False}),
    ],
)
def test_another_vocabulary_or_tokenizer_is_refused(pair, tmp_path, kind, value):
    """D9: with equal sizes and another order, the output would be fluent but wrong."""
    loaded = load_checkpoint(pair[1])
    loaded.header["sides"]["source"][kind] = value
    save_checkpoint(tmp_path / "other.safetensors", loaded.tensors, loaded.header)
    check_refused(
        [pair[0], tmp_path / "other.safetensors"], tmp_path, "another tokenizer or vocabulary"
    )


def test_other_subwords_are_refused(pair, tmp_path):
    for name, content in (("one", [1, 2]), ("two", [1, 3])):
        loaded = load_checkpoint(pair[0])
        model = {"tokenizer.source": torch.tensor(content, dtype=torch.uint8)}
        save_checkpoint(tmp_path / f"{name}.safetensors", loaded.tensors | model, loaded.header)
    check_refused(
        [tmp_path / "one.safetensors", tmp_path / "two.safetensors"], tmp_path, "another tokenizer"
    )


@pytest.mark.guarantee(
    "Averaging takes the mean of checkpoints of one model, and never overwrites a file."
)
def test_an_existing_output_is_not_overwritten(pair, tmp_path):
    """The output might be the file that a run resumes from."""
    before = pair[0].read_bytes()
    with pytest.raises(ValueError, match="already exists"):
        average_checkpoints(pair, pair[0])
    assert pair[0].read_bytes() == before


def test_the_newest_checkpoints_of_a_run_are_averaged(pair, tmp_path):
    folder = RunFolder(tmp_path)
    folder.checkpoint("last").parent.mkdir()
    for step in (5, 9, 10, 200):
        shutil.copy(pair[0], folder.step_checkpoint(step))
    assert newest_steps(folder, 3) == [folder.step_checkpoint(step) for step in (200, 10, 9)]
    with pytest.raises(ValueError, match=r"has 4 .* fewer than last=5; .*trainer\.keep_last=5"):
        newest_steps(folder, 5)


def test_the_script_writes_a_checkpoint_that_evaluate_reads(pair, tmp_path):
    shutil.copy(pair[0], tmp_path / "a.safetensors")
    shutil.copy(pair[1], tmp_path / "b.safetensors")
    done = call_script(
        "average", "checkpoints=[a.safetensors,b.safetensors]", "output=c.safetensors", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b""
    assert sorted(path.name[0] for path in tmp_path.iterdir()) == ["a", "b", "c"]
    (tmp_path / "x").write_text("a b\nc\n")
    done = call_script(
        "evaluate", "checkpoint=c.safetensors", "source=x", "target=x", "output=o", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["sentences"] == 2
