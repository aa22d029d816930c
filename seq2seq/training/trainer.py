"""The training loop: updates, validations, checkpoints, and the same again after a restart."""

import logging
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NoReturn

import torch
from tqdm import tqdm

from seq2seq.checkpoint import Checkpoint
from seq2seq.config.training import TrainConfig
from seq2seq.data.batching import Batch, load_batches
from seq2seq.data.preparation import PreparedCorpus
from seq2seq.device import hand_back_memory, is_out_of_memory
from seq2seq.evaluation.metrics import METRICS, get_values, is_better
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.precision import select_precision
from seq2seq.scoring.evaluate import Result, TestSet, evaluate, show_sentences
from seq2seq.search.translator import Translator
from seq2seq.signals import Interrupted, StopSignals
from seq2seq.training.checkpoints import keep_checkpoints, rank, step_path
from seq2seq.training.journal import Journal
from seq2seq.training.limits import is_over, share_done
from seq2seq.training.optim import build_optimizer, rate_factor, set_learning_rate
from seq2seq.training.plan import name_pairs, plan_epoch
from seq2seq.training.state import Progress, restore_run, save_run
from seq2seq.training.update import accumulate

PATIENCE_WITH_NONSENSE = 5  # updates in a row without a finite gradient, after which to stop

log = logging.getLogger(__name__)


class Trainer:
    """Trains a model on a prepared corpus and keeps the run folder.

    Args:
        model: the model, on its device.
        corpus: ids to train on.
        valid: sentences to validate on.
        config: the run's settings.
        run_dir: its folder.
        resumed: the checkpoint to continue from.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        corpus: PreparedCorpus,
        valid: TestSet,
        config: TrainConfig,
        run_dir: Path,
        resumed: Checkpoint | None = None,
    ):
        self.model, self.corpus, self.valid = model, corpus, valid
        self.config, self.run_dir = config, run_dir
        self.optimizer = build_optimizer(config.optim, model.parameters())
        self.precision = select_precision(config.precision, model.device)
        self.metric = METRICS.get_entry(config.trainer.select)
        self.progress = Progress()
        if resumed is not None:
            self.progress = restore_run(resumed, model, self.optimizer)
            self.precision.scaling = self.progress.scaling
        validated = self.progress.validated_step == self.progress.step
        self.journal = Journal(run_dir, self.progress.step, validated)
        decoding = replace(config.decoding, beam_size=config.trainer.validation_beam_size)
        self.translator = Translator(model, corpus.source, corpus.target, decoding)
        self.until: int | None = None
        self.stop = StopSignals()
        self.bar: tqdm | None = None

    def fit(self, until: int | None = None) -> Progress:
        """Train until one of the limits is reached; or, whatever they are, for ``until`` updates.

        Raises:
            Interrupted: asked to stop; everything is saved.
            ValueError: the loss has been no number for several updates.
        """
        self.until = until
        # A bar for a person at a terminal; plain lines for a log file.
        self.bar = tqdm(
            initial=self.progress.step,
            total=self.config.trainer.max_steps,
            unit="step",
            disable=None,
        )
        with self.stop.noted():
            try:
                self._train()
            finally:
                self.bar.close()
                self.journal.close()
        self.stop.check()  # since the last time: all is saved
        return self.progress

    def _train(self) -> None:
        settings, progress = self.config.trainer, self.progress
        if progress.step % settings.validate_every_steps == 0:
            self._validate_once()  # where the run was stopped while it validated
        while not self.finished():
            for batches in self._epoch():
                started = time.perf_counter()
                self._update(batches)
                self._count_seconds(started)
                if progress.step % settings.log_every_steps == 0:
                    self._log()
                self._stop_if_asked()
                if progress.step % settings.validate_every_steps == 0:
                    self._validate_once()
                if self.finished():
                    break
            else:
                progress.epoch, progress.position = progress.epoch + 1, 0
        self._validate_once()
        self._stop_if_asked()

    def release(self) -> None:
        """Let go of what only more updates would need, twice the size of the model; it is saved."""
        self.optimizer.state.clear()
        hand_back_memory()

    def finished(self) -> bool:
        """Whether a limit is reached."""
        if self.until is not None:
            return self.progress.step >= self.until
        return is_over(self.config.trainer, self.progress)

    def _epoch(self) -> Iterator[list[Batch]]:
        """The rest of this epoch's batches, in groups that make one update each."""
        corpus, progress = self.corpus, self.progress
        plan = plan_epoch(self.config, corpus, progress.epoch, progress.position)
        batches = load_batches(corpus.source_ids, corpus.target_ids, plan, self.model.device)
        while group := list(islice(batches, self.config.trainer.accumulate_batches)):
            # Counted before they are used: whoever saves after the update has used them.
            progress.position += sum(len(batch.source) for batch in group)
            yield group

    def _update(self, batches: list[Batch]) -> None:
        """One update from the gradient of all batches together."""
        self.model.train()
        progress, optim, scaler = self.progress, self.config.optim, self.precision.scaler
        self.optimizer.zero_grad(set_to_none=True)
        smoothing = self.config.trainer.label_smoothing
        try:
            nll, num_tokens = accumulate(self.model, batches, smoothing, self.precision)
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                self._give_up(batches, error)
            raise
        scaler.unscale_(self.optimizer)
        limit = math.inf if optim.max_gradient_norm is None else optim.max_gradient_norm
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        done = share_done(self.config.trainer, progress, len(self.corpus.source_ids))
        rate = optim.learning_rate * rate_factor(optim.schedule, progress.step, done)
        set_learning_rate(self.optimizer, rate)
        if math.isfinite(norm) and math.isfinite(nll):
            self.optimizer.step()
            progress.nonsense = 0
            progress.interval_tokens += num_tokens
            progress.interval_nll += nll
        else:
            self._skip(norm, nll, batches)
        scaler.update()
        progress.scaling = self.precision.scaling
        progress.step += 1
        progress.tokens += num_tokens
        self.last = {"gradient_norm": norm, "learning_rate": rate}
        assert self.bar is not None
        self.bar.update()

    def _give_up(self, batches: list[Batch], error: Exception) -> NoReturn:
        """Save the run as it was before batches that there is no memory for, and name them."""
        self.optimizer.zero_grad(set_to_none=True)
        pairs = name_pairs(self.config, self.corpus, self.progress, batches)
        self.progress.position -= sum(len(batch.source) for batch in batches)  # not used after all
        self._save()
        sizes = {
            "batch_tokens": self.config.trainer.batch_tokens,
            "batch_sentences": self.config.trainer.batch_sentences,
        }
        given = " or ".join(f"trainer.{name}={size}" for name, size in sizes.items() if size)
        raise ValueError(
            f"step {self.progress.step + 1}: out of memory for {pairs}; the run is saved, resume "
            f"it with a smaller {given}."
        ) from error

    def _skip(self, norm: float, nll: float, batches: list[Batch]) -> None:
        if self.precision.scaler.get_scale() > 1 and math.isfinite(nll):
            return  # too large for fp16 as it was scaled: the next one is scaled less
        progress, step = self.progress, self.progress.step + 1
        progress.skipped += 1
        progress.nonsense += 1
        pairs = name_pairs(self.config, self.corpus, progress, batches)
        log.warning("step %d: loss %g, gradient norm %g; skipped: %s", step, nll, norm, pairs)
        if progress.nonsense >= PATIENCE_WITH_NONSENSE:
            raise ValueError(
                f"step {step}: {PATIENCE_WITH_NONSENSE} updates in a row had no finite gradient, "
                f"the last one of {pairs}; resume with a smaller "
                f"optim.learning_rate={self.config.optim.learning_rate:g}."
            )

    def _count_seconds(self, started: float) -> None:
        seconds = time.perf_counter() - started
        self.progress.seconds += seconds
        self.progress.training_seconds += seconds
        self.progress.interval_seconds += seconds

    def _log(self) -> None:
        """One line about the updates since the last one; losses in nats per target token."""
        progress = self.progress
        values = {
            "loss": progress.interval_nll / max(progress.interval_tokens, 1),
            "gradient_norm": self.last["gradient_norm"],  # before clipping
            "learning_rate": self.last["learning_rate"],
            "tokens_per_second": progress.interval_tokens / max(progress.interval_seconds, 1e-9),
        }
        self.journal.record("train", progress.step, values)
        of_all = f"/{epochs}" if (epochs := self.config.trainer.max_epochs) else ""
        self._say(
            f"step {progress.step:>6}  epoch {progress.epoch + 1}{of_all}  "
            f"loss {values['loss']:.3f}  gradient {values['gradient_norm']:.2f}  "
            f"rate {values['learning_rate']:.2g}  {values['tokens_per_second']:,.0f} tokens/s"
        )
        progress.interval_nll, progress.interval_tokens = 0.0, 0
        progress.interval_seconds = 0.0

    def _validate_once(self) -> None:
        """Validate, unless that was done at this very step."""
        if self.progress.validated_step == self.progress.step:
            return
        self.optimizer.zero_grad(set_to_none=True)  # as large as the model: translating needs room
        try:
            # A validation may take minutes, which nobody who sends SIGTERM will wait: it is left
            # out now, and made up for when the run is resumed.
            with self.stop.raised():
                started = time.perf_counter()
                result = evaluate(self.translator, self.valid, self.config.metric_tokenizer)
        except Interrupted:
            self._save()
            raise
        self._validate(result, started)

    def _validate(self, result: Result, started: float) -> None:
        """Keep the scores of the validation part, its pictures, and the checkpoint."""
        progress = self.progress
        progress.validated_step = progress.step
        values = get_values(result.scores)
        self.journal.record("valid", progress.step, values)
        lines = self.config.trainer.sentences
        show_sentences(result, self.valid, lines, progress.step, self.run_dir, self.journal)
        new = values[self.metric.name]
        # A broken model still has a BLEU, if only 0; and the words of a broken embedding may all
        # be missing here.
        finite = math.isfinite(values["loss"]) and math.isfinite(new)
        finite = finite and all(bool(p.isfinite().all()) for p in self.model.parameters())
        better = finite and is_better(self.metric, new, progress.best_score)
        if finite:
            scored, count = (new, progress.step), self.config.trainer.keep_best
            progress.ranking = rank(progress.ranking, scored, self.metric, count)
        if better:
            progress.best_score, progress.best_step, progress.stale = new, progress.step, 0
        else:
            progress.stale += 1
        self._say(
            f"step {progress.step:>6}  valid  "
            + "  ".join(f"{name} {value:.3f}" for name, value in values.items())
            + ("  (best so far)" if better else "")
        )
        progress.seconds += time.perf_counter() - started
        self._save()

    def _save(self) -> None:
        """Write the whole run, and see to which checkpoints are kept."""
        self.journal.flush()
        sides = {"source": self.corpus.source, "target": self.corpus.target}
        path = step_path(self.run_dir, self.progress.step)
        save_run(path, self.model, self.optimizer, self.progress, self.config, sides)
        keep_checkpoints(self.run_dir, self.progress, self.config.trainer)

    def _stop_if_asked(self) -> None:
        if self.stop.number is not None:
            self._save()
            self.stop.check()

    def _say(self, line: str) -> None:
        # Through tqdm, so that the line does not cut the bar in two.
        with tqdm.external_write_mode(file=sys.stderr):
            log.info(line)
