"""The journal of an interrupted run equals that of an uninterrupted one."""

import json
import math
import re

import pytest
from conftest import ROOT
from matplotlib.figure import Figure
from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seq2seq.run_folder import RunFolder
from seq2seq.training.journal import Journal
from seq2seq.training.task import Drawing

PICTURE = Drawing(Figure(figsize=(0.1, 0.1)), "{}")


def lines(folder):
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def board(folder):
    unlimited = {"scalars": 0, "images": 0, "tensors": 0}
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance=unlimited)
    events.Reload()
    return events


def write(folder, steps, start=0, close=True):
    """Log, draw and write at each step, from ``start``; the loss identifies the run."""
    journal = Journal(RunFolder(folder), start)
    for step in steps:
        journal.record("train", step, {"loss": 1000.0 + start, "epoch": 1})
        journal.draw("alignment/a", step, PICTURE)
        journal.text("translation/a", step, "ein *Hund*")
    if close:
        journal.close()
    return journal


def test_each_event_is_one_line_in_order(tmp_path):
    write(tmp_path, range(1, 4))
    assert lines(tmp_path) == [
        {"event": "train", "step": step, "loss": 1000.0, "epoch": 1} for step in (1, 2, 3)
    ]


def test_lines_are_written_immediately(tmp_path):
    journal = write(tmp_path, [1, 2], close=False)
    assert len(lines(tmp_path)) == 2
    journal.close()


@pytest.mark.guarantee("Curves and pictures never repeat a step after a restart.")
@pytest.mark.parametrize("resumed_at", [1, 3, 5])
def test_a_resumed_run_removes_events_after_its_checkpoint(tmp_path, resumed_at):
    write(tmp_path, range(1, 6))
    write(tmp_path, range(resumed_at + 1, 9), start=resumed_at)
    assert [line["step"] for line in lines(tmp_path)] == list(range(1, 9))
    assert {line["loss"] for line in lines(tmp_path) if line["step"] > resumed_at} == {
        1000.0 + resumed_at
    }
    assert [path.name for path in tmp_path.glob("*.partial")] == []


def test_an_incomplete_last_line_is_removed(tmp_path):
    write(tmp_path, [1, 2])
    path = tmp_path / "journal.jsonl"
    path.write_text(path.read_text() + '{"event": "train", "st')
    write(tmp_path, [3], start=2)
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3]


@pytest.mark.guarantee("Curves and pictures never repeat a step after a restart.")
def test_curves_pictures_and_texts_never_double_back(tmp_path):
    write(tmp_path, range(1, 6))
    write(tmp_path, range(4, 8), start=3)
    write(tmp_path, range(7, 10), start=6)
    events = board(tmp_path)
    scalars, images = events.Scalars("train/loss"), events.Images("alignment/a")
    shown_by_tensorboard = plugin_event_accumulator.EventAccumulator(
        str(tmp_path / "tensorboard"), tensor_size_guidance={"text": 0}
    )
    shown_by_tensorboard.Reload()
    texts = shown_by_tensorboard.Tensors("translation/a/text_summary")
    for shown in (scalars, images, texts):
        assert [event.step for event in shown] == list(range(1, 10))
    assert [event.value for event in scalars] == [1000.0] * 3 + [1003.0] * 3 + [1006.0] * 3


def test_non_finite_numbers_are_null_in_json(tmp_path):
    journal = Journal(RunFolder(tmp_path))
    values = {"loss": math.nan, "perplexity": math.inf, "low": -math.inf, "bleu": 0.0, "name": "a"}
    journal.record("valid", 1, values)
    journal.close()

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    text = (tmp_path / "journal.jsonl").read_text()
    assert json.loads(text, parse_constant=refuse) == {
        "event": "valid", "step": 1, "loss": None, "perplexity": None, "low": None,
        "bleu": 0.0, "name": "a",
    }  # fmt: skip
    assert set(board(tmp_path).Tags()["scalars"]) == {
        f"valid/{name}" for name in ("loss", "perplexity", "low", "bleu")
    }


def test_flushed_events_can_be_read_during_the_run(tmp_path):
    journal = write(tmp_path, [1, 2], close=False)
    journal.flush()
    assert len(board(tmp_path).Scalars("train/loss")) == 2
    journal.close()


@pytest.mark.guarantee(
    "TensorBoard and the run folder hold the pictures of the same sentences, one per validation."
)
def test_all_pictures_are_shown(tmp_path):
    """V2: `make tensorboard` shows every picture of a long run, not a random sample."""
    write(tmp_path, range(1, 51))
    assert [event.step for event in board(tmp_path).Images("alignment/a")] == list(range(1, 51))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert int(re.search(r"--samples_per_plugin images=(\d+)", makefile)[1]) >= 1000
