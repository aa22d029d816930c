"""A run folder: one process at a time writes in it, and which checkpoints it keeps.

    lock                            of the process that trains here
    checkpoints/step_<n>.safetensors    the run after n updates
    checkpoints/last.safetensors        the newest of these: where the run goes on
    checkpoints/best.safetensors        the best of these by ``trainer.select``

``last`` and ``best`` are hard links (copies, where the file system has none): real files that can
be moved alone. A save writes ``step_<n>``, then names it ``best`` if it is, then ``last``, and
only then removes what is no longer kept. Killed between any two of these, the run goes on from
``last`` and makes up for the rest on its way.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from filelock import FileLock, Timeout

from seq2seq.checkpoint import Checkpoint, DamagedCheckpointError, link_checkpoint, load_checkpoint
from seq2seq.config.training import TrainerConfig
from seq2seq.evaluation.metrics import Metric, is_better
from seq2seq.run_folder import checkpoint_path
from seq2seq.training.state import Progress

log = logging.getLogger(__name__)


@contextmanager
def claim(run_dir: Path) -> Iterator[None]:
    """Hold the lock of a run folder, so that only one process at a time trains in it.

    The kernel frees the lock when the process dies, even by ``kill -9``.

    Raises:
        OSError: another process holds the lock.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    lock = FileLock(run_dir / "lock")
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise OSError(
            f"resume={run_dir} is in use: another process trains there. Wait until it is done, or "
            f"stop it."
        ) from error
    try:
        yield
    finally:
        lock.release()


def step_path(run_dir: Path, step: int) -> Path:
    """The checkpoint of a run after so many updates."""
    return checkpoint_path(run_dir, f"step_{step}")


def saved_steps(run_dir: Path) -> dict[int, Path]:
    """The checkpoints that a run keeps under their steps, the newest first."""
    found = {
        int(match[1]): path
        for path in (run_dir / "checkpoints").glob("step_*.safetensors")
        if (match := re.fullmatch(r"step_(\d+)\.safetensors", path.name))
    }
    return dict(sorted(found.items(), reverse=True))


def keep_checkpoints(run_dir: Path, progress: Progress, settings: TrainerConfig) -> None:
    """Name the checkpoint that was just saved, then remove those that are no longer kept."""
    newest = step_path(run_dir, progress.step)
    if progress.best_score is not None and progress.best_step == progress.step:
        link_checkpoint(newest, checkpoint_path(run_dir, "best"))
    link_checkpoint(newest, checkpoint_path(run_dir, "last"))
    steps = saved_steps(run_dir)
    # Later ones are of a time that the run was taken back from.
    recent = [step for step in steps if step <= progress.step][: settings.keep_last]
    best = [step for _, step in progress.ranking[: settings.keep_best]]
    unwanted = [path for step, path in steps.items() if step not in {*recent, *best}]
    for name in ("step_*", "last", "best"):
        unwanted += (run_dir / "checkpoints").glob(f"{name}.safetensors*.partial")
    for path in unwanted:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            # The run is saved: that something cannot be tidied up must not end it.
            log.warning("%s could not be removed (%s)", path, error)


def rank(
    ranking: list[tuple[float, int]], new: tuple[float, int], metric: Metric, count: int
) -> list[tuple[float, int]]:
    """The ``count`` best validations as (score, step), best first, earlier ones before equals."""
    place = sum(not is_better(metric, new[0], score) for score, _ in ranking)
    return [*ranking[:place], new, *ranking[place:]][:count]


def newest_checkpoint(run_dir: Path) -> Checkpoint:
    """Where a run goes on: ``last``, or, where that is damaged, the newest that is not.

    A file of a newer format, or that may not be read, is no reason to go back: going on would
    replace it.

    Raises:
        ValueError, OSError: what is wrong with ``last``, if there is none before it to go on from.
    """
    last, *earlier = checkpoint_path(run_dir, "last"), *saved_steps(run_dir).values()
    try:
        return load_checkpoint(last)
    except (DamagedCheckpointError, FileNotFoundError) as error:
        for path in earlier:
            if (checkpoint := _if_whole(path)) is not None:
                log.warning("%s Going on from %s instead.", error, path)
                return _with_a_best(run_dir, checkpoint)
        raise


def _if_whole(path: Path) -> Checkpoint | None:
    """The checkpoint, unless it is damaged or missing."""
    try:
        return load_checkpoint(path)
    except (DamagedCheckpointError, FileNotFoundError):
        return None


def _with_a_best(run_dir: Path, checkpoint: Checkpoint) -> Checkpoint:
    """The same, but for a ``best`` that was damaged together with ``last``, being the same file."""
    best = checkpoint_path(run_dir, "best")
    progress = checkpoint.read("progress", Progress)
    if progress.best_score is None or _if_whole(best) is not None:
        return checkpoint
    earlier = step_path(run_dir, progress.best_step)
    if _if_whole(earlier) is not None:
        link_checkpoint(earlier, best)
        return checkpoint
    log.warning("%s is damaged too: the next validation makes a new one", best)
    without = replace(progress, best_score=None, best_step=0, ranking=[])
    return checkpoint._replace(header=checkpoint.header | {"progress": asdict(without)})
