"""The public Python API: names, lazy imports, and the snippets of the pages that show them."""

import re
import shutil
import subprocess
import sys

import pytest
import torch
from conftest import ROOT
from matplotlib.figure import Figure

import seq2seq
from seq2seq.attention.distribution import MODES
from seq2seq.attention.scoring import SCORES
from seq2seq.config.model import AttentionConfig, ModelConfig
from seq2seq.data.tokenizer import TOKENIZERS, build_tokenizer
from seq2seq.evaluation.metrics import METRICS, Evaluated, evaluate_metrics
from seq2seq.model.build import build_model
from seq2seq.model.cells import CELLS


def python_blocks(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def registries(monkeypatch):
    """Remove everything that a test registers."""
    for registry in (SCORES, MODES, CELLS, TOKENIZERS, METRICS):
        monkeypatch.setattr(registry, "_entries", dict(registry))


@pytest.fixture
def checkpoint(trained):
    return trained[0] / "checkpoints" / "best.safetensors"


@pytest.mark.guarantee("`import seq2seq` is immediate: libraries are imported on first use.")
def test_import_loads_no_library():
    program = (
        "import sys, seq2seq; names = dir(seq2seq); heavy = {'torch', 'numpy', 'matplotlib'};"
        "assert not heavy & set(sys.modules); assert set(seq2seq.__all__) <= set(names);"
        "seq2seq.masked_softmax; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_every_public_name_exists_and_has_a_docstring():
    for name in seq2seq.__all__:
        assert getattr(seq2seq, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        seq2seq.lode  # noqa: B018


def test_run_folder_stands_for_its_best_checkpoint(trained, checkpoint):
    sentences = ["Das Kind schläft.", ""]
    from_folder, from_file = (
        [translation.text for translation in seq2seq.load(path, device="cpu").translate(sentences)]
        for path in (trained[0], str(checkpoint))
    )
    assert from_folder == from_file
    assert from_folder[1] == ""


def test_decoding_settings_are_arguments(checkpoint):
    assert seq2seq.load(checkpoint, beam_size=1).config.beam_size == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beam_sizes": 1}, r"no setting decoding\.beam_sizes \(did you mean 'beam_size'\?\)"),
        ({"beam_size": 0}, r"decoding\.beam_size=0 must be at least 1"),
        ({"beam_size": "5"}, r"decoding\.beam_size='5' must be of type int"),
        ({"device": "gpu"}, "device=gpu"),
        ({"plugins": ["no_such_module"]}, "no_such_module"),
    ],
)
def test_wrong_arguments_are_refused_by_name(checkpoint, arguments, message):
    with pytest.raises(ValueError, match=message):
        seq2seq.load(checkpoint, **arguments)


@pytest.mark.guarantee("The commands in the documentation work.")
@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_snippets_run_in_order(page, trained, tmp_path, monkeypatch, registries):
    """Blocks that begin with a file name are written to that file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    shutil.copytree(trained[0], "runs/my_run")
    variables = {}
    for block in python_blocks(page):
        if found := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / found[1]).write_text(block, encoding="utf-8")
        else:
            exec(compile(block, page, "exec"), variables)
    assert isinstance(variables["figure"], Figure)
    if page == "docs/python.md":
        assert (tmp_path / "alignment.png").stat().st_size > 0
        good = variables["good"]
        assert good.alignment.shape == (len(good.tokens), len(good.source_tokens))
        assert good.text == "The child sleeps."
        config = AttentionConfig(name="negative_distance")
        score = SCORES.get_entry("negative_distance").from_config(config, 3, 3)
        energies = score(torch.tensor([[1.0, 2.0, 3.0]]), torch.zeros(1, 2, 3))
        assert energies.tolist() == [[-6, -6]]
        del sys.modules["my_attention"]


def test_examples_of_contributing_register_what_they_define(registries):
    variables = {}
    for block in python_blocks("CONTRIBUTING.md"):
        exec(compile(block, "CONTRIBUTING.md", "exec"), variables)
    attention = AttentionConfig(name="manhattan", mode="tempered", size=3)
    config = ModelConfig(
        cell="minimal_gated",
        embedding_size=3,
        encoder_size=3,
        decoder_size=6,
        attention=attention,
    )
    model = build_model(config, 8, 8)
    source = torch.tensor([[4, 5, 6]])
    assert model.features(source, torch.ones(1, 3, dtype=torch.bool), source).isfinite().all()
    tokenizer = build_tokenizer("character_pairs", "en")
    assert tokenizer.detokenize(tokenizer.tokenize("a small test")) == "a small test"
    evaluated = Evaluated(["a b", "c"], ["a b", "d"], log_prob=-1.0, target_tokens=5)
    assert evaluate_metrics(evaluated)["exact"] == 50


def test_contributing_lists_the_allowed_imports():
    from test_layout import MAY_IMPORT

    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \| [^|]+ \|([^|]*)\|$", text, re.MULTILINE)
    listed = {room: set(re.findall(r"`(\w+)`", names)) for room, names in rows}
    everything = {room for room, names in rows if "everything except" in names}
    for room in everything:
        listed[room] = set(MAY_IMPORT) - listed[room] - {room}
    assert listed == {room: allowed - {room} for room, allowed in MAY_IMPORT.items()}
