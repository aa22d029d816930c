"""A manifest records everything that determines a run, which can be repeated and compared."""

import json
import shutil
import signal
import subprocess
from dataclasses import asdict, replace

import pytest
import torch
from conftest import call_script, torch_threads

from seq2seq.checkpoint import load_checkpoint, save_checkpoint
from seq2seq.config.data import DataConfig, SplitConfig, TokenizerConfig
from seq2seq.config.model import AttentionConfig, ModelConfig, OutputConfig
from seq2seq.config.scripts import ReproduceConfig
from seq2seq.config.training import (
    DecodingConfig,
    OptimConfig,
    ScheduleConfig,
    TrainConfig,
    TrainerConfig,
)
from seq2seq.run_folder import RunFolder
from seq2seq.runs import manifest as manifest_module
from seq2seq.runs.manifest import describe_code, read_manifest
from seq2seq.runs.reproduction import compare_runs, train_again
from seq2seq.runs.run import Run
from seq2seq.signals import Interrupted
from seq2seq.tasks import translation
from seq2seq.tasks.translation import TranslationTask
from seq2seq.training.checkpoints import newest_checkpoint
from seq2seq.training.trainer import Trainer

WORDS = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht"]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A tiny model, trained 6 steps on text of its own."""
    folder = tmp_path_factory.mktemp("text")
    for part, count in (("train", 40), ("valid", 4), ("test", 4)):
        lines = [" ".join(WORDS[n % 8 :][: 1 + n % 4]) for n in range(count)]
        for side in ("source", "target"):
            (folder / f"{part}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    splits = {p: SplitConfig(f"{p}.source", f"{p}.target") for p in ("train", "valid", "test")}
    return TrainConfig(
        device="cpu",
        name="again",
        threads=1,
        data=DataConfig(
            name="again", root=str(folder), prepared=str(folder / "prepared"),
            source_language="de", target_language="de",
            tokenizer=TokenizerConfig("whitespace"), **splits,
        ),
        model=ModelConfig(
            embedding_size=8, encoder_size=8, decoder_size=12, dropout=0.3,
            attention=AttentionConfig(size=8), output=OutputConfig(size=8),
        ),
        optim=OptimConfig(learning_rate=0.01, schedule=ScheduleConfig("linear")),
        trainer=TrainerConfig(
            max_steps=6, batch_sentences=12, log_every_steps=1, validate_every_steps=3,
            sentences=[],
        ),
        decoding=DecodingConfig(beam_size=1, max_length_factor=1.0, max_length_extra=2),
    )  # fmt: skip


@pytest.fixture(scope="module")
def first(config, tmp_path_factory):
    """The folder of a run."""
    folder = tmp_path_factory.mktemp("first")
    Run(config, RunFolder(folder)).trainer.fit()
    return folder


@pytest.fixture
def copy(first, tmp_path):
    return shutil.copytree(first, tmp_path / "copy")


def again(first, tmp_path, **wanted):
    """Return the result of comparing a run with its repetition."""
    folder = tmp_path / "again"
    folder.mkdir()
    train_again(ReproduceConfig(run=str(first), **wanted), RunFolder(folder))
    return compare_runs(RunFolder(first), RunFolder(folder))


def change_journal(folder, change):
    path = folder / "journal.jsonl"
    events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("".join(json.dumps(event) + "\n" for event in change(events)))


# --- the manifest -----------------------------------------------------------------------------


@pytest.mark.guarantee(
    "A run records everything that determines its result, and can be repeated and compared."
)
def test_the_manifest_records_what_determines_a_run(first, config):
    found = read_manifest(RunFolder(first))
    assert found["config"]["optim"]["learning_rate"] == 0.01
    assert found["config"]["seed"] == config.seed
    assert found["config"]["precision"] == "fp32"
    assert set(found["corpus"]) == {
        f"{part}.{side}" for part in ("train", "valid", "test") for side in ("source", "target")
    }
    assert found["environment"]["threads"] == 1
    assert found["environment"]["torch"] == torch.__version__
    assert found["device"] == "cpu"
    assert found["prepared"].startswith("again-")
    assert len(found["code"]["sha256"]) == 64
    assert (found["step"], found["resumed"]) == (0, [])
    assert not list(first.glob("*.partial"))


def test_the_manifest_is_written_before_the_first_update(config, tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "_update", lambda *_: pytest.fail("began to train"))
    Run(config, RunFolder(tmp_path))
    assert read_manifest(RunFolder(tmp_path))["step"] == 0


@pytest.mark.parametrize(
    "failure",
    [
        FileNotFoundError("no git here"),
        subprocess.CalledProcessError(128, "git"),
        subprocess.TimeoutExpired("git", 30),
    ],
)
def test_git_is_optional(monkeypatch, failure):
    def run(*arguments, **named):
        raise failure

    expected = describe_code()["sha256"]
    monkeypatch.setattr(manifest_module.subprocess, "run", run)
    assert describe_code() == {"sha256": expected, "commit": None, "changed": None}


def test_the_commit_of_an_enclosing_repository_is_not_recorded(monkeypatch):
    monkeypatch.setattr(manifest_module, "_git", lambda *arguments: "lib/site-packages/seq2seq/")
    assert describe_code()["commit"] is None


def test_the_code_hash_depends_on_every_file(monkeypatch, tmp_path):
    shutil.copytree(manifest_module.PACKAGE, tmp_path / "seq2seq")
    before = describe_code()["sha256"]
    monkeypatch.setattr(manifest_module, "PACKAGE", tmp_path / "seq2seq")
    assert describe_code()["sha256"] == before
    with (tmp_path / "seq2seq" / "data" / "batching.py").open("a") as file:
        file.write("\n")
    assert describe_code()["sha256"] != before


def test_the_inputs_of_a_run_are_read_once(config, tmp_path, monkeypatch):
    read = []

    def counted(files, original=translation.read_evaluation_set):
        read.append(files.source.name)
        return original(files)

    monkeypatch.setattr(translation, "read_evaluation_set", counted)
    before = asdict(config)
    Run(config, RunFolder(tmp_path), inputs=TranslationTask.open(config))
    assert sorted(read) == ["test.source", "valid.source"]
    assert asdict(config) == before  # the settings of the caller are left as they were


# --- repetition --------------------------------------------------------------------------------


@pytest.mark.guarantee(
    "A run records everything that determines its result, and can be repeated and compared."
)
def test_an_equal_run_is_reported_as_equal(first, tmp_path):
    assert again(first, tmp_path) is None


def test_the_script_exits_with_status_3_if_runs_diverge(copy, tmp_path):
    """Equal runs are tested with the README."""
    change_journal(copy, lambda events: [e | {"loss": 0.5} for e in events])
    done = call_script("reproduce", f"run={copy}", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stdout.startswith(b"not equal: step 1: train/loss was 0.5 and is ")
    assert len(list(tmp_path.glob("runs/reproduced/*/manifest.json"))) == 1


@pytest.mark.guarantee(
    "A run records everything that determines its result, and can be repeated and compared."
)
@pytest.mark.parametrize("event", ["train", "valid"])
@pytest.mark.parametrize("step", [3, 6])
def test_a_changed_value_is_found_at_its_step(first, copy, event, step):
    change_journal(
        copy,
        lambda events: [
            e | {"loss": 7.25} if (e["event"], e["step"]) == (event, step) else e for e in events
        ],
    )
    said = compare_runs(RunFolder(copy), RunFolder(first))
    assert said.startswith(f"step {step}: {event}/loss was 7.25 and is ")


def test_a_missing_event_is_found(first, copy):
    change_journal(copy, lambda events: [e for e in events if e["step"] != 4])
    assert (
        compare_runs(RunFolder(copy), RunFolder(first))
        == "step 4: the journal of the first run lacks the event 'train'"
    )
    assert (
        compare_runs(RunFolder(first), RunFolder(copy))
        == "step 4: the journal of this one lacks the event 'train'"
    )


def test_a_different_speed_is_ignored(first, copy):
    change_journal(copy, lambda events: [e | {"tokens_per_second": 1.0} for e in events])
    assert compare_runs(RunFolder(copy), RunFolder(first)) is None


@pytest.mark.guarantee(
    "A run records everything that determines its result, and can be repeated and compared."
)
@pytest.mark.parametrize("value", [1e-7, -0.0])
def test_a_single_different_bit_of_a_parameter_is_found(first, copy, value):
    """Also the sign of a zero, which no comparison of numbers sees."""
    for folder, number in ((copy, value), (first, 0.0)):
        stored = load_checkpoint(RunFolder(folder).checkpoint("last"))
        name = sorted(name for name in stored.tensors if name.startswith("model."))[0]
        stored.tensors[name].view(-1)[0] = number
        save_checkpoint(copy / folder.name / "checkpoints/last.safetensors", *stored[:2])
        shutil.copy(folder / "journal.jsonl", copy / folder.name)
    said = compare_runs(RunFolder(copy / copy.name), RunFolder(copy / first.name))
    assert name.removeprefix("model.") in said


def test_a_changed_corpus_file_is_refused_by_name(first, copy, config, tmp_path):
    text = shutil.copytree(config.data.root, tmp_path / "text")
    assert again(first, tmp_path, root=str(text)) is None  # the file may be in another folder
    with (text / "valid.target").open("a") as file:
        file.write("\n")
    with (text / "valid.source").open("a") as file:
        file.write("\n")
    new = tmp_path / "new"
    new.mkdir()
    with pytest.raises(ValueError, match=r"valid\.source is not the file") as caught:
        train_again(ReproduceConfig(run=str(first), root=str(text)), RunFolder(new))
    assert "\n" not in str(caught.value)
    assert list(new.iterdir()) == []


def test_environment_changes_are_logged_first(copy, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(Trainer, "fit", lambda *_, **__: None)
    path = copy / "manifest.json"
    found = read_manifest(RunFolder(copy))
    found["environment"] |= {"torch": "0.1", "processor": "abacus", "threads": 3}
    found["code"]["sha256"] = "0" * 64
    path.write_text(json.dumps(found))
    (tmp_path / "new").mkdir()
    with torch_threads(torch.get_num_threads()):
        train_again(ReproduceConfig(run=str(copy), threads=1), RunFolder(tmp_path / "new"))
    assert "differs: environment.threads: 3 -> 1" in caplog.messages
    assert f"differs: environment.torch: 0.1 -> {torch.__version__}" in caplog.messages
    assert any(m.startswith("differs: environment.processor: abacus") for m in caplog.messages)
    assert any(m.startswith(f"differs: code.sha256: {'0' * 64} -> ") for m in caplog.messages)


def test_a_run_limited_by_time_is_repeated_to_its_last_step(config, tmp_path, caplog):
    """The log says that its learning rate followed the clock; the number of steps is known."""
    limits = replace(config.trainer, max_steps=None, max_minutes=1e-9)
    (tmp_path / "first").mkdir()
    Run(replace(config, trainer=limits), RunFolder(tmp_path / "first")).trainer.fit()
    said = again(tmp_path / "first", tmp_path)
    assert any("trainer.max_minutes" in message for message in caplog.messages)
    steps = [
        newest_checkpoint(RunFolder(tmp_path / name)).header["progress"]["step"]
        for name in ("first", "again")
    ]
    assert steps[0] == steps[1]
    assert said is None or said.startswith("step 1:")


def test_an_interrupted_run_is_repeated_to_its_last_step(config, tmp_path):
    """It was not validated at its last step, and its schedule assumes all six steps."""
    folder = tmp_path / "first"
    folder.mkdir()
    trainer = Run(config, RunFolder(folder)).trainer
    trainer._log = lambda log=trainer._log: (log(), stop_at(4))

    def stop_at(step):
        trainer.stop.number = signal.SIGTERM if trainer.progress.step == step else None

    with pytest.raises(Interrupted):
        trainer.fit()
    assert again(folder, tmp_path) is None


def test_a_resumed_run_is_repeated_in_one_go_and_its_changes_are_logged(config, tmp_path, caplog):
    folder = tmp_path / "first"
    folder.mkdir()
    Run(config, RunFolder(folder)).trainer.fit(until=3)
    changed = replace(config, trainer=replace(config.trainer, keep_last=5))
    Run(changed, RunFolder(folder), newest_checkpoint(RunFolder(folder))).trainer.fit()
    found = read_manifest(RunFolder(folder))
    assert (found["step"], [start["step"] for start in found["resumed"]]) == (0, [3])
    assert again(folder, tmp_path) is None
    assert "not repeated: resumed at step 3 with trainer.keep_last: 2 -> 5" in caplog.messages


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("manifest.json", None, "manifest.json is missing"),
        ("manifest.json", "{", "is not JSON"),
        ("manifest.json", "[]", "'step'"),
        ("manifest.json", '{"step": 0}', "'device'"),
        ("journal.jsonl", "{}\n", "line 1 is not an event"),
        ("checkpoints/last.safetensors", "x", "damaged"),
    ],
)
def test_an_incomplete_run_is_refused_before_training(copy, tmp_path, name, content, named):
    (copy / name).unlink()
    if content is not None:
        (copy / name).write_text(content)
    with pytest.raises((ValueError, OSError), match=named) as caught:
        again(copy, tmp_path)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "again").iterdir()) == []
