"""Killed and resumed runs equal uninterrupted ones: a short ``make soak``, and bugs it found."""

import errno
import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT
from soak import compare
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from seq2seq.cli.command import error_text
from seq2seq.config.training import TrainConfig
from seq2seq.run_folder import RunFolder
from seq2seq.training.journal import Journal


@pytest.mark.guarantee("A run that is killed and resumed equals an uninterrupted run, bit for bit.")
@pytest.mark.parametrize("task", [(), ("--toy",)], ids=["translation", "toy"])
def test_killed_and_resumed_runs_equal_the_uninterrupted_one(tmp_path, task):
    """On translation, and on a task that is not part of the package."""
    options = ("--kills", "3", "--seed", "2", "--exit-seconds", "200", *task)
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "soak.py"), *options, "--work", tmp_path / "soak"],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    end = "0 lost runs, 0 different runs, 0 differing bits, 0 errors in total\n"
    assert done.stdout.endswith(end)


def test_a_difference_is_found_and_counted_in_bits():
    one = {"a": b"\x00\x01", "b": [(1, 2.0)], "c": 1}
    assert compare(one, dict(one)) == ([], 0)
    assert compare(one, one | {"a": b"\x06\x01"}) == (["a"], 2)
    assert compare(one, {"b": [(1, 2.0), (1, 2.0)], "a": b"\x00\x01", "d": 1}) == (
        ["b", "c", "d"],
        0,
    )


def test_a_validation_that_was_logged_but_not_saved_is_logged_once(tmp_path):
    """Stop during the validation at step 4; resume and kill before saving; resume again."""
    for lives in range(3):
        journal = Journal(RunFolder(tmp_path), 4 if lives else 0, validated=not lives)
        if not lives:
            journal.record("valid", 2, {"loss": 5.0})
            journal.record("train", 4, {"loss": 4.0})
            journal.flush()
        else:
            journal.record("valid", 4, {"loss": 3.0})
            journal.text("translation/a", 4, "a")
        journal.close()
    lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    assert [(json.loads(line)["event"], json.loads(line)["step"]) for line in lines] == [
        ("valid", 2),
        ("train", 4),
        ("valid", 4),
    ]
    events = EventAccumulator(str(tmp_path / "tensorboard"), tensor_size_guidance={"text": 0})
    events.Reload()
    steps = {tag: [event.step for event in events.Tensors(tag)] for tag in events.Tags()["tensors"]}
    assert steps == {"valid/loss": [2, 4], "train/loss": [4], "translation/a/text_summary": [4]}


def test_resuming_a_run_without_a_checkpoint_is_refused(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step_5.safetensorsx.partial").touch()
    with pytest.raises(ValueError, match=r"before its first checkpoint .* start it again"):
        TrainConfig(name="a", resume=str(tmp_path)).check()


def test_a_write_that_finds_no_space_says_what_to_do():
    """An error of writing, unlike one of opening, does not name the file."""
    text = error_text(OSError(errno.ENOSPC, "No space left on device"))
    assert text.startswith("a file could not be written (No space left on device); free some space")
    assert "resume=<its folder>" in text
