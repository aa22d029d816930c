"""docs/attention.md agrees with the code: its snippets run, its commands and pictures exist."""

import doctest
import importlib.util
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from hydra import compose, initialize_config_dir
from matplotlib.image import imread

from seq2seq.attention.scoring import SCORES
from seq2seq.cli.command import _jobs, check_job, register, typed
from seq2seq.cli.help import CONF, config_groups
from seq2seq.cli.overrides import check_overrides
from seq2seq.config.model import AttentionConfig
from seq2seq.config.scripts import CompareConfig, CompareLengthsConfig, PlotAlignmentConfig
from seq2seq.config.training import TrainConfig
from seq2seq.figures.style import figure_image

DOCS = ROOT / "docs"
PAGE = (DOCS / "attention.md").read_text(encoding="utf-8")
SCRIPTS = {
    "train": TrainConfig,
    "compare_attention": CompareConfig,
    "compare_lengths": CompareLengthsConfig,
    "plot_alignment": PlotAlignmentConfig,
}


def blocks(language):
    """The fenced blocks in a language, as (line number, text)."""
    return [
        (PAGE.count("\n", 0, found.start(1)), found[1])
        for found in re.finditer(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    ]


COMMANDS = [
    line for _, text in blocks("sh") for line in text.splitlines() if line.startswith("python ")
]


@pytest.fixture(scope="module")
def drawing():
    spec = importlib.util.spec_from_file_location("draw_attention", DOCS / "draw_attention.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_python_snippets_print_what_the_page_shows():
    """In one namespace and in the order of the page, as a reader would type them."""
    parser, namespace = doctest.DocTestParser(), {}
    runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    output = []
    for line, text in blocks("python"):
        test = parser.get_doctest(text, namespace, "attention.md", "docs/attention.md", line)
        assert test.examples, text
        runner.run(test, out=output.append, clear_globs=False)
        namespace = test.globs
    assert runner.summarize(verbose=False).failed == 0, "".join(output)


def test_formulas_are_those_of_the_docstrings():
    paths = [path for room in ("attention", "evaluation", "model")
             for path in (ROOT / "seq2seq" / room).glob("*.py")]  # fmt: skip
    code = " ".join(" ".join(path.read_text(encoding="utf-8").split()) for path in paths)
    for _, text in blocks("text"):
        for line in text.splitlines():
            assert " ".join(line.split()) in code, line


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_compose(command):
    script, *overrides = shlex.split(command.replace("$RUN", "run"))[1:]
    name = Path(script).stem
    assert (ROOT / script).exists()
    schema = SCRIPTS[name]
    register(name, schema)
    check_overrides(overrides, schema)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        jobs = _jobs(name, overrides, sweeps=name.startswith("compare"))
        for job in (jobs[0], jobs[-1]):
            check_job(typed(compose(name, job), schema))


def test_every_attention_is_explained():
    options = {f"model/attention={option}" for option in config_groups()["model/attention"]}
    assert options == set(re.findall(r"`(model/attention=\w+)`", PAGE))


def test_table_of_parameters_is_right():
    sizes = {"H": 6, "C": 6, "A": 5, "P": 9}
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)?) \| `([^`]+)` \| (yes|no) \|", PAGE, re.MULTILINE)
    listed = {}
    for names, formula, reads_keys in rows:
        for name in re.findall(r"\w+", names):
            listed[name] = eval(formula, {}, sizes), reads_keys == "yes"
    config = AttentionConfig(size=sizes["A"], max_positions=sizes["P"])
    for name, kind in SCORES.items():
        if kind is None:
            continue
        score = kind.from_config(config, sizes["H"], sizes["C"])
        count = sum(parameter.numel() for parameter in score.parameters())
        assert listed.pop(name) == (count, kind.sees_keys), name
    assert not listed


@pytest.mark.parametrize("path", [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))], ids=str)
def test_links_have_targets(path):
    page = path.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    headings = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    }
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", prose):
        if target.startswith("#"):
            assert target[1:] in headings, target
        else:
            assert (path.parent / target.partition("#")[0]).exists(), target


def test_pictures_are_what_the_code_draws(drawing):
    """Except for the text, which differs between versions of matplotlib."""
    for name, draw in drawing.PICTURES.items():
        path = DOCS / "attention" / name
        assert path.stat().st_size < 100_000
        stored, drawn = imread(path)[..., :3], figure_image(draw()) / 255
        assert drawn.shape[1] < 900
        height, width = np.minimum(stored.shape, drawn.shape)[:2]
        assert np.abs(np.subtract(stored.shape, drawn.shape)).max() <= 8, name
        difference = np.abs(stored[:height, :width] - drawn[:height, :width]).mean()
        assert difference < 0.02, f"{name}: run python docs/draw_attention.py"
