"""A run folder has one writer, keeps the right checkpoints, and survives a crash at any point."""

import os
import shutil
import signal
from dataclasses import asdict

import hypothesis
import pytest
import torch
from conftest import run_script
from hypothesis import given
from hypothesis import strategies as st

from seq2seq import checkpoint, files
from seq2seq.checkpoint import load_checkpoint, save_checkpoint
from seq2seq.config.training import TrainerConfig
from seq2seq.evaluation.metrics import METRICS
from seq2seq.run_folder import RunFolder
from seq2seq.training.checkpoints import (
    claim,
    keep_checkpoints,
    newest_checkpoint,
    rank,
)
from seq2seq.training.progress import Progress

BLEU, LOSS = METRICS["bleu"], METRICS["loss"]


def progress_at(step, scores, keep_best=1):
    """Return the progress of a run that was validated with these scores so far."""
    ranking = []
    for number in range(1, step + 1):
        ranking = rank(ranking, (scores[number - 1], number), BLEU, keep_best)
    ((best_score, best_step), *_) = ranking
    return Progress(step=step, best_score=best_score, best_step=best_step, ranking=ranking)


def save(run_dir, step, scores, settings):
    """Save as the trainer does after an update."""
    progress = progress_at(step, scores, settings.keep_best)
    tensors = {"model.weight": torch.full((3,), float(step))}
    save_checkpoint(
        RunFolder(run_dir).step_checkpoint(step), tensors, {"progress": asdict(progress)}
    )
    keep_checkpoints(RunFolder(run_dir), progress, settings)


def step_of(path):
    """Return the step of a complete checkpoint."""
    loaded = load_checkpoint(path)
    assert loaded.tensors["model.weight"].tolist() == [loaded.header["progress"]["step"]] * 3
    return loaded.header["progress"]["step"]


def files_in(run_dir):
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


def spoil(path):
    """Damage the content of a file, under all of its names."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


# --- kept checkpoints ----------------------------------------------------------------------------


@pytest.mark.guarantee(
    "As many newest and best checkpoints are kept as requested; no other file is removed."
)
@hypothesis.settings(max_examples=20)
@given(
    st.lists(st.integers(0, 4).map(float), min_size=1, max_size=7),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_only_the_newest_and_the_best_checkpoints_are_kept(
    tmp_path_factory, scores, keep_last, keep_best
):
    run_dir = tmp_path_factory.mktemp("run")
    settings = TrainerConfig(keep_last=keep_last, keep_best=keep_best)
    for step in range(1, len(scores) + 1):
        save(run_dir, step, scores, settings)
    steps = range(1, len(scores) + 1)
    by_score = sorted(steps, key=lambda step: (-scores[step - 1], step))
    kept = {*steps[-keep_last:], *by_score[:keep_best]}
    assert set(RunFolder(run_dir).saved_steps()) == kept
    assert list(RunFolder(run_dir).saved_steps()) == sorted(kept, reverse=True)
    for step, path in RunFolder(run_dir).saved_steps().items():
        assert step_of(path) == step
    assert step_of(RunFolder(run_dir).checkpoint("last")) == len(scores)
    assert step_of(RunFolder(run_dir).checkpoint("best")) == by_score[0]
    assert len(files_in(run_dir)) == len(kept) + 2


@given(st.lists(st.floats(allow_nan=False)), st.integers(1, 5), st.sampled_from([BLEU, LOSS]))
def test_ranking_equals_sorting_by_score(scores, count, criterion):
    """T4: the metric decides which direction is better; among ties, the earlier comes first."""
    ranking = []
    for step, score in enumerate(scores):
        ranking = rank(ranking, (score, step), criterion, count)
    sign = -1 if criterion.higher_is_better else 1
    expected = sorted(enumerate(scores), key=lambda item: sign * item[1])[:count]
    assert ranking == [(score, step) for step, score in expected]


def test_two_checkpoints_are_kept_by_default():
    assert TrainerConfig().keep_last >= 2


@pytest.mark.guarantee("`last` and `best` are real files: a run can be moved or copied.")
def test_last_and_best_are_real_files(tmp_path):
    """T11: no symbolic links."""
    save(tmp_path, 1, [1.0], TrainerConfig())
    for name in ("last", "best"):
        assert not RunFolder(tmp_path).checkpoint(name).is_symlink()
        moved = shutil.move(RunFolder(tmp_path).checkpoint(name), tmp_path / f"{name}.safetensors")
        assert step_of(moved) == 1


def test_a_file_that_cannot_be_removed_is_a_warning(tmp_path, monkeypatch, caplog):
    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    settings, scores = TrainerConfig(keep_last=1), [1.0, 2.0, 3.0]
    save(tmp_path, 1, scores, settings)
    unlink = os.unlink
    monkeypatch.setattr(
        os, "unlink", lambda path: refused(path) if "step_1" in str(path) else unlink(path)
    )
    save(tmp_path, 2, scores, settings)
    assert "step_1.safetensors could not be removed" in caplog.text
    assert step_of(RunFolder(tmp_path).checkpoint("last")) == 2


# --- crashes ------------------------------------------------------------------------------------


class Killed(BaseException):
    """Acts like kill -9: no handler of the program catches it."""


class Mortal:
    """Counts calls that change the disk, and dies at a given one. A dead process makes no further
    calls, not even in ``finally`` blocks."""

    def __init__(self, monkeypatch, dies_at):
        self.calls, self.dies_at, self.log = 0, dies_at, []
        for module, name in (
            *((os, name) for name in ("fsync", "replace", "link", "unlink", "chmod")),
            (checkpoint, "save_file"),
            (files.tempfile, "mkstemp"),
            (checkpoint.shutil, "copyfile"),
        ):
            monkeypatch.setattr(module, name, self.wrapped(name, getattr(module, name)))

    def wrapped(self, name, call):
        def called(*arguments, **named):
            self.calls += 1
            if self.calls == self.dies_at and name == "save_file":
                with open(arguments[1], "wb") as file:
                    file.write(b"half of it")
            if self.calls >= self.dies_at:
                raise Killed
            self.log.append((name, str(arguments[0]) if arguments else ""))
            return call(*arguments, **named)

        return called


def no_link(*arguments):
    raise OSError(95, "Operation not supported")


@pytest.mark.guarantee(
    "A complete checkpoint exists at every moment of a save, also after a crash."
)
@pytest.mark.parametrize("links", [True, False], ids=["links", "copies"])
@pytest.mark.parametrize(
    "scores", [[1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 0.0]], ids=["best", "not"]
)
def test_a_crash_at_any_step_of_a_save_loses_nothing(tmp_path, monkeypatch, links, scores):
    """T2: killed before each call that changes the disk, and in the middle of the write."""
    if not links:
        monkeypatch.setattr(os, "link", no_link)
    settings = TrainerConfig(keep_last=2, keep_best=1)
    for step in (1, 2):
        save(tmp_path / "before", step, scores, settings)
    shutil.copytree(tmp_path / "before", tmp_path / "whole")
    for step in (3, 4):
        save(tmp_path / "whole", step, scores, settings)
    died = 0
    while True:
        run_dir = tmp_path / str(died)
        shutil.copytree(tmp_path / "before", run_dir)
        with monkeypatch.context() as patch:
            Mortal(patch, dies_at=died + 1)
            try:
                save(run_dir, 3, scores, settings)
            except Killed:
                died += 1
            else:
                break  # all calls have been tried
        left = newest_checkpoint(RunFolder(run_dir)).header["progress"]["step"]
        assert left == step_of(RunFolder(run_dir).checkpoint("last"))
        assert left in (2, 3)
        assert step_of(RunFolder(run_dir).checkpoint("best")) in (
            2,
            progress_at(3, scores).best_step,
        )
        for step in range(left + 1, 5):
            save(run_dir, step, scores, settings)
        assert files_in(run_dir) == files_in(tmp_path / "whole")
        for name in ("last", "best"):
            assert step_of(RunFolder(run_dir).checkpoint(name)) == step_of(
                RunFolder(tmp_path / "whole").checkpoint(name)
            )
    assert died > 15  # calls for one file, two links, and removed files


@pytest.mark.guarantee(
    "A complete checkpoint exists at every moment of a save, also after a crash."
)
def test_old_checkpoints_are_removed_only_after_new_ones_are_flushed(tmp_path, monkeypatch):
    """A power failure may undo anything that was not flushed."""
    settings = TrainerConfig(keep_last=1)
    save(tmp_path, 1, [1.0, 2.0], settings)
    with monkeypatch.context() as patch:
        mortal = Mortal(patch, dies_at=10**6)
        save(tmp_path, 2, [1.0, 2.0], settings)
    names = [name for name, _ in mortal.log]
    (removed,) = (i for i, call in enumerate(mortal.log) if call[1].endswith("step_1.safetensors"))
    renamed = [i for i, name in enumerate(names) if name == "replace"]
    assert len(renamed) == 3
    for i in renamed:
        assert names[i - 2 : i + 2] == ["fsync", "chmod", "replace", "fsync"]
        assert i + 1 < removed


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.guarantee(
    "A damaged file is detected; if it is the newest, the run resumes from the previous one "
    "and says so."
)
def test_a_damaged_last_checkpoint_is_skipped_with_a_warning(tmp_path, caplog):
    """T2: if the newest file is damaged, the previous one is used, with a warning."""
    for step in (1, 2, 3):
        save(tmp_path, step, [3.0, 2.0, 1.0], TrainerConfig())
    spoil(RunFolder(tmp_path).checkpoint("last"))  # and step_3, which is the same file
    assert newest_checkpoint(RunFolder(tmp_path)).header["progress"]["step"] == 2
    (record,) = caplog.records
    line = record.getMessage()
    assert "\n" not in line
    for part in ("last.safetensors is damaged", "Continuing from", "step_2.safetensors"):
        assert part in line
    save(tmp_path, 3, [3.0, 2.0, 1.0], TrainerConfig())  # the run reaches that step again
    assert step_of(RunFolder(tmp_path).checkpoint("last")) == 3
    assert files_in(tmp_path) == [
        "best.safetensors", "last.safetensors",
        "step_1.safetensors", "step_2.safetensors", "step_3.safetensors",
    ]  # fmt: skip


def test_a_damaged_or_missing_last_link_loses_nothing(tmp_path):
    for step in (1, 2):
        save(tmp_path, step, [1.0, 2.0], TrainerConfig())
    last = RunFolder(tmp_path).checkpoint("last")
    last.unlink()
    assert newest_checkpoint(RunFolder(tmp_path)).header["progress"]["step"] == 2
    last.write_bytes(b"something else")
    assert newest_checkpoint(RunFolder(tmp_path)).header["progress"]["step"] == 2


@pytest.mark.guarantee(
    "A damaged file is detected; if it is the newest, the run resumes from the previous one "
    "and says so."
)
def test_several_damaged_checkpoints_are_skipped(tmp_path):
    settings = TrainerConfig(keep_last=3)
    for step in (1, 2, 3):
        save(tmp_path, step, [3.0, 2.0, 1.0], settings)
    spoil(RunFolder(tmp_path).step_checkpoint(3))
    RunFolder(tmp_path).step_checkpoint(2).write_bytes(b"")
    assert newest_checkpoint(RunFolder(tmp_path)).header["progress"]["step"] == 1


def test_without_an_undamaged_checkpoint_the_error_names_the_last(tmp_path):
    save(tmp_path, 1, [1.0], TrainerConfig())
    spoil(RunFolder(tmp_path).step_checkpoint(1))
    with pytest.raises(ValueError, match=r"last\.safetensors is damaged"):
        newest_checkpoint(RunFolder(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"last\.safetensors is not a file"):
        newest_checkpoint(RunFolder(tmp_path / "nothing"))


def test_a_newer_format_is_refused_instead_of_skipped(tmp_path, monkeypatch):
    """Continuing from an older one would replace a file that a newer version can read."""
    save(tmp_path, 1, [1.0, 2.0], TrainerConfig())
    monkeypatch.setattr(checkpoint, "FORMAT", checkpoint.FORMAT + 1)
    save(tmp_path, 2, [1.0, 2.0], TrainerConfig())
    monkeypatch.undo()
    with pytest.raises(ValueError, match="update seq2seq"):
        newest_checkpoint(RunFolder(tmp_path))


def test_a_best_checkpoint_damaged_with_the_last_is_replaced(tmp_path, caplog):
    """They are the same file if the newest was the best. An earlier copy may still exist; otherwise
    the run drops its record of the best checkpoint."""
    for step in (1, 2, 3):
        save(tmp_path, step, [1.0, 2.0, 3.0], TrainerConfig())
    spoil(RunFolder(tmp_path).checkpoint("best"))
    found = newest_checkpoint(RunFolder(tmp_path))
    assert found.header["progress"]["best_step"] == 2
    assert step_of(RunFolder(tmp_path).checkpoint("best")) == 2
    for step, scores in ((1, [1.0]), (2, [1.0, 0.5]), (3, [1.0, 0.5, 2.0])):
        save(tmp_path / "other", step, scores, TrainerConfig(keep_last=2))
    assert set(RunFolder(tmp_path / "other").saved_steps()) == {2, 3}
    spoil(RunFolder(tmp_path / "other").checkpoint("best"))
    found = newest_checkpoint(RunFolder(tmp_path / "other"))
    progress = found.read("progress", Progress)
    assert (progress.step, progress.best_score, progress.ranking) == (2, None, [])
    assert "best.safetensors is damaged as well" in caplog.text


# --- one writer ---------------------------------------------------------------------------------


@pytest.mark.guarantee("Only one process at a time trains in a folder.")
def test_a_second_process_is_refused_until_the_first_is_dead(tmp_path):
    """Even after kill -9 no lock remains."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with claim(RunFolder(tmp_path)):
                os.write(writing, b"x")
                signal.pause()
        finally:
            os._exit(1)
    try:
        assert os.read(reading, 1) == b"x"
        with (
            pytest.raises(OSError, match="another process trains there") as caught,
            claim(RunFolder(tmp_path)),
        ):
            pass
        assert str(tmp_path) in str(caught.value)
        assert "\n" not in str(caught.value)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading), os.close(writing)
    with claim(RunFolder(tmp_path)):
        pass
    with claim(RunFolder(tmp_path)):  # a released lock does not block either
        pass


@pytest.mark.guarantee("Only one process at a time trains in a folder.")
def test_training_in_a_locked_folder_is_refused_in_one_line(tmp_path):
    for name in ("checkpoints", ".hydra"):
        (tmp_path / "run" / name).mkdir(parents=True)
    RunFolder(tmp_path / "run").checkpoint("last").write_bytes(b"not looked at")
    with claim(RunFolder(tmp_path / "run")):
        done = run_script("train", "resume=run", cwd=tmp_path)
    assert list((tmp_path / "run" / ".hydra").iterdir()) == []
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("error: resume=")
    assert "another process" in line
