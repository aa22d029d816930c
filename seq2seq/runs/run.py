"""A run from its configuration: everything is built here, and summed up here at the end."""

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq.checkpoint import Checkpoint
from seq2seq.config.changes import changes
from seq2seq.config.data import DataConfig
from seq2seq.config.schema import Change
from seq2seq.config.training import TrainConfig
from seq2seq.data.corpus import Corpus, open_corpus
from seq2seq.data.preparation import prepare
from seq2seq.data.report import report_lines
from seq2seq.device import counted, select_device, set_threads
from seq2seq.evaluation.bleu import check_tokenizer
from seq2seq.evaluation.metrics import format_scores
from seq2seq.fast.accelerate import accelerate
from seq2seq.model.build import build_model
from seq2seq.precision import select_precision
from seq2seq.randomness import seed_everything
from seq2seq.run_folder import checkpoint_path
from seq2seq.runs.manifest import (
    describe_start,
    record_start,
    write_json,
)
from seq2seq.scoring.evaluate import TestSet, beside, evaluate_and_write, read_test_set
from seq2seq.search.loading import load_translator
from seq2seq.training.limits import follows_clock
from seq2seq.training.trainer import Trainer

log = logging.getLogger(__name__)


class Texts(NamedTuple):
    """Files of a corpus, and the text of its validation and test splits."""

    corpus: Corpus
    valid: TestSet
    test: TestSet


def read_texts(config: DataConfig) -> Texts:
    """Open a corpus and read the splits that are scored.

    Raises:
        ValueError, OSError: something is wrong with the files; names file and line.
    """
    corpus = open_corpus(config)
    valid, test = (read_test_set(corpus.files(split)) for split in ("valid", "test"))
    return Texts(corpus, valid, test)


class Run:
    """One training run in its folder.

    Args:
        config: its settings.
        folder: where it writes.
        resumed: the checkpoint to continue from.
        texts: of its corpus, where they were read already.

    Raises:
        ValueError, OSError: something is wrong with settings or data; one line says what.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: Path,
        resumed: Checkpoint | None = None,
        texts: Texts | None = None,
    ):
        self.config, self.folder = config, folder
        # In full, because the checkpoint is evaluated from other folders.
        config.data.root = str(Path(config.data.root).absolute())
        self.device = select_device(config.device)
        # Refused now, not after the corpus is prepared.
        select_precision(config.precision, self.device)
        threads = set_threads(config.threads)
        warning = check_tokenizer(config.data.target_language, config.metric_tokenizer)
        if warning:
            log.warning(warning)
        seed_everything(config.seed)
        # Read before training: an error in the test split must not be found after a night.
        opened, self.valid, self.test = texts or read_texts(config.data)
        corpus = prepare(opened, config.data)
        for line in report_lines(corpus.report):
            log.info(line)
        model = build_model(
            config.model, len(corpus.source.vocabulary), len(corpus.target.vocabulary)
        )
        model = accelerate(model).to(self.device)
        self.num_parameters = sum(parameter.numel() for parameter in model.parameters())
        log.info(
            "%s parameters, device %s, %s, run folder %s",
            f"{self.num_parameters:,}",
            self.device,
            counted(threads, "thread"),
            folder,
        )
        if follows_clock(config):
            log.info("the learning rate follows the clock: another run will differ a little")
        self.trainer = Trainer(model, corpus, self.valid, config, folder, resumed)
        step = self.trainer.progress.step
        self.start = describe_start(config, opened.digests, corpus.folder.name, self.device, step)
        record_start(folder, self.start)

    def finish(self) -> dict[str, Any]:
        """Score the best checkpoint on the validation and test parts; write ``summary.json``.

        Raises:
            Interrupted: asked to stop; a resumed run has only this left to do.
        """
        with self.trainer.stop.noted(), self.trainer.stop.raised():
            return self._score()

    def _score(self) -> dict[str, Any]:
        best = checkpoint_path(self.folder, "best")
        self.trainer.release()
        translator = load_translator(best, self.config.decoding, self.device)[0]
        log.info(
            "scoring the best checkpoint (step %s), beam %d",
            f"{self.trainer.progress.best_step:,}",
            self.config.decoding.beam_size,
        )
        scores = {
            name: evaluate_and_write(
                translator, test_set, beside(best, name), self.config.metric_tokenizer
            )
            for name, test_set in (("test", self.test), ("valid", self.valid))
        }
        progress = self.trainer.progress
        summary = scores | {
            "steps": progress.step,
            "epochs": progress.epoch,
            "seconds": progress.seconds,
            "tokens": progress.tokens,
            "tokens_per_second": progress.tokens / max(progress.training_seconds, 1e-9),
            "parameters": self.num_parameters,
            "best_step": progress.best_step,
            "skipped_updates": progress.skipped,
            "decoding": asdict(self.config.decoding),
            "corpus_sha256": self.start["corpus"],
            "environment": self.start["environment"],
            "command": self.start["command"],
        }
        write_json(self.folder / "summary.json", summary, indent=2)
        self._report(summary)
        return summary

    def _report(self, summary: dict[str, Any]) -> None:
        """The last lines that a person reads."""
        for name in ("valid", "test"):
            log.info("%-5s  %s", name, format_scores(summary[name]))
        log.info("summary     %s", self.folder / "summary.json")
        log.info("pictures    %s", self.folder / "alignments")
        log.info(
            "TensorBoard make tensorboard   (or: tensorboard --logdir %s "
            "--samples_per_plugin images=1000,text=1000)",
            self.folder,
        )


def check_resumable(stored: TrainConfig, changed: TrainConfig) -> list[Change]:
    """Return the settings that a resumed run changes.

    Raises:
        ValueError: one of them decides what the parameters mean or in which order data come.
    """
    before, after = asdict(stored), asdict(changed)
    if fixed := changes(before, after, "parameters", "corpus", "text", "order"):
        raise ValueError(
            f"resume={changed.resume} cannot change what the run was started with: "
            f"{'; '.join(map(str, fixed))}. Start a new run instead."
        )
    return changes(before, after)
