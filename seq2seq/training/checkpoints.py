"""Saves, links, removes and finds the checkpoints of a run.

``last`` and ``best`` are hard links to two of the ``step_<n>.safetensors`` files (copies, where the
file system has no hard links): real files that can be moved on their own. A save writes
``step_<n>``, then links ``best`` to it if it is the best, then ``last``, and only then removes
older files. If the process is killed between any two of these steps, the run continues from
``last`` and completes the rest.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from filelock import FileLock, Timeout

from seq2seq.checkpoint import Checkpoint, DamagedCheckpointError, link_checkpoint, load_checkpoint
from seq2seq.config.training import TrainerConfig
from seq2seq.evaluation.metrics import Metric, is_better
from seq2seq.run_folder import RunFolder
from seq2seq.training.progress import Progress

log = logging.getLogger(__name__)


@contextmanager
def claim(folder: RunFolder) -> Iterator[None]:
    """Hold the lock of a run folder, so that only one process at a time trains in it.

    The kernel frees the lock when the process dies, even by ``kill -9``.

    Raises:
        OSError: another process holds the lock.
    """
    folder.path.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.lock)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise OSError(
            f"resume={folder.path} is in use: another process trains there. Wait until it is "
            f"done, or stop it."
        ) from error
    try:
        yield
    finally:
        lock.release()


def keep_checkpoints(folder: RunFolder, progress: Progress, settings: TrainerConfig) -> None:
    """Link ``last`` and ``best`` to the newest checkpoint, then remove older ones."""
    newest = folder.step_checkpoint(progress.step)
    if progress.best_score is not None and progress.best_step == progress.step:
        link_checkpoint(newest, folder.checkpoint("best"))
    link_checkpoint(newest, folder.checkpoint("last"))
    steps = folder.saved_steps()
    # Later checkpoints are left over from before the run was resumed at an earlier step.
    recent = [step for step in steps if step <= progress.step][: settings.keep_last]
    best = [step for _, step in progress.ranking[: settings.keep_best]]
    unwanted = [path for step, path in steps.items() if step not in {*recent, *best}]
    for name in ("step_*", "last", "best"):
        unwanted += newest.parent.glob(f"{name}.safetensors*.partial")
    for path in unwanted:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            # The run is saved, so a file that cannot be removed must not end it.
            log.warning("%s could not be removed (%s)", path, error)


def rank(
    ranking: list[tuple[float, int]], new: tuple[float, int], metric: Metric, count: int
) -> list[tuple[float, int]]:
    """Return the ``count`` best validations (score, step), best first; ties: earlier first."""
    position = sum(not is_better(metric, new[0], score) for score, _ in ranking)
    return [*ranking[:position], new, *ranking[position:]][:count]


def newest_checkpoint(folder: RunFolder) -> Checkpoint:
    """Load the checkpoint to continue from: ``last``, or the newest undamaged one.

    If ``last`` has a newer format or cannot be read, no earlier checkpoint is used instead, because
    the continued run would replace it.

    Raises:
        ValueError, OSError: the error of ``last``, if no earlier checkpoint can be used.
    """
    try:
        return load_checkpoint(folder.checkpoint("last"))
    except (DamagedCheckpointError, FileNotFoundError) as error:
        for path in folder.saved_steps().values():
            if (checkpoint := _load_undamaged(path)) is not None:
                log.warning("%s Continuing from %s instead.", error, path)
                return _with_valid_best(folder, checkpoint)
        raise


def _load_undamaged(path: Path) -> Checkpoint | None:
    """Load a checkpoint; return None if it is damaged or missing."""
    try:
        return load_checkpoint(path)
    except (DamagedCheckpointError, FileNotFoundError):
        return None


def _with_valid_best(folder: RunFolder, checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint, with a corrected record of the best one if ``best`` is damaged as
    well, which is so if ``best`` and ``last`` are the same file."""
    best = folder.checkpoint("best")
    progress = checkpoint.read("progress", Progress)
    if progress.best_score is None or _load_undamaged(best) is not None:
        return checkpoint
    earlier = folder.step_checkpoint(progress.best_step)
    if _load_undamaged(earlier) is not None:
        link_checkpoint(earlier, best)
        return checkpoint
    log.warning("%s is damaged as well: the next validation will replace it", best)
    without = replace(progress, best_score=None, best_step=0, ranking=[])
    return checkpoint._replace(header=checkpoint.header | {"progress": asdict(without)})
