"""The folder of a run: whose it is, and what becomes of one in which nothing was done."""

import shutil
from contextlib import suppress
from datetime import datetime
from pathlib import Path

SNAPSHOT = ".hydra"  # where the composed settings are kept
# What a run has in its folder before it begins: settings, an empty log, a lock.
BEGINNINGS = {SNAPSHOT, "train.log", "lock"}


def run_dir(resume: str | None, name: str, prefix: str = "") -> str:
    """The folder of this run: the one to continue, or a new one that nobody else has."""
    if resume is not None:
        return resume
    stamp = Path("runs") / name / datetime.now().strftime(f"{prefix}%Y-%m-%d_%H-%M-%S")
    for attempt in range(1000):
        path = stamp if attempt == 0 else stamp.with_name(f"{stamp.name}_{attempt + 1}")
        try:
            # Made at once and never shared: two starts within a second get two folders.
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return str(path)
    raise OSError(f"{stamp} and 999 folders beside it exist already.")


def snapshot(folder: str | None) -> str | None:
    """Where Hydra keeps the composed config: nowhere, where a run goes on in ``folder``. That may
    yet be refused; what it goes on with, its manifest says."""
    begun = folder is not None and (Path(folder) / SNAPSHOT).exists()
    return None if begun else SNAPSHOT


def discard_beginnings(folder: Path) -> None:
    """Remove the folder of a run that was refused before it began, and parents left empty.

    Anything else than ``BEGINNINGS`` in it is work, and stays.
    """
    if {path.name for path in folder.iterdir()} - BEGINNINGS:
        return
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # a folder that holds something stays
        for parent in folder.absolute().parents:
            if Path.cwd() not in parent.parents:
                break
            if [path.name for path in parent.iterdir()] == ["multirun.yaml"]:
                (parent / "multirun.yaml").unlink()
            parent.rmdir()


def checkpoint_path(run_dir: Path, name: str) -> Path:
    """Where a run keeps its ``last`` state, from which it can go on, and its ``best``."""
    return run_dir / "checkpoints" / f"{name}.safetensors"
