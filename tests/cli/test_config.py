"""What cannot be is refused in one line, before anything is read or written."""

import importlib.util
import json
import re
import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, run_script
from hydra import compose, initialize_config_dir
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.cli import command as command_line
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


@pytest.fixture(scope="session")
def scripts():
    """The scripts as modules, to call without a new process for each."""
    modules = {}
    for name in COMMANDS:
        spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / f"scripts/{name}.py")
        modules[name] = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = modules[name]
        spec.loader.exec_module(modules[name])
    return modules


@pytest.fixture
def start(scripts, tmp_path, monkeypatch, capsys):
    """Run a command line in an empty folder: exit status, stdout and stderr. Never trains."""

    def no_run(**settings):
        def started(*arguments, **named):
            raise AssertionError("went to work")

        return started

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command_line.hydra, "main", no_run)
    # The command sets it, so that it is set back behind it.
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")

    def call(line):
        name, *arguments = shlex.split(line)
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
        try:
            scripts[name].main()
            status = 0
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return call


# The command line, and what its error must name.
REFUSED = [
    # no such setting
    ("train optim.learing_rate=1", "optim.learning_rate"),
    ("train learning_rate=1", "optim.learning_rate"),
    ("train +modle.hidden=4", "modle.hidden"),
    ("train ++typo=1", "typo"),
    ("train +model.typo=1", "model.typo"),
    ("train hydra.typo=1", "typo"),
    ("evaluate data=sample", "data"),
    ("prepare trainer.max_steps=3", "trainer.max_steps"),
    # wrong types
    ("train model.dropout=abc", "model.dropout"),
    ("train trainer.max_steps=1.5", "trainer.max_steps"),
    ("train trainer.sentences=[a]", "trainer.sentences"),
    ("train trainer.sentences=3", "trainer.sentences"),
    ("train seed=null", "seed"),
    ("train seed=true", "seed"),
    ("train model.attention=additive", "model.attention"),
    # impossible values
    ("train model.dropout=1.5", "model.dropout=1.5"),
    ("train model.dropout=nan", "model.dropout=nan"),
    ("train decoding.beam_size=0", "decoding.beam_size=0"),
    ("train data.max_tokens=-3", "data.max_tokens=-3"),
    ("train model.cell=rnn", "gru, lstm"),
    ("train trainer.select=accuracy", "bleu, chrf, loss"),
    ("train trainer.sentences=[0]", "trainer.sentences"),
    ("train optim.betas=[0.9]", "optim.betas"),
    ("train optim.betas=[2,0.9]", "optim.betas"),
    ("train model.tie_embeddings=all model.output.size=7", "model.tie_embeddings"),
    ("train trainer.max_epochs=null", "trainer.max_steps"),
    ("train trainer.batch_sentences=null", "trainer.batch_tokens"),
    ("train model/attention=dot model.decoder_size=8", "model.decoder_size=8"),
    ("train model/attention=multi_head model.attention.heads=3", "model.attention.heads=3"),
    ("train model/attention=local_p model.attention.heads=2", "mode=local_p"),
    ("train model/attention=location model.attention.coverage=true", "coverage"),
    ("train model/attention=hard model.attention.normalization=sparsemax", "sparsemax"),
    ("train model.attention.temperature=0", "model.attention.temperature=0"),
    ("compare_attention lines=[0]", "lines=[0]"),
    ("compare_lengths edges=[5,5]", "edges=[5, 5]"),
    # of several jobs one that cannot be, the last of all
    ("train --multirun model.dropout=0.1,0.2,1.5", "model.dropout=1.5"),
    ("train --multirun model=small,huge", "huge"),
    ("compare_attention model/attention=additive,dot model.decoder_size=64,128", "decoder_size=64"),
    ("evaluate split=train checkpoint=x", "split=train"),
    ("translate checkpoint=x num_best=9", "num_best=9"),
    ("train trainer.keep_last=0", "trainer.keep_last=0"),
    ("train trainer.keep_best=0", "trainer.keep_best=0"),
    ("benchmark parts=[]", "parts=[]"),
    ("benchmark parts=[memory]", "parts=['memory']"),
    ("benchmark lengths=[]", "lengths=[]"),
    ("benchmark large_pairs=5 small_pairs=5", "large_pairs=5"),
    ("average output=x", "checkpoints=[]"),
    ("average output=x run=y 'checkpoints=[a,b]'", "run=y"),
    ("average output=x run=y last=0", "last=0"),
    ("average 'checkpoints=[a,b]'", "output"),
    ("reproduce", "run is missing"),
    ("reproduce run=x threads=0", "threads=0"),
    ("reproduce run=x device=tpu", "device=tpu"),
    ("reproduce run=x trainer.max_steps=3", "trainer.max_steps"),
    # unknown choices
    ("train model=huge", "model=huge"),
    ("train experiment=mutli30k", "multi30k"),
    ("train model/attention=dto", "did you mean 'dot'"),
    ("train optim=sgd", "adadelta"),
    ("train model=null", "model=null"),
    ("train experiment=null", "experiment=null"),
    ("train data=[]", "sample"),
    # what is missing
    ("train data=files", "data.source_language"),
    ("train data=tsv data.source_language=a data.target_language=b", "data."),
    ("train resume=nowhere", "resume=nowhere"),
    ("evaluate", "checkpoint"),
    ("plot_alignment checkpoint=x", "source"),
    # malformed
    ("train model.dropout", "model.dropout"),
    ("train a,b", "a,b"),
    ("train =3", "=3"),
    ("train data.root=[", "data.root"),
    ("train 'name={'", "name={"),
    ("train data.root=a,b", "data.root"),
    ("train model=small,bahdanau", "model=small,bahdanau"),
    ("train 'name=${nothing}'", "nothing"),
    ("train ~optim", "~optim"),
    ("train ~trainer.max_steps", "trainer.max_steps"),
]


@pytest.mark.parametrize(("line", "named"), REFUSED, ids=[line for line, _ in REFUSED])
def test_what_cannot_be_is_refused_in_one_line(start, tmp_path, line, named):
    status, printed, errors = start(line)
    assert status == 2
    assert printed == ""
    assert errors.startswith("error: ")
    assert errors.endswith("\n")
    assert errors.count("\n") == 1
    assert named in errors
    assert list(tmp_path.iterdir()) == []


def test_what_can_be_goes_to_work(start):
    for line in ("train model=bahdanau optim.schedule.warmup_steps=3", "evaluate checkpoint=x"):
        with pytest.raises(AssertionError, match="went to work"):
            start(line)


@pytest.mark.parametrize(
    "line",
    [
        "train optim.learing_rate=1",
        "evaluate checkpoint=nofile.safetensors",
        "prepare data.root=no",
    ],
)
def test_a_process_that_is_refused_leaves_nothing(tmp_path, line):
    """The whole way, as a user starts it: typos, and what only the work itself can find."""
    name, *arguments = line.split()
    done = run_script(name, *arguments, cwd=tmp_path)
    errors = done.stderr.decode()
    assert done.returncode == 2
    assert done.stdout == b""
    assert re.fullmatch(r"error: [^\n]+\n", errors), errors
    assert arguments[0].partition("=")[2] in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_every_setting_and_every_choice(start, name):
    status, printed, errors = start(f"{name} --help")
    assert (status, errors) == (0, "")
    for key, item in settings(COMMANDS[name]):
        assert re.search(rf"^  {re.escape(key)}=", printed, re.MULTILINE), key
        assert item.metadata["meaning"] in printed
        assert allowed(item) in printed
    if name == "train":
        for group, options in config_groups().items():
            assert f"{group}={'|'.join(options)}" in printed


# --- conf/ ------------------------------------------------------------------------------------


GIVEN = {  # what a user of these files must say
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
def test_every_choice_composes_to_possible_settings(choice):
    own_text = choice.endswith(("=files", "=tsv", "=rnnsearch50"))
    config = composed("train", choice, *(GIVEN["data"] if own_text else []))
    check_values(config)


@pytest.mark.parametrize("path", sorted(CONF.rglob("*.yaml")), ids=lambda p: p.stem)
def test_every_file_gives_settings_that_exist(path):
    """Keys of conf/ that no schema has would be refused only when that file is chosen."""
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


@pytest.mark.parametrize(("name", "key", "item"), EVERY_SETTING)
def test_every_setting_has_a_meaning_and_an_allowed_default(name, key, item):
    assert len(item.metadata["meaning"]) > 3
    if item.metadata["choices"]:
        # That of a list is made anew for each object.
        given = item.default_factory() if callable(item.default_factory) else [item.default]
        assert {*given} <= {MISSING, *item.metadata["choices"]}


LIMITED = [
    (name, key, item)
    for name, key, item in EVERY_SETTING
    if name == "train" and (allowed(item) and not item.metadata["choices"])
]


@pytest.mark.parametrize(("name", "key", "item"), LIMITED, ids=[key for _, key, _ in LIMITED])
def test_bounds_are_kept_to_the_last_number(name, key, item):
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


@pytest.mark.parametrize("kind", COMMANDS.values())
def test_a_config_comes_back_from_its_dictionary(kind):
    config = composed_train() if kind is TrainConfig else kind()
    assert from_dict(kind, json.loads(json.dumps(asdict(config)))) == config


@given(st.floats(0, 0.9), st.integers(1, 99), st.lists(st.integers(1, 9)), st.none() | st.text())
def test_any_values_come_back(dropout, steps, sentences, resume):
    config = replace(composed_train(), resume=resume)
    config.model.dropout = dropout
    config.trainer = TrainerConfig(max_steps=steps, sentences=sentences)
    assert from_dict(TrainConfig, json.loads(json.dumps(asdict(config)))) == config


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


def test_a_resumed_run_keeps_all_but_what_is_given():
    stored = composed_train()
    changed = merge_overrides(
        asdict(stored), ["trainer.max_steps=7", 'data.root="a, b"', "resume=null"], TrainConfig
    )
    assert changed == replace(
        stored,
        trainer=replace(stored.trainer, max_steps=7),
        data=replace(stored.data, root="a, b"),
    )


@pytest.mark.parametrize("override", ["model=small", "optim=adam", "experiment=multi30k"])
def test_a_resumed_run_changes_no_whole_group(override):
    with pytest.raises(UserError, match=override):
        merge_overrides(asdict(composed_train()), [override], TrainConfig)


def test_no_two_runs_share_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    folders = [run_dir(None, "sample") for _ in range(4)]  # within a second, mostly
    assert len(set(folders)) == 4
    assert all((tmp_path / folder).is_dir() for folder in folders)
    # C5: such a name needs no quotes in an override.
    assert all(re.fullmatch(r"[\w./-]+", folder) for folder in folders)


def test_a_resumed_run_stays_in_its_folder_and_leaves_its_first_settings(tmp_path):
    assert run_dir("runs/sample/x", "sample") == "runs/sample/x"
    assert snapshot(None) == snapshot(str(tmp_path / "new")) == ".hydra"
    (tmp_path / ".hydra").mkdir()
    assert snapshot(str(tmp_path)) is None


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
def test_the_nearest_setting_is_suggested(typed_key, meant):
    known = [key for key, _ in settings(TrainConfig)]
    suggestion = did_you_mean(typed_key, known)
    assert suggestion == (f" (did you mean {meant!r}?)" if meant else "")
