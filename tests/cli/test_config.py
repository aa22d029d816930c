"""Impossible settings are refused in one line, before anything is read or written."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml
from conftest import run_script
from hydra import compose, initialize_config_dir
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.cli.command import merge_overrides, register, typed
from seq2seq.cli.help import CONF, config_groups
from seq2seq.cli.overrides import UserError
from seq2seq.config.data import DataConfig, SplitConfig
from seq2seq.config.registry import did_you_mean
from seq2seq.config.schema import MISSING, allowed, check_values, from_dict, settings
from seq2seq.config.scripts import (
    AverageConfig,
    BenchmarkConfig,
    CompareConfig,
    CompareLengthsConfig,
    EvaluateConfig,
    PlotAlignmentConfig,
    PrepareConfig,
    ReproduceConfig,
    TranslateConfig,
)
from seq2seq.config.training import OptimConfig, TrainConfig, TrainerConfig
from seq2seq.run_folder import run_dir, snapshot

COMMANDS = {
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "translate": TranslateConfig,
    "plot_alignment": PlotAlignmentConfig,
    "prepare": PrepareConfig,
    "average": AverageConfig,
    "reproduce": ReproduceConfig,
    "benchmark": BenchmarkConfig,
    "compare_attention": CompareConfig,
    "compare_lengths": CompareLengthsConfig,
}
EVERY_SETTING = [(name, *found) for name, kind in COMMANDS.items() for found in settings(kind)]


@pytest.mark.guarantee(
    "A wrong command is refused in one line that names the mistake, before anything is written."
)
def test_a_refused_process_prints_one_line_and_writes_no_file(tmp_path):
    done = run_script("evaluate", "checkpoint=nofile.safetensors", cwd=tmp_path)
    errors = done.stderr.decode()
    assert done.returncode == 2
    assert done.stdout == b""
    assert re.fullmatch(r"error: [^\n]+\n", errors), errors
    assert "nofile.safetensors" in errors
    assert list(tmp_path.iterdir()) == []


# --- conf/ ------------------------------------------------------------------------------------


GIVEN = {  # settings that a user of these files must give
    "data": [f"data.{key}=x" for key in ("source_language", "target_language")]
    + [f"data.{part}.{side}=x.tsv" for part in ("train", "valid", "test")
       for side in ("source", "target")],
}  # fmt: skip
CHOICES = [f"{group}={option}" for group, options in config_groups().items() for option in options]


def composed(name, *overrides):
    register(name, COMMANDS[name])
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return typed(compose(name, list(overrides)), COMMANDS[name])


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_composes_to_valid_settings(choice):
    own_text = choice.endswith(("=files", "=tsv", "=rnnsearch50"))
    config = composed("train", choice, *(GIVEN["data"] if own_text else []))
    check_values(config)


@pytest.mark.parametrize("path", sorted(CONF.rglob("*.yaml")), ids=lambda p: p.stem)
def test_every_file_sets_only_known_keys(path):
    """An unknown key in conf/ would be found only when its file is chosen."""
    group = path.parent.relative_to(CONF).as_posix()
    if group.startswith("hydra"):
        return
    prefix = "" if group in (".", "experiment", "training") else group.replace("/", ".") + "."
    kind = COMMANDS.get(path.stem, TrainConfig) if group == "." else TrainConfig
    known = {key for key, _ in settings(kind)}

    def keys(values, prefix):
        for name, value in values.items():
            if isinstance(value, dict):
                yield from keys(value, f"{prefix}{name}.")
            else:
                yield prefix + name

    content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    own = {name: v for name, v in content.items() if name not in ("defaults", "hydra")}
    assert set(keys(own, prefix)) <= known


@pytest.mark.guarantee(
    "Everything a run writes is in its folder, wherever a script is started from."
)
def test_a_bundled_corpus_is_found_from_any_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = composed("train")
    assert (Path(config.data.root) / config.data.train.source).is_file()
    assert Path(config.data.prepared).is_absolute()


def test_an_override_wins_over_an_experiment():
    config = composed("train", "experiment=multi30k", "optim.learning_rate=0.5", "model=small")
    assert config.optim.learning_rate == 0.5
    assert config.model.embedding_size == composed("train").model.embedding_size


# --- schema -----------------------------------------------------------------------------------


@pytest.mark.guarantee(
    "A misspelled setting is refused with the most similar name; --help explains every setting."
)
@pytest.mark.parametrize(("name", "key", "item"), EVERY_SETTING)
def test_every_setting_has_a_meaning_and_an_allowed_default(name, key, item):
    assert len(item.metadata["meaning"]) > 3
    if item.metadata["choices"]:
        # The default of a list is created for each object.
        given = item.default_factory() if callable(item.default_factory) else [item.default]
        assert {*given} <= {MISSING, *item.metadata["choices"]}


LIMITED = [
    (name, key, item)
    for name, key, item in EVERY_SETTING
    if name == "train" and (allowed(item) and not item.metadata["choices"])
]


@pytest.mark.guarantee(
    "A misspelled setting is refused with the most similar name; --help explains every setting."
)
@pytest.mark.parametrize(("name", "key", "item"), LIMITED, ids=[key for _, key, _ in LIMITED])
def test_bounds_are_exact(name, key, item):
    def checked(value):
        config = composed_train()
        owner = config
        *groups, last = key.split(".")
        for group in groups:
            owner = getattr(owner, group)
        setattr(owner, last, value)
        check_values(config)

    limits = item.metadata
    for word, outside in (("at least", -1e-9), ("at most", 1e-9), ("above", 0), ("below", 0)):
        bound = limits[word]
        if bound is not None:
            with pytest.raises(ValueError, match=rf"{re.escape(key)}=.* {word} {bound}"):
                checked(bound + outside)
    with pytest.raises(ValueError, match=re.escape(key)):
        checked(float("nan"))
    if limits["at least"] is not None:
        checked(limits["at least"])


def composed_train():
    """Possible settings, without Hydra."""
    parts = {part: SplitConfig("x", "y") for part in ("train", "valid", "test")}
    data = DataConfig("d", "r", None, "p", "de", "en", **parts)
    return TrainConfig(name="n", data=data, trainer=TrainerConfig(max_steps=1))


@pytest.mark.guarantee(
    "Checkpoints restore all settings; unknown settings and wrong types are refused by name."
)
@pytest.mark.parametrize("kind", COMMANDS.values())
def test_a_config_survives_json(kind):
    config = composed_train() if kind is TrainConfig else kind()
    assert from_dict(kind, json.loads(json.dumps(asdict(config)))) == config


@pytest.mark.guarantee(
    "Checkpoints restore all settings; unknown settings and wrong types are refused by name."
)
@given(st.floats(0, 0.9), st.integers(1, 99), st.lists(st.integers(1, 9)), st.none() | st.text())
def test_any_values_survive_json(dropout, steps, sentences, resume):
    config = replace(composed_train(), resume=resume)
    config.model.dropout = dropout
    config.trainer = TrainerConfig(max_steps=steps, sentences=sentences)
    assert from_dict(TrainConfig, json.loads(json.dumps(asdict(config)))) == config


@pytest.mark.guarantee(
    "Checkpoints restore all settings; unknown settings and wrong types are refused by name."
)
def test_a_checkpoint_with_unknown_settings_is_refused_by_name():
    values = asdict(composed_train())
    values["model"]["heads"] = 8
    with pytest.raises(ValueError, match="heads"):
        from_dict(TrainConfig, values)


def test_defaults_are_not_shared():
    first, second = OptimConfig(), OptimConfig()
    first.betas.append(1)
    assert second.betas != first.betas


# --- overrides of a resumed run, run folders ---------------------------------------------------


@pytest.mark.guarantee("A resumed run keeps every setting except those given again.")
def test_a_resumed_run_keeps_all_settings_except_those_given():
    stored = composed_train()
    changed = merge_overrides(
        asdict(stored), ["trainer.max_steps=7", 'data.root="a, b"', "resume=null"], TrainConfig
    )
    assert changed == replace(
        stored,
        trainer=replace(stored.trainer, max_steps=7),
        data=replace(stored.data, root="a, b"),
    )


@pytest.mark.guarantee("A resumed run keeps every setting except those given again.")
@pytest.mark.parametrize("override", ["model=small", "optim=adam", "experiment=multi30k"])
def test_a_resumed_run_cannot_change_a_whole_group(override):
    with pytest.raises(UserError, match=override):
        merge_overrides(asdict(composed_train()), [override], TrainConfig)


@pytest.mark.guarantee("Every run has its own folder, whose name needs no quotes.")
def test_no_two_runs_share_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    folders = [run_dir(None, "sample") for _ in range(4)]  # within a second, mostly
    assert len(set(folders)) == 4
    assert all((tmp_path / folder).is_dir() for folder in folders)
    # C5: such a name needs no quotes in an override.
    assert all(re.fullmatch(r"[\w./-]+", folder) for folder in folders)


@pytest.mark.guarantee("Every run has its own folder, whose name needs no quotes.")
def test_a_resumed_run_stays_in_its_folder_and_keeps_its_first_settings(tmp_path):
    assert run_dir("runs/sample/x", "sample") == "runs/sample/x"
    assert snapshot(None) == snapshot(str(tmp_path / "new")) == ".hydra"
    (tmp_path / ".hydra").mkdir()
    assert snapshot(str(tmp_path)) is None


@pytest.mark.guarantee(
    "A misspelled setting is refused with the most similar name; --help explains every setting."
)
@pytest.mark.parametrize(
    ("typed_key", "meant"),
    [
        ("optim.learing_rate", "optim.learning_rate"),
        ("beam_size", "decoding.beam_size"),
        ("trainer.max_step", "trainer.max_steps"),
        ("modle.dropout", "model.dropout"),
        ("xyzzy", None),
    ],
)
def test_the_most_similar_setting_is_suggested(typed_key, meant):
    known = [key for key, _ in settings(TrainConfig)]
    suggestion = did_you_mean(typed_key, known)
    assert suggestion == (f" (did you mean {meant!r}?)" if meant else "")
