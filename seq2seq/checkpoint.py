"""A whole run in one safetensors file: written atomically, loaded without executing code.

The metadata of the file has four entries: ``format``; ``header``, which is JSON; ``digests``, the
SHA-256 of every tensor with its name, type and shape, so that some tensors can be read and checked
without the others; and ``sha256``, the digest of ``header`` and ``digests``. Together they detect a
flipped bit anywhere in the file.
"""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from seq2seq.config.renamed import current_tensor_name, upgrade, upgrade_progress
from seq2seq.config.schema import from_json
from seq2seq.files import replacing

FORMAT = 2  # 1 had no digests


class DamagedCheckpointError(ValueError):
    """The file differs from what was written; an earlier checkpoint may still be good."""


class Checkpoint(NamedTuple):
    """The content of a file: tensors by their full names, and everything else as plain JSON."""

    tensors: dict[str, Tensor]
    header: dict[str, Any]
    path: Path

    def section(self, name: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with ``<name>.``, without this prefix."""
        start = name + "."
        return {
            key[len(start) :]: tensor
            for key, tensor in self.tensors.items()
            if key.startswith(start)
        }

    def read(self, key: str, kind: Any) -> Any:
        """Read an entry of the header as ``schema.from_json`` does; ``a.b`` is entry b of a.

        Raises:
            ValueError: the entry is missing or does not have the type ``kind``.
        """
        value: Any = self.header
        for name in key.split("."):
            if not isinstance(value, dict) or name not in value:
                raise ValueError(f"checkpoint={self.path}: {key} is missing.")
            value = value[name]
        with self.naming_file():
            return from_json(kind, value, key)

    @contextmanager
    def naming_file(self) -> Iterator[None]:
        """Context in which every ValueError is made to name the file."""
        try:
            yield
        except ValueError as error:
            start = f"checkpoint={self.path}"
            if str(error).startswith(start):
                raise
            raise ValueError(f"{start}: {error}") from error


def save_checkpoint(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write a checkpoint atomically: after a failure the previous file is intact.

    Raises:
        OSError: no space or no permission; the message names the file.
    """
    # safetensors refuses tensors that share storage (tied embeddings), so each is copied.
    contents = {
        name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()
    }
    texts = {
        "header": json.dumps(header, allow_nan=False),
        "digests": json.dumps({name: _digest(name, tensor) for name, tensor in contents.items()}),
    }
    metadata = {"format": str(FORMAT), **texts, "sha256": _seal(texts)}
    with replacing(path) as partial:
        try:
            save_file(contents, partial, metadata)
        except SafetensorError as error:  # how safetensors reports a full disk
            raise OSError(error) from error


def link_checkpoint(path: Path, name: Path) -> None:
    """Make ``name`` a hard link to ``path``, replacing any file of that name.

    Where the file system has no hard links, ``name`` becomes a copy.

    Raises:
        OSError: no space or no permission; the message names the file.
    """
    with replacing(name) as partial:
        partial.unlink()
        try:
            os.link(path, partial)
        except OSError:  # not supported by this file system, or too many links
            shutil.copyfile(path, partial)


def load_checkpoint(path: Path, sections: tuple[str, ...] | None = None) -> Checkpoint:
    """Read a checkpoint, or only the tensors whose names begin with one of ``sections``.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedCheckpointError: it is not a checkpoint of this program, or it is damaged.
        ValueError: a newer version of this program wrote it.
        OSError: it cannot be read.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"checkpoint={path} is not a file; a run keeps its checkpoints in "
            f"<run>/checkpoints/best.safetensors and last.safetensors."
        )
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            _check_format(path, metadata)
            names = list(file.keys())
            wanted = [name for name in names if sections is None or name.split(".")[0] in sections]
            tensors = {name: file.get_tensor(name) for name in wanted}
        header = _parse(metadata["header"])
        if "config" in header:
            header["config"] = upgrade(header["config"])
        if "progress" in header:
            header["progress"] = upgrade_progress(header["progress"])
        if metadata["format"] == "1":
            # Its position in the data counts batches, not pairs, so a run cannot resume from it.
            header.pop("progress", None)
        else:
            _check_digests(metadata, names, tensors)
        tensors = {current_tensor_name(name): tensor for name, tensor in tensors.items()}
        return Checkpoint(tensors, header, path)
    except DamagedCheckpointError as error:
        raise DamagedCheckpointError(f"checkpoint={path} {error}.") from error
    except SafetensorError as error:
        reason = " ".join(str(error).split())  # one line: it may quote the content of the file
        raise DamagedCheckpointError(
            f"checkpoint={path} is damaged or not a safetensors file ({reason[:200]}); "
            f"no code in it was executed."
        ) from error
    except OSError as error:
        raise OSError(f"checkpoint={path} cannot be read ({error.strerror or error}).") from error


def _check_format(path: Path, metadata: Mapping[str, str]) -> None:
    if "header" not in metadata or metadata.get("format", "") not in map(str, range(1, 100)):
        raise DamagedCheckpointError(
            "is a safetensors file of another program; give one that scripts/train.py wrote"
        )
    if int(metadata["format"]) > FORMAT:
        raise ValueError(
            f"checkpoint={path} has format {metadata['format']}, but this version reads "
            f"formats up to {FORMAT}; update seq2seq."
        )


def _check_digests(
    metadata: Mapping[str, str], names: list[str], tensors: dict[str, Tensor]
) -> None:
    if _seal(metadata) != metadata.get("sha256"):
        raise DamagedCheckpointError("is damaged: its header has changed since it was written")
    digests = _parse(metadata.get("digests", ""))
    if digests.keys() != set(names):
        raise DamagedCheckpointError("is damaged: its tensors are not those that were written")
    for name, tensor in tensors.items():
        if _digest(name, tensor) != digests[name]:
            raise DamagedCheckpointError(
                f"is damaged: its tensor {name!r} has changed since it was written"
            )


def _digest(name: str, tensor: Tensor) -> str:
    digest = hashlib.sha256(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
    digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _seal(texts: Mapping[str, str]) -> str:
    both = "\n".join(texts.get(name, "") for name in ("header", "digests"))
    return hashlib.sha256(both.encode()).hexdigest()


def _parse(text: str) -> dict[str, Any]:
    """Parse a JSON object with finite numbers; Python would also accept NaN, and 1e999 as inf.

    Raises:
        DamagedCheckpointError: the text is something else.
    """
    try:
        value = json.loads(text, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise DamagedCheckpointError("is damaged: its header is not JSON") from error
    if not isinstance(value, dict):
        raise DamagedCheckpointError("is damaged: its header is not a JSON object")
    return value


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return value


def check_tensors(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Refuse tensors that differ from the expected ones in name, shape or type.

    Raises:
        ValueError: one of them differs; the message names the first.
    """
    for name in sorted(found.keys() | expected.keys()):
        if name not in found or name not in expected:
            problem = "is missing" if name not in found else "does not belong to this model"
            raise ValueError(f"the tensor {name!r} {problem}.")
        a, b = found[name], expected[name]
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise ValueError(
                f"the tensor {name} is {a.dtype} {list(a.shape)}, not {b.dtype} {list(b.shape)}."
            )
