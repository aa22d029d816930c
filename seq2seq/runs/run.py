"""A training run: built from its settings here, and summarized at the end."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from seq2seq.checkpoint import Checkpoint
from seq2seq.config.changes import changes
from seq2seq.config.schema import Change
from seq2seq.config.training import TrainConfig
from seq2seq.device import select_device, set_threads
from seq2seq.evaluation.metrics import METRICS
from seq2seq.precision import select_precision
from seq2seq.randomness import seed_everything
from seq2seq.run_folder import RunFolder
from seq2seq.runs.manifest import describe_start, record_start, write_json
from seq2seq.tasks.build import TASKS
from seq2seq.training.optim import SCHEDULES
from seq2seq.training.trainer import Trainer

log = logging.getLogger(__name__)


class Run:
    """One training run in its folder.

    Args:
        config: settings of the run.
        folder: the run folder.
        resumed: the checkpoint to continue from.
        inputs: the result of ``open`` of its task, if already available.

    Raises:
        ValueError, OSError: settings or data are invalid; one line says why.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        resumed: Checkpoint | None = None,
        inputs: Any = None,
    ):
        self.config, self.folder = with_absolute_root(config), folder
        config = self.config
        device = select_device(config.device)
        precision = select_precision(config.precision, device)
        threads = set_threads(config.threads)
        metric = METRICS.get_entry(config.trainer.select)
        seed_everything(config.seed)
        kind = TASKS.get_entry(config.task)
        if inputs is None:
            inputs = kind.open(config)
        self.task = kind.build(config, inputs, device)
        self.num_parameters = sum(p.numel() for p in self.task.model.parameters())
        log.info(
            "%s parameters, device %s, threads %d, run folder %s",
            f"{self.num_parameters:,}",
            device,
            threads,
            folder.path,
        )
        if follows_clock(config):
            log.info("the learning rate follows the clock: another run will differ slightly")
        header = {"config": asdict(config)}
        self.trainer = Trainer(
            self.task, config.trainer, folder, precision, metric, header, resumed
        )
        step = self.trainer.progress.step
        self.start = describe_start(config, inputs.digests, self.task.prepared, device, step)
        record_start(folder, self.start)

    def finish(self) -> Mapping[str, Any]:
        """Score the best checkpoint and write ``summary.json``.

        Raises:
            Interrupted: the run was asked to stop; when resumed, it only scores.
        """
        with self.trainer.stop.noted(), self.trainer.stop.raised():
            return self._score()

    def _score(self) -> Mapping[str, Any]:
        self.trainer.release()
        progress = self.trainer.progress
        log.info("scoring the best checkpoint (step %s)", f"{progress.best_step:,}")
        items = self.task.item_name
        summary = self.task.score(self.folder.checkpoint("best")) | {
            "steps": progress.step,
            "epochs": progress.epoch,
            "seconds": progress.seconds,
            items: progress.items,
            f"{items}_per_second": progress.items / max(progress.training_seconds, 1e-9),
            "parameters": self.num_parameters,
            "best_step": progress.best_step,
            "skipped_updates": progress.skipped,
            "corpus_sha256": self.start["corpus"],
            "environment": self.start["environment"],
            "command": self.start["command"],
        }
        write_json(self.folder.summary, summary, indent=2)
        log.info("summary     %s", self.folder.summary)
        log.info("pictures    %s", self.folder.pictures)
        log.info(
            "TensorBoard make tensorboard   (or: tensorboard --logdir %s "
            "--samples_per_plugin images=1000,text=1000)",
            self.folder.path,
        )
        return summary


def with_absolute_root(config: TrainConfig) -> TrainConfig:
    """Return the settings with an absolute corpus path, valid in any working directory."""
    root = str(Path(config.data.root).absolute())
    return replace(config, data=replace(config.data, root=root))


def follows_clock(config: TrainConfig) -> bool:
    """Return whether learning rates depend on the speed of the machine."""
    schedule = SCHEDULES.get_entry(config.optim.schedule.name)
    return schedule.follows_progress and config.trainer.max_minutes is not None


def check_resumable(stored: TrainConfig, changed: TrainConfig) -> list[Change]:
    """Return the settings that a resumed run changes.

    Raises:
        ValueError: a changed setting decides the parameters, the text or the order of the data.
    """
    before, after = asdict(stored), asdict(changed)
    if fixed := changes(before, after, "parameters", "corpus", "text", "order"):
        raise ValueError(
            f"resume={changed.resume} cannot change what the run was started with: "
            f"{'; '.join(map(str, fixed))}. Start a new run instead."
        )
    return changes(before, after)
