"""The training loop: updates, validations, checkpoints and resuming."""

import logging
import math
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NoReturn

import torch
from tqdm import tqdm

from seq2seq.checkpoint import Checkpoint
from seq2seq.config.training import TrainerConfig
from seq2seq.device import is_out_of_memory, release_memory
from seq2seq.evaluation.metrics import Metric, format_values, is_better
from seq2seq.precision import Precision
from seq2seq.run_folder import RunFolder
from seq2seq.signals import Interrupted, StopSignals
from seq2seq.training.checkpoints import keep_checkpoints, rank
from seq2seq.training.journal import Journal
from seq2seq.training.optim import set_learning_rate
from seq2seq.training.progress import Progress, format_update, is_over, share_done
from seq2seq.training.state import restore_run, save_run
from seq2seq.training.task import Objective, Report, Task

MAX_CONSECUTIVE_SKIPS = 5  # updates in a row without a finite gradient, after which to stop

log = logging.getLogger(__name__)


class Trainer:
    """Trains a task and writes its run folder.

    Args:
        task: the task to train, with its model on its device.
        settings: when to log, validate, save and stop.
        folder: the run folder.
        precision: precision of the matrix products.
        metric: the metric that decides which checkpoint is best.
        header: JSON for every checkpoint, such as the settings of the run.
        resumed: the checkpoint to continue from.
    """

    def __init__(
        self,
        task: Task,
        settings: TrainerConfig,
        folder: RunFolder,
        precision: Precision,
        metric: Metric,
        header: Mapping[str, Any] | None = None,
        resumed: Checkpoint | None = None,
    ):
        self.task, self.settings, self.folder = task, settings, folder
        self.precision, self.metric, self.header = precision, metric, header or {}
        self.progress = Progress(interval_losses=[0.0] * len(task.objectives))
        if resumed is not None:
            self.progress = restore_run(resumed, task)
            self.precision.scaling = self.progress.scaling
        validated = self.progress.validated_step == self.progress.step
        self.journal = Journal(folder, self.progress.step, validated)
        self.latest: dict[str, float] = {}  # gradient norms and learning rates, for the log
        self.until: int | None = None
        self.stop = StopSignals()
        self.bar: tqdm | None = None

    def fit(self, until: int | None = None) -> Progress:
        """Train until a limit is reached or, if ``until`` is given, for exactly that many updates.

        Raises:
            Interrupted: the run was asked to stop; everything is saved.
            ValueError: several updates in a row had no finite gradient, or memory ran out.
        """
        self.until = until
        # A progress bar on a terminal; only log lines elsewhere.
        self.bar = tqdm(
            initial=self.progress.step, total=self.settings.max_steps, unit="step", disable=None
        )
        with self.stop.noted():
            try:
                self._train()
            finally:
                self.bar.close()
                self.journal.close()
        self.stop.check()  # a signal may have come after the last check; everything is saved
        return self.progress

    def _train(self) -> None:
        settings, progress = self.settings, self.progress
        if progress.step % settings.validate_every_steps == 0:
            self._validate_once()  # in case the run was stopped during this validation
        while not self.finished():
            for batches in self._epoch():
                started = time.perf_counter()
                self._update(batches)
                progress.count_seconds(time.perf_counter() - started)
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
        """Free the optimizer states, which only updates need; they are saved."""
        for objective in self.task.objectives:
            objective.optimizer.state.clear()
        release_memory()

    def finished(self) -> bool:
        """Return whether a limit is reached."""
        if self.until is not None:
            return self.progress.step >= self.until
        return is_over(self.settings, self.progress)

    def _epoch(self) -> Iterator[list[Any]]:
        """Yield the remaining batches of this epoch, in groups of one update each."""
        progress = self.progress
        batches = iter(self.task.batches(progress.epoch, progress.position))
        while group := list(islice(batches, self.settings.accumulate_batches)):
            # Counted before use: a checkpoint is only written after the update.
            progress.position += self._num_examples(group)
            yield group

    def _num_examples(self, batches: list[Any]) -> int:
        return sum(self.task.size(batch).examples for batch in batches)

    def _update(self, batches: list[Any]) -> None:
        """Update every objective once, from the gradient of all batches together."""
        self.task.model.train()
        progress, scaler = self.progress, self.precision.scaler
        num_items = sum(self.task.size(batch).items for batch in batches)
        losses, norms = [], []
        is_finite = True
        for objective in self.task.objectives:
            loss, norm = self._step(objective, batches, num_items)
            losses.append(loss)
            norms.append(norm)
            is_finite = is_finite and math.isfinite(norm) and math.isfinite(loss)
        if is_finite:
            progress.consecutive_skips = 0
            progress.interval_items += num_items
            progress.interval_losses = [
                total + loss for total, loss in zip(progress.interval_losses, losses, strict=True)
            ]
        else:
            self._skip(losses, norms, batches)
        scaler.update()
        progress.scaling = self.precision.scaling
        progress.step += 1
        progress.items += num_items
        assert self.bar is not None
        self.bar.update()

    def _step(
        self, objective: Objective, batches: list[Any], num_items: int
    ) -> tuple[float, float]:
        """Update the parameters of one objective, unless its gradient is not finite.

        Returns:
            Its loss, summed over the items of all batches, and the norm of its gradient.
        """
        objective.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        try:
            for batch in batches:
                with self.precision.autocast():
                    loss = self.task.loss(objective, batch)
                # Divided by the items of all batches, so that four small batches equal a large one.
                self.precision.scaler.scale(loss.objective / num_items).backward()
                total += loss.reported.item()
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                self._give_up(batches, error)
            raise
        self.precision.scaler.unscale_(objective.optimizer)
        limit = objective.max_gradient_norm or math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(objective.parameters, limit))
        done = share_done(self.settings, self.progress, self.task.num_examples)
        rate = objective.learning_rate * objective.schedule(self.progress.step, done)
        set_learning_rate(objective.optimizer, rate)
        if math.isfinite(norm) and math.isfinite(total):
            objective.optimizer.step()
        self.latest[self._curve("gradient_norm", objective)] = norm
        self.latest[self._curve("learning_rate", objective)] = rate
        return total, norm

    def _curve(self, name: str, objective: Objective) -> str:
        """Return the name of a curve, with the objective's name if there are several."""
        return name if len(self.task.objectives) == 1 else f"{name}_{objective.name}"

    def _describe(self, batches: list[Any]) -> str:
        """Describe the examples of the batches that ``progress`` counted last."""
        position = self.progress.position - self._num_examples(batches)
        return self.task.describe(self.progress.epoch, position, len(batches))

    def _give_up(self, batches: list[Any], error: Exception) -> NoReturn:
        """Save the run as it was before these batches, which do not fit into memory."""
        for objective in self.task.objectives:
            objective.optimizer.zero_grad(set_to_none=True)
        examples = self._describe(batches)
        self.progress.position -= self._num_examples(batches)  # they were not used
        self._save()
        raise ValueError(
            f"step {self.progress.step + 1}: out of memory for {examples}; the run is saved, "
            f"resume it with a smaller {self.task.batch_settings()}."
        ) from error

    def _skip(self, losses: list[float], norms: list[float], batches: list[Any]) -> None:
        """Count and report an update that was skipped.

        Raises:
            ValueError: too many updates in a row were skipped.
        """
        if self.precision.scaler.get_scale() > 1 and all(map(math.isfinite, losses)):
            return  # fp16 overflowed at this scale; the next update uses a smaller one
        progress, step = self.progress, self.progress.step + 1
        progress.skipped += 1
        progress.consecutive_skips += 1
        examples = self._describe(batches)
        shown = [", ".join(f"{value:g}" for value in values) for values in (losses, norms)]
        log.warning("step %d: loss %s, gradient norm %s; skipped: %s", step, *shown, examples)
        if progress.consecutive_skips >= MAX_CONSECUTIVE_SKIPS:
            rate = max(objective.learning_rate for objective in self.task.objectives)
            raise ValueError(
                f"step {step}: {MAX_CONSECUTIVE_SKIPS} updates in a row had no finite gradient, "
                f"the last one of {examples}; resume with a smaller optim.learning_rate={rate:g}."
            )

    def _log(self) -> None:
        """Log the updates since the last log line; losses are means over items."""
        progress, items = self.progress, self.progress.interval_items
        speed = items / max(progress.interval_seconds, 1e-9)
        losses = {
            self._curve("loss", objective): total / max(items, 1)
            for objective, total in zip(self.task.objectives, progress.interval_losses, strict=True)
        }
        # Gradient norms are those before clipping.
        values = losses | self.latest | {f"{self.task.item_name}_per_second": speed}
        self.journal.record("train", progress.step, values)
        self._say(format_update(progress, self.settings.max_epochs, values))
        progress.interval_losses = [0.0] * len(progress.interval_losses)
        progress.interval_items, progress.interval_seconds = 0, 0.0

    def _validate_once(self) -> None:
        """Validate, unless the run was already validated at this step."""
        if self.progress.validated_step == self.progress.step:
            return
        for objective in self.task.objectives:
            # Gradients are as large as the model; free them, because validation needs memory.
            objective.optimizer.zero_grad(set_to_none=True)
        try:
            # A validation may take minutes, which is too long after SIGTERM: it is abandoned, and
            # repeated when the run is resumed.
            with self.stop.raised():
                started = time.perf_counter()
                report = self.task.validate(self.progress.step)
        except Interrupted:
            self._save()
            raise
        self._record_validation(report, started)

    def _record_validation(self, report: Report, started: float) -> None:
        """Log the scores and pictures of a validation, rank it, and save the checkpoint."""
        progress = self.progress
        progress.validated_step = progress.step
        self.journal.record("valid", progress.step, report.values)
        for tag, drawing in report.drawings.items():
            self.journal.draw(tag, progress.step, drawing)
        for tag, text in report.texts.items():
            self.journal.text(tag, progress.step, text)
        if (score := report.values.get(self.metric.name)) is None:
            raise ValueError(
                f"trainer.select={self.metric.name}: the validation has no such score; choose one "
                f"of {', '.join(report.values)}."
            )
        # A diverged model still has a BLEU score, and words with non-finite embeddings may not
        # occur in the validation set.
        is_finite = math.isfinite(report.values.get("loss", 0.0)) and math.isfinite(score)
        is_finite = is_finite and all(
            bool(parameter.isfinite().all()) for parameter in self.task.model.parameters()
        )
        is_best = is_finite and is_better(self.metric, score, progress.best_score)
        if is_finite:
            scored = (score, progress.step)
            progress.ranking = rank(progress.ranking, scored, self.metric, self.settings.keep_best)
        if is_best:
            progress.best_score, progress.best_step, progress.stale = score, progress.step, 0
        else:
            progress.stale += 1
        best = "  (best so far)" if is_best else ""
        self._say(f"step {progress.step:>6}  valid  {format_values(report.values)}{best}")
        progress.seconds += time.perf_counter() - started
        self._save()

    def _save(self) -> None:
        """Save the run, and remove checkpoints that are no longer kept."""
        self.journal.flush()
        path = self.folder.step_checkpoint(self.progress.step)
        save_run(path, self.task, self.progress, self.header)
        keep_checkpoints(self.folder, self.progress, self.settings)

    def _stop_if_asked(self) -> None:
        if self.stop.number is not None:
            self._save()
            self.stop.check()

    def _say(self, line: str) -> None:
        # Through tqdm, so that the line does not break the progress bar.
        with tqdm.external_write_mode(file=sys.stderr):
            log.info(line)
