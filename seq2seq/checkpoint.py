"""The whole run in one safetensors file: written atomically, loaded without executing anything."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

FORMAT = 1


class Checkpoint(NamedTuple):
    """What a file holds: tensors by their full names, and everything else as plain JSON."""

    tensors: dict[str, Tensor]
    header: dict[str, Any]

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors called ``<name>.*``, without that prefix."""
        start = name + "."
        return {
            key[len(start) :]: tensor
            for key, tensor in self.tensors.items()
            if key.startswith(start)
        }


def save_checkpoint(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write a checkpoint; after a failure the previous file is as it was.

    Raises:
        OSError: no space, no permission; names the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Tensors that share storage (tied embeddings) are refused by safetensors: each gets its own.
    contents = {
        name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()
    }
    metadata = {"format": str(FORMAT), "header": json.dumps(header, allow_nan=False)}
    # What a killed write left: a run folder has one writer, so nobody else is at work on these.
    for stale in path.parent.glob(f"{path.name}*.partial"):
        stale.unlink(missing_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".partial")
    os.close(handle)
    try:
        save_file(contents, partial, metadata)
        # A run killed while writing must leave the previous checkpoint readable: a rename
        # within one folder is atomic, a write of 100 MB is not. What is renamed must be on the
        # disk before its name is, or a power cut leaves a good name on an empty file.
        _flush(Path(partial))
        os.chmod(partial, 0o644)  # mkstemp's files are for the owner alone
        os.replace(partial, path)
        _flush(path.parent)
    except (OSError, SafetensorError) as error:
        raise OSError(
            f"{path} could not be written ({error}); the previous file is intact. Free "
            f"some space or fix the permissions, then resume the run."
        ) from error
    finally:
        Path(partial).unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load_checkpoint(path: Path, parts: tuple[str, ...] | None = None) -> Checkpoint:
    """Read a checkpoint, or only the tensors whose names begin with one of ``parts``.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no checkpoint of ours, or damaged, or of a newer format.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"checkpoint={path} is not a file; a run keeps its checkpoints in "
            f"<run>/checkpoints/best.safetensors and last.safetensors."
        )
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if "header" not in metadata or not metadata.get("format", "").isdigit():
                raise ValueError(
                    f"checkpoint={path} is a safetensors file of another program; "
                    f"give one that scripts/train.py wrote."
                )
            if int(metadata["format"]) > FORMAT:
                raise ValueError(
                    f"checkpoint={path} has format {metadata['format']}, but this version reads "
                    f"formats up to {FORMAT}; update seq2seq."
                )
            wanted = [key for key in file.keys() if parts is None or key.split(".")[0] in parts]  # noqa: SIM118
            tensors = {key: file.get_tensor(key) for key in wanted}
        return Checkpoint(tensors, json.loads(metadata["header"]))
    except SafetensorError as error:
        raise ValueError(
            f"checkpoint={path} is damaged or no safetensors file ({error}); nothing in it was run."
        ) from error
