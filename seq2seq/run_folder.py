"""The folder of a run: what lies where in it, and how one is made and removed.

.hydra/  train.log  lock  manifest.json  journal.jsonl  tensorboard/  summary.json
checkpoints/{step_<n>,last,best}.safetensors
checkpoints/best_{valid,test}/        what the best checkpoint makes of each split
alignments/<sentence>/step_<n>.{png,json}
"""

import re
import shutil
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

SNAPSHOT = ".hydra"  # where the composed settings are kept
LOG, LOCK = "train.log", "lock"
# What a run folder holds before training begins: settings, an empty log, a lock.
INITIAL_FILES = {SNAPSHOT, LOG, LOCK}


class RunFolder(NamedTuple):
    """The paths in a run folder. Nothing here reads or writes a file."""

    path: Path

    def checkpoint(self, name: str) -> Path:
        """``last``, from which the run continues, ``best``, or ``step_<n>``."""
        return self.path / "checkpoints" / f"{name}.safetensors"

    def step_checkpoint(self, step: int) -> Path:
        """The checkpoint after that many updates."""
        return self.checkpoint(f"step_{step}")

    def saved_steps(self) -> dict[int, Path]:
        """The ``step_<n>`` checkpoints that exist, the newest first."""
        found = {
            int(match[1]): path
            for path in self.checkpoint("last").parent.glob("step_*.safetensors")
            if (match := re.fullmatch(r"step_(\d+)\.safetensors", path.name))
        }
        return dict(sorted(found.items(), reverse=True))

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is anything to resume from."""
        # Any checkpoint, because an earlier one serves where ``last`` is damaged or missing.
        return any(self.checkpoint("last").parent.glob("*.safetensors"))

    def evaluation(self, name: str, split: str) -> Path:
        """The folder of what the checkpoint ``name`` makes of a split."""
        return evaluation_folder(self.checkpoint(name), split)

    def picture(self, tag: str, step: int) -> Path:
        """The path, without suffix, of a picture that TensorBoard shows under ``tag``:
        ``alignment/valid_0001`` lies in ``alignments/valid_0001/``."""
        kind, _, name = tag.partition("/")
        return self.path / f"{kind}s" / name / f"step_{step:07d}"

    @property
    def pictures(self) -> Path:
        """The folder of all alignment pictures."""
        return self.path / "alignments"

    @property
    def journal(self) -> Path:
        """One JSON line for each event of the run."""
        return self.path / "journal.jsonl"

    @property
    def tensorboard(self) -> Path:
        """The folder of TensorBoard's event files."""
        return self.path / "tensorboard"

    @property
    def manifest(self) -> Path:
        """Everything that determines the outcome of the run."""
        return self.path / "manifest.json"

    @property
    def summary(self) -> Path:
        """Scores of the finished run."""
        return self.path / "summary.json"

    @property
    def comparison(self) -> Path:
        """What a comparison keeps of the finished run."""
        return self.path / "comparison.json"

    @property
    def lock(self) -> Path:
        """Held by the process that trains here."""
        return self.path / LOCK


def evaluation_folder(checkpoint: Path, name: str) -> Path:
    """The folder, next to a checkpoint, of its output on the evaluation set ``name``."""
    return checkpoint.parent / f"{checkpoint.stem}_{name}"


def run_dir(resume: str | None, name: str, prefix: str = "") -> str:
    """The folder to resume, or else a new one, ``runs/<name>/<prefix><date>_<time>``."""
    if resume is not None:
        return resume
    stamp = Path("runs") / name / datetime.now().strftime(f"{prefix}%Y-%m-%d_%H-%M-%S")
    for attempt in range(1000):
        path = stamp if attempt == 0 else stamp.with_name(f"{stamp.name}_{attempt + 1}")
        try:
            # Created right away and never shared: two starts in one second get two folders.
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return str(path)
    raise OSError(f"{stamp} and 999 numbered variants of it already exist.")


def snapshot(folder: str | None) -> str | None:
    """Where Hydra saves the composed config: nowhere if ``folder`` already has a snapshot, because
    a resume may still be refused; the manifest records the settings it continues with."""
    has_snapshot = folder is not None and (Path(folder) / SNAPSHOT).exists()
    return None if has_snapshot else SNAPSHOT


def remove_unused(folder: Path) -> None:
    """Remove the folder of a run that was refused before it began, and parents left empty.

    A folder that holds anything other than ``INITIAL_FILES`` is kept.
    """
    if {path.name for path in folder.iterdir()} - INITIAL_FILES:
        return
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # a folder that is not empty stays
        for parent in folder.absolute().parents:
            if Path.cwd() not in parent.parents:
                break
            if [path.name for path in parent.iterdir()] == ["multirun.yaml"]:
                (parent / "multirun.yaml").unlink()
            parent.rmdir()
