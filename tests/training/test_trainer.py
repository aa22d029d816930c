"""The training loop, tested on a tiny task: the result of a run depends only on its settings,
not on interruptions or errors."""

import json
import math
import os
import random
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from toy import LineTask

from seq2seq.checkpoint import load_checkpoint
from seq2seq.config.training import OptimConfig, ScheduleConfig, TrainConfig, TrainerConfig
from seq2seq.evaluation.metrics import METRICS
from seq2seq.precision import Precision
from seq2seq.randomness import seed_everything
from seq2seq.run_folder import RunFolder
from seq2seq.signals import Interrupted
from seq2seq.training.checkpoints import newest_checkpoint
from seq2seq.training.optim import build_objective
from seq2seq.training.task import Loss, Report
from seq2seq.training.trainer import MAX_CONSECUTIVE_SKIPS, Trainer

NAN = math.nan
CONFIG = TrainConfig(
    name="line",
    optim=OptimConfig(learning_rate=0.01),
    trainer=TrainerConfig(
        max_steps=6, batch_sentences=12, log_every_steps=2, validate_every_steps=3, select="loss"
    ),
)  # 60 points: 5 batches in an epoch


def with_trainer(config, **changes):
    return replace(config, trainer=replace(config.trainer, **changes))


def make(path, config=CONFIG, resumed=None, kind=LineTask, precision="fp32"):
    """Build a trainer like a new process, from the newest checkpoint if ``resumed``."""
    path.mkdir(parents=True, exist_ok=True)
    folder = RunFolder(path)
    seed_everything(config.seed)
    checkpoint = load_checkpoint(folder.checkpoint("last")) if resumed else None
    return Trainer(
        kind(config),
        config.trainer,
        folder,
        Precision(precision, torch.device("cpu")),
        METRICS[config.trainer.select],
        {"config": {}},
        checkpoint,
    )


def header(path, name="last"):
    return load_checkpoint(RunFolder(path).checkpoint(name)).header


def events(path, kind):
    lines = [json.loads(line) for line in (path / "journal.jsonl").read_text().splitlines()]
    return [{k: v for k, v in e.items() if "_per_" not in k} for e in lines if e["event"] == kind]


def assert_same_run(one, other):
    """Equal parameters, optimizer states and curves, bit for bit."""
    for a, b in zip(one.task.objectives, other.task.objectives, strict=True):
        torch.testing.assert_close(
            a.optimizer.state_dict(), b.optimizer.state_dict(), rtol=0, atol=0
        )
    a, b = one.task.model.state_dict(), other.task.model.state_dict()
    torch.testing.assert_close(a, b, rtol=0, atol=0)
    for kind in ("train", "valid"):
        assert events(one.folder.path, kind) == events(other.folder.path, kind)
    for name in ("step", "epoch", "position", "items", "best_step", "best_score", "ranking"):
        assert getattr(one.progress, name) == getattr(other.progress, name)


@pytest.fixture
def whole(tmp_path):
    """An uninterrupted run."""
    trainer = make(tmp_path / "whole")
    trainer.fit()
    return trainer


class WithoutDropout(LineTask):
    def __init__(self, config, device="cpu"):
        super().__init__(config, device)
        self.model[0].p = 0.0


class Validated(LineTask):
    """Validations with given scores."""

    scores: list

    def validate(self, step):
        return Report(type(self).scores.pop(0))


def validated(name, scores):
    """A task whose validations give these scores under ``name``."""
    values = [{"loss": 1.0, "bleu": 0.0} | {name: score} for score in scores]
    return type("Validated", (Validated,), {"scores": values})


# --- updates ----------------------------------------------------------------------------------


@pytest.mark.guarantee("Accumulated small batches make the same update as a large one.")
def test_accumulated_small_batches_equal_a_large_batch(tmp_path):
    """M7: every item has the same weight, whatever batch it is in."""
    runs = []
    for size, accumulated in ((60, 1), (14, 5)):  # the last small batch has 4 points
        config = with_trainer(CONFIG, batch_sentences=size, accumulate_batches=accumulated)
        runs.append(make(tmp_path / str(size), config, kind=WithoutDropout))
        runs[-1].fit()
    large, small = runs
    for a, b in zip(large.task.model.parameters(), small.task.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
    losses = [[event["loss"] for event in events(r.folder.path, "train")] for r in runs]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.guarantee("Accumulated small batches make the same update as a large one.")
def test_incomplete_groups_at_the_end_of_an_epoch_are_trained_on(tmp_path):
    config = with_trainer(CONFIG, accumulate_batches=2, max_steps=None, max_epochs=2)
    progress = make(tmp_path, config).fit()
    assert (progress.step, progress.items) == (2 * 3, 2 * 60)


def test_fp16_overflow_lowers_the_scale_and_is_not_counted_as_a_skip(tmp_path):
    trainer = make(tmp_path, precision="fp16")
    trainer.precision.scaler._init_scale = 2.0**120
    before = [parameter.clone() for parameter in trainer.task.model.parameters()]
    progress = trainer.fit()
    assert (progress.skipped, progress.consecutive_skips) == (0, 0)
    assert all(map(torch.equal, before, trainer.task.model.parameters()))
    scale = trainer.precision.scaler.get_scale()
    assert scale == 2.0**114
    resumed = make(tmp_path, with_trainer(CONFIG, max_steps=7), resumed=True, precision="fp16")
    assert resumed.precision.scaler.get_scale() == scale


@pytest.mark.guarantee("The same seed gives the same run.")
def test_the_seed_determines_the_run(tmp_path, whole):
    same = make(tmp_path / "same")
    same.fit()
    assert_same_run(whole, same)
    make(tmp_path / "other", replace(CONFIG, seed=2)).fit()
    assert events(tmp_path / "other", "train") != events(tmp_path / "same", "train")


@pytest.mark.guarantee(
    "Validation translates without reading the references, and does not change training."
)
def test_validating_more_often_changes_no_parameter(tmp_path, whole):
    often = make(tmp_path / "often", with_trainer(CONFIG, validate_every_steps=1))
    often.fit()
    a, b = whole.task.model.state_dict(), often.task.model.state_dict()
    torch.testing.assert_close(a, b, rtol=0, atol=0)


class Adversaries(LineTask):
    """Has two objectives on one model: the first slowly maximizes what the second minimizes."""

    def __init__(self, config, device="cpu"):
        super().__init__(config, device)
        self.model.append(nn.Linear(1, 1))
        self.objectives = [
            build_objective(replace(config.optim, learning_rate=rate), part.parameters(), name)
            for name, part, rate in (("up", self.model[1], 1e-3), ("down", self.model[2], 1e-2))
        ]

    def loss(self, objective, batch):
        loss = super().loss(objective, batch)
        return Loss(-loss.objective if objective.name == "up" else loss.objective, loss.reported)


def test_several_objectives_have_their_own_optimizers_and_curves(tmp_path):
    whole = make(tmp_path / "whole", kind=Adversaries)
    start = [p.clone() for p in whole.task.model.parameters()]
    whole.fit()
    assert not any(map(torch.equal, start, whole.task.model.parameters()))
    event = events(tmp_path / "whole", "train")[-1]
    assert event["learning_rate_up"] == 1e-3
    assert event["learning_rate_down"] == 1e-2
    assert {"loss_up", "loss_down", "gradient_norm_up", "gradient_norm_down"} <= event.keys()
    make(tmp_path / "parts", with_trainer(CONFIG, max_steps=4), kind=Adversaries).fit()
    resumed = make(tmp_path / "parts", resumed=True, kind=Adversaries)
    resumed.fit()
    torch.testing.assert_close(
        whole.task.model.state_dict(), resumed.task.model.state_dict(), rtol=0, atol=0
    )


# --- the best checkpoint ----------------------------------------------------------------------


@pytest.mark.guarantee("The best checkpoint is the best by the selected metric, and always finite.")
@pytest.mark.parametrize(
    ("select", "scores", "best"),
    [
        ("bleu", [1, 5, 3], 2),
        ("loss", [1, 5, 3], 1),
        ("bleu", [NAN, 2, 1], 2),
        ("loss", [NAN, 5, 3], 3),
        ("loss", [2, NAN, NAN], 1),
        ("bleu", [4, 4, 4], 1),
        ("loss", [math.inf, 4, math.inf], 2),
        ("bleu", [0.0, 0.0, 0.5], 3),
    ],
)
def test_the_best_checkpoint_follows_the_direction_of_its_metric(tmp_path, select, scores, best):
    """T4: NaN and infinity are never best; of equal scores the first is."""
    config = with_trainer(CONFIG, select=select, max_steps=3, validate_every_steps=1)
    progress = make(tmp_path, config, kind=validated(select, scores)).fit()
    assert (progress.best_step, progress.best_score) == (best, scores[best - 1])
    assert header(tmp_path, "best")["progress"]["step"] == best
    assert header(tmp_path)["progress"]["best_step"] == best


def test_a_metric_that_the_validation_lacks_is_refused(tmp_path):
    config = with_trainer(CONFIG, select="aer", max_steps=1)
    with pytest.raises(ValueError, match=r"trainer\.select=aer: .* choose one of loss"):
        make(tmp_path, config).fit()


@pytest.mark.guarantee("The best checkpoint is the best by the selected metric, and always finite.")
def test_a_model_without_a_finite_loss_is_never_best(tmp_path):
    config = with_trainer(CONFIG, select="bleu", max_steps=2, validate_every_steps=1)
    progress = make(tmp_path, config, kind=validated("loss", [NAN, math.inf])).fit()
    assert progress.best_score is None
    assert not RunFolder(tmp_path).checkpoint("best").exists()


@pytest.mark.guarantee("The best checkpoint is the best by the selected metric, and always finite.")
@pytest.mark.parametrize("value", [NAN, math.inf])
def test_a_model_with_a_non_finite_parameter_is_never_best(tmp_path, value):
    config = with_trainer(CONFIG, max_steps=2, validate_every_steps=1)
    trainer = make(tmp_path, config, kind=validated("loss", [3.0, 2.0]))

    def update(batches, original=trainer._update):
        original(batches)
        if trainer.progress.step == 2:
            with torch.no_grad():
                next(trainer.task.model.parameters())[0, 0] = value

    trainer._update = update
    assert trainer.fit().best_step == 1


@pytest.mark.guarantee(
    "As many newest and best checkpoints are kept as requested; no other file is removed."
)
@pytest.mark.parametrize(("select", "best"), [("bleu", (2, 5)), ("loss", (3, 6))])
def test_the_best_checkpoints_are_kept(tmp_path, select, best):
    config = with_trainer(CONFIG, select=select, validate_every_steps=1, keep_best=2, keep_last=1)
    make(tmp_path, config, kind=validated(select, [NAN, 5, 1, 3, 4, 2])).fit()
    assert set(RunFolder(tmp_path).saved_steps()) == {*best, 6}
    assert header(tmp_path, "best")["progress"]["step"] == best[0]


def test_patience_counts_validations_since_the_best_across_a_restart(tmp_path):
    config = with_trainer(CONFIG, select="bleu", max_steps=3, validate_every_steps=1, patience=2)
    kind = validated("bleu", [1, 3, 2, 2, 9])
    make(tmp_path, config, kind=kind).fit()
    assert header(tmp_path)["progress"]["stale"] == 1
    assert make(tmp_path, with_trainer(config, max_steps=99), True, kind).fit().step == 4


# --- interruptions ----------------------------------------------------------------------------


@pytest.mark.guarantee("A run that is killed and resumed equals an uninterrupted run, bit for bit.")
@pytest.mark.parametrize("optimizer", ["adam", "adadelta"])
@pytest.mark.parametrize("stop", [1, 3, 5, 7])
def test_a_run_killed_after_a_save_resumes_bit_for_bit(tmp_path, stop, optimizer):
    """T1: within an epoch, at its end (5 batches) and after it, with and without a pending log
    line; what the killed run logged later is removed."""
    config = with_trainer(CONFIG, max_steps=9)
    config = replace(config, optim=replace(config.optim, name=optimizer))
    whole = make(tmp_path / "whole", config)
    whole.fit()
    killed = make(tmp_path / "parts", with_trainer(config, validate_every_steps=1))

    def die(save=killed._save):
        save()
        if killed.progress.step == stop:
            raise KeyboardInterrupt

    killed._save = die
    with pytest.raises(KeyboardInterrupt):
        killed.fit()
    random.random(), np.random.rand(), torch.rand(3)
    resumed = make(tmp_path / "parts", config, resumed=True)
    resumed.fit()
    torch.testing.assert_close(
        whole.task.model.state_dict(), resumed.task.model.state_dict(), rtol=0, atol=0
    )
    assert events(tmp_path / "whole", "train") == events(tmp_path / "parts", "train")
    a, b = whole.progress, resumed.progress
    assert (a.step, a.epoch, a.position, a.items) == (b.step, b.epoch, b.position, b.items)


def test_a_run_of_given_length_is_a_prefix_of_the_whole_run(tmp_path):
    """The schedule still assumes all steps; resuming completes the run."""
    config = replace(CONFIG, optim=replace(CONFIG.optim, schedule=ScheduleConfig("linear")))
    whole = make(tmp_path / "whole", config)
    whole.fit()
    make(tmp_path / "parts", config).fit(until=3)
    prefix = events(tmp_path / "parts", "train")
    assert prefix == events(tmp_path / "whole", "train")[: len(prefix)]
    assert header(tmp_path / "parts")["progress"]["step"] == 3
    resumed = make(tmp_path / "parts", config, resumed=True)
    resumed.fit()
    assert_same_run(whole, resumed)


def test_resuming_a_finished_run_changes_no_checkpoint(tmp_path, whole):
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")}
    again = make(tmp_path / "whole", resumed=True)
    assert again.finished()
    assert again.fit().step == 6
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")} == before


@pytest.mark.guarantee(
    "A damaged file is detected; if it is the newest, the run resumes from the previous one "
    "and says so."
)
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(tmp_path):
    """T2: the result equals that of an undamaged run."""
    config = with_trainer(CONFIG, validate_every_steps=2)
    whole = make(tmp_path / "whole", config)
    whole.fit()
    make(tmp_path / "parts", with_trainer(config, max_steps=4)).fit()
    folder = RunFolder(tmp_path / "parts")
    last = folder.checkpoint("last")
    last.write_bytes(last.read_bytes()[:-100])
    found = newest_checkpoint(folder)
    assert found.header["progress"]["step"] == 2
    seed_everything(9)
    arguments = config.trainer, folder, whole.precision, whole.metric, None, found
    resumed = Trainer(LineTask(config), *arguments)
    resumed.fit()
    assert_same_run(whole, resumed)


@pytest.mark.guarantee(
    "Ctrl-C and SIGTERM save the run after the current step, also during a validation."
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("method", "step"), [("_update", 1), ("_log", 4), ("_save", 3)])
def test_a_signal_saves_the_run_which_then_resumes_bit_for_bit(
    tmp_path, whole, monkeypatch, number, method, step
):
    """T3: the exit status is the one that shells report."""
    handler = signal.getsignal(number)
    stopped = make(tmp_path / "parts")
    original = getattr(stopped, method)

    def signaled(*arguments):
        if stopped.progress.step == step:
            os.kill(os.getpid(), number)
        return original(*arguments)

    monkeypatch.setattr(stopped, method, signaled)
    with pytest.raises(Interrupted) as caught:
        stopped.fit()
    assert caught.value.exit_status == 128 + number
    assert signal.getsignal(number) is handler
    assert header(tmp_path / "parts")["progress"]["step"] == stopped.progress.step < 6
    resumed = make(tmp_path / "parts", resumed=True)
    resumed.fit()
    assert_same_run(whole, resumed)


@pytest.mark.guarantee(
    "Ctrl-C and SIGTERM save the run after the current step, also during a validation."
)
@pytest.mark.parametrize("step", [3, 6])
def test_a_signal_abandons_a_validation_which_is_repeated_on_resume(
    tmp_path, whole, monkeypatch, step
):
    """T3: a validation can take minutes; the run ends with the one at step 6."""
    stopped = make(tmp_path / "parts")
    original = stopped.task.validate

    def slow(at_step):
        if at_step == step:
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("the validation went on")
        return original(at_step)

    monkeypatch.setattr(stopped.task, "validate", slow)
    with pytest.raises(Interrupted):
        stopped.fit()
    resumed = make(tmp_path / "parts", resumed=True)
    resumed.fit()
    assert_same_run(whole, resumed)


def test_a_signal_after_the_last_save_is_not_lost(tmp_path):
    trainer = make(tmp_path)

    def close(original=trainer.journal.close):
        original()
        os.kill(os.getpid(), signal.SIGTERM)

    trainer.journal.close = close
    with pytest.raises(Interrupted):
        trainer.fit()
    assert header(tmp_path)["progress"]["step"] == 6


# --- failed updates ---------------------------------------------------------------------------


def break_loss(trainer, steps):
    """Make the loss of these updates NaN."""

    def loss(objective, batch, original=trainer.task.loss):
        loss = original(objective, batch)
        factor = NAN if trainer.progress.step + 1 in steps else 1.0
        return Loss(loss.objective * factor, loss.reported * factor)

    trainer.task.loss = loss


@pytest.mark.guarantee(
    "Non-finite updates are skipped, counted and named; several in a row stop the run."
)
def test_updates_without_a_finite_gradient_are_skipped_counted_and_named(tmp_path, caplog):
    config = with_trainer(CONFIG, log_every_steps=6, validate_every_steps=2)
    trainer = make(tmp_path, config)
    break_loss(trainer, {1, 2, 5})
    start = [parameter.detach().clone() for parameter in trainer.task.model.parameters()]
    progress = trainer.fit()
    assert (progress.skipped, progress.step) == (3, 6)
    (event,) = events(tmp_path, "train")
    assert math.isfinite(event["loss"])  # the mean of the updates that were made
    assert not any(map(torch.equal, start, trainer.task.model.parameters()))
    assert all(p.isfinite().all() for p in trainer.task.model.parameters())
    reported = [message for message in caplog.messages if "; skipped: " in message]
    assert reported[0] == (
        "step 1: loss nan, gradient norm nan; skipped: epoch 1, after example 0 (1 batches)"
    )
    assert len(reported) == 3


@pytest.mark.guarantee(
    "Non-finite updates are skipped, counted and named; several in a row stop the run."
)
def test_consecutive_skips_end_the_run_also_across_a_restart(tmp_path):
    """T7: both checkpoints stay finite, and the message names step and setting."""
    config = with_trainer(CONFIG, max_steps=50, validate_every_steps=2)
    trainer = make(tmp_path, config)
    break_loss(trainer, set(range(4, 50)))
    trainer.fit(until=3 + MAX_CONSECUTIVE_SKIPS - 2)
    again = make(tmp_path, config, resumed=True)
    assert again.progress.consecutive_skips == MAX_CONSECUTIVE_SKIPS - 2
    break_loss(again, set(range(4, 50)))
    with pytest.raises(ValueError, match=rf"^step {3 + MAX_CONSECUTIVE_SKIPS}: ") as caught:
        again.fit()
    assert "optim.learning_rate=0.01" in str(caught.value)
    assert "\n" not in str(caught.value)
    for name in ("best", "last"):
        stored = load_checkpoint(RunFolder(tmp_path).checkpoint(name))
        assert all(tensor.isfinite().all() for tensor in stored.section("model").values())
    assert header(tmp_path, "best")["progress"]["step"] <= 3


@pytest.mark.guarantee("If memory runs out, the batch is named and the run saved.")
@pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory. Tried"), MemoryError()])
def test_running_out_of_memory_saves_the_run_and_names_the_batch(tmp_path, error):
    trainer = make(tmp_path, with_trainer(CONFIG, accumulate_batches=2))

    def loss(objective, batch, original=trainer.task.loss):
        if trainer.progress.step == 2:
            raise error
        return original(objective, batch)

    trainer.task.loss = loss
    with pytest.raises(ValueError, match=r"^step 3: out of memory for epoch 1, after example 48 "):
        trainer.fit()
    assert header(tmp_path)["progress"]["step"] == 2
    resumed = make(tmp_path, with_trainer(CONFIG, batch_sentences=6), resumed=True)
    assert resumed.progress.position == 2 * 24
    assert resumed.fit().step == 6


def test_other_errors_in_an_update_are_not_hidden(tmp_path):
    trainer = make(tmp_path)

    def loss(objective, batch):
        raise RuntimeError("shapes do not match")

    trainer.task.loss = loss
    with pytest.raises(RuntimeError, match="shapes"):
        trainer.fit()


# --- pictures ---------------------------------------------------------------------------------


@pytest.mark.guarantee(
    "TensorBoard and the run folder hold the pictures of the same sentences, one per validation."
)
def test_every_validation_writes_and_shows_each_picture(tmp_path):
    """V2, V7: as many pictures in the event file as on disk, under one tag."""
    make(tmp_path, with_trainer(CONFIG, max_steps=4, validate_every_steps=2)).fit()
    shown = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"images": 0})
    shown.Reload()
    assert shown.Tags()["images"] == ["alignment/line"]
    assert [event.step for event in shown.Images("alignment/line")] == [2, 4]
    names = ["step_0000002.json", "step_0000002.png", "step_0000004.json", "step_0000004.png"]
    assert sorted(path.name for path in (tmp_path / "alignments" / "line").iterdir()) == names
