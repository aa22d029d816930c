"""The folder of a run: its layout, creation and removal.

.hydra/  train.log  lock  manifest.json  journal.jsonl  tensorboard/  summary.json
checkpoints/{step_<n>,last,best}.safetensors
checkpoints/best_{valid,test}/        output of the best checkpoint on each split
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
# The content of a run folder before training begins: settings, an empty log, a lock.
INITIAL_FILES = {SNAPSHOT, LOG, LOCK}


class RunFolder(NamedTuple):
    """The paths in a run folder. No method reads or writes a file."""

    path: Path

    def checkpoint(self, name: str) -> Path:
        """Return the path of ``last``, from which a run continues, ``best`` or ``step_<n>``."""
        return self.path / "checkpoints" / f"{name}.safetensors"

    def step_checkpoint(self, step: int) -> Path:
        """Return the path of the checkpoint after that many updates."""
        return self.checkpoint(f"step_{step}")

    def saved_steps(self) -> dict[int, Path]:
        """Return the ``step_<n>`` checkpoints that exist, newest first."""
        found = {
            int(match[1]): path
            for path in self.checkpoint("last").parent.glob("step_*.safetensors")
            if (match := re.fullmatch(r"step_(\d+)\.safetensors", path.name))
        }
        return dict(sorted(found.items(), reverse=True))

    @property
    def has_checkpoint(self) -> bool:
        """Whether the folder has a checkpoint to resume from."""
        # Any checkpoint: an earlier one is used if ``last`` is damaged or missing.
        return any(self.checkpoint("last").parent.glob("*.safetensors"))

    def evaluation(self, name: str, split: str) -> Path:
        """Return the folder of the output of the checkpoint ``name`` on a split."""
        return evaluation_folder(self.checkpoint(name), split)

    def picture(self, tag: str, step: int) -> Path:
        """Return the path, without suffix, of a picture that TensorBoard shows under ``tag``:
        ``alignment/valid_0001`` is stored in ``alignments/valid_0001/``."""
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
        """The record that a comparison keeps of the finished run."""
        return self.path / "comparison.json"

    @property
    def lock(self) -> Path:
        """Held by the process that trains here."""
        return self.path / LOCK


def evaluation_folder(checkpoint: Path, name: str) -> Path:
    """Return the folder, next to a checkpoint, of its output on the evaluation set ``name``."""
    return checkpoint.parent / f"{checkpoint.stem}_{name}"


def run_dir(resume: str | None, name: str, prefix: str = "") -> str:
    """Return the folder to resume, or create a new one, ``runs/<name>/<prefix><date>_<time>``."""
    if resume is not None:
        return resume
    stamp = Path("runs") / name / datetime.now().strftime(f"{prefix}%Y-%m-%d_%H-%M-%S")
    for attempt in range(1000):
        path = stamp if attempt == 0 else stamp.with_name(f"{stamp.name}_{attempt + 1}")
        try:
            # Created immediately, so that two starts in the same second get different folders.
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return str(path)
    raise OSError(f"{stamp} and 999 numbered variants of it already exist.")


def snapshot(folder: str | None) -> str | None:
    """Return the folder in which Hydra saves the composed config; None if ``folder`` already has a
    snapshot, because a resume may still be refused. The manifest records its settings."""
    has_snapshot = folder is not None and (Path(folder) / SNAPSHOT).exists()
    return None if has_snapshot else SNAPSHOT


def remove_unused(folder: Path) -> None:
    """Remove the folder of a run that was refused before it began, and empty parent folders.

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
