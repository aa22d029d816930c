"""Plug-ins and the registries that they add to; settings that were renamed."""

import json
import sys
from dataclasses import asdict

import pytest
from test_commands import places, start  # noqa: F401  (fixtures)

from seq2seq.cli.registries import registries
from seq2seq.config.plugins import import_plugins, require_plugins
from seq2seq.config.registry import Registry
from seq2seq.config.renamed import RENAMED, upgrade, upgrade_progress
from seq2seq.config.schema import settings
from seq2seq.config.training import TrainConfig
from seq2seq.training.progress import Progress

PLUGIN = """
from seq2seq.attention.scoring import SCORES, DotScore
from seq2seq.evaluation.metrics import METRICS, Metric

class DoubleDotScore(DotScore):
    def energies(self, query, keys):
        return 2 * super().energies(query, keys)

def mean_words(evaluated):
    return sum(len(text.split()) for text in evaluated.hypotheses) / len(evaluated.hypotheses)

SCORES.register("double_dot", DoubleDotScore)
METRICS.register("words", Metric("words", "words", 1, True, mean_words))
"""
CHOICES = "model.attention.name=double_dot trainer.select=words"


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Yield the name of a plug-in in the current folder; remove all traces of it afterward."""
    for registry in registries().values():
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "double").mkdir()
    (tmp_path / "double" / "__init__.py").write_text(PLUGIN)
    yield "double"
    sys.modules.pop("double", None)


@pytest.mark.guarantee(
    "A checkpoint never imports the plug-ins it names; it is refused until plugins= gives them."
)
def test_a_plugin_is_used_in_training_evaluation_and_help(start, plugin, tmp_path):  # noqa: F811
    status, _, errors = start(f"train {{train}} plugins=[{plugin}] {CHOICES} trainer.max_steps=3")
    assert status == 0, errors
    (best,) = tmp_path.glob("runs/files/*/checkpoints/best.safetensors")
    status, printed, errors = start(f"evaluate checkpoint={best} plugins=[{plugin}]")
    assert status == 0, errors
    assert json.loads(printed)["words"] >= 0
    _, printed, _ = start(f"train plugins=[{plugin}] --help")
    assert "none, double_dot" in printed
    # Without plugins= its code does not run, whatever the checkpoint says.
    del sys.modules[plugin]
    run = best.parents[1]
    for line in (f"evaluate checkpoint={best}", f"train resume={run}", f"reproduce run={run}"):
        status, _, errors = start(line)
        assert (status, errors.count("\n")) == (2, 1)
        assert errors.startswith(f"error: {line.split()[1]} was trained with plug-ins")
        assert f"give 'plugins=[{plugin}]'" in errors
        assert plugin not in sys.modules


def test_a_choice_of_a_plugin_needs_the_plugin(start, plugin):  # noqa: F811
    status, _, errors = start("train model.attention.name=double_dot")
    assert status == 2
    assert "model.attention.name=double_dot is unknown" in errors


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "ModuleNotFoundError: No module named 'broken'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        (
            "from seq2seq.attention.scoring import SCORES; SCORES.register('dot', object)",
            "model.attention.name=dot is already registered",
        ),
    ],
)
def test_a_plugin_that_cannot_be_imported_is_named(tmp_path, monkeypatch, content, reason):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    if content is not None:
        (tmp_path / "broken.py").write_text(content)
    with pytest.raises(ValueError, match=r"^plugins=\[broken\]: ") as caught:
        import_plugins(["broken"])
    assert reason in str(caught.value)


@pytest.mark.guarantee(
    "A checkpoint never imports the plug-ins it names; it is refused until plugins= gives them."
)
def test_stored_plugins_must_have_been_imported():
    require_plugins(["json", "sys"], "checkpoint=x")
    with pytest.raises(ValueError, match=r"checkpoint=x .* 'plugins=\[json,no_such\]'"):
        require_plugins(["json", "no_such"], "checkpoint=x")
    assert "no_such" not in sys.modules


def test_a_registry_keeps_order_and_refuses_unknown_and_duplicate_names():
    registry = Registry("group.name", {"soft": 1, "hard": 2})
    registry.register("local", 3)
    registry.register("local", 3)
    assert list(registry) == ["soft", "hard", "local"]
    assert registry.get_entry("local") == registry["local"] == 3
    with pytest.raises(ValueError, match=r"group.name=soft is already registered"):
        registry.register("soft", 9)
    with pytest.raises(
        ValueError,
        match=r"^group.name=sof is unknown \(did you mean 'soft'\?\); choose one of soft, hard, "
        r"local\.$",
    ):
        registry.get_entry("sof")


def test_every_registry_belongs_to_a_setting():
    assert set(registries()) <= {key for key, _ in settings(TrainConfig)}


@pytest.mark.guarantee(
    "Old setting names are read from checkpoints; the command line asks for the new ones."
)
def test_stored_configurations_get_the_current_names():
    old = {"model": {"attention": {"weighing": "hard", "size": 3}, "initialisation": "paper"}}
    new = {"model": {"attention": {"mode": "hard", "size": 3}, "initialization": "paper"}}
    assert upgrade(old) == upgrade(new) == new
    assert upgrade([1]) == [1]  # a damaged file


def test_a_run_of_an_earlier_version_resumes_with_its_progress():
    old = {"step": 7, "tokens": 5, "nonsense": 2, "interval_nll": 1.5, "interval_tokens": 3}
    new = Progress(step=7, items=5, consecutive_skips=2, interval_losses=[1.5], interval_items=3)
    assert Progress(**upgrade_progress(old)) == new
    assert upgrade_progress(asdict(new)) == asdict(new)
    assert upgrade_progress([1]) == [1]  # a damaged file


@pytest.mark.guarantee(
    "Old setting names are read from checkpoints; the command line asks for the new ones."
)
@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_name_is_refused_with_the_new_one(start, old, new):  # noqa: F811
    known = {key for key, _ in settings(TrainConfig)}
    assert new in known
    assert old not in known
    assert start(f"train {old}=x") == (
        2,
        "",
        f"error: {old}=x: the setting {old} is now called {new}.\n",
    )
