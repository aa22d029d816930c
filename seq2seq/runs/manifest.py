"""``manifest.json`` of a run: everything that determines its outcome, written before it begins.

command      the command line
step         updates already made: 0, except where a run was resumed
config       every setting, including seed and precision
corpus       SHA-256 of every file of the corpus
prepared     name of the folder of prepared data, a hash of everything that produced it
device       the device of the run
environment  processor, threads, versions of Python and of packages
code         SHA-256 of the program, its git commit, and whether the working tree had changes
resumed      one entry for each resumption of the run, with the same content except ``resumed``
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from seq2seq.config.renamed import upgrade
from seq2seq.config.training import TrainConfig
from seq2seq.device import environment
from seq2seq.files import replacing
from seq2seq.run_folder import RunFolder

PACKAGE = Path(__file__).resolve().parents[1]


def describe_start(
    config: TrainConfig,
    corpus: Mapping[str, str],
    prepared: str | None,
    device: torch.device,
    step: int,
) -> dict[str, Any]:
    """Return the manifest entries for one start of a run."""
    return {
        "command": " ".join(sys.argv),
        "step": step,
        "config": asdict(config),
        "corpus": dict(corpus),
        "prepared": prepared,
        "device": str(device),
        "environment": environment(device),
        "code": describe_code(),
    }


def record_start(folder: RunFolder, start: dict[str, Any]) -> None:
    """Write the manifest of a new run, or add the resumption to an existing one.

    Raises:
        ValueError: the existing manifest is damaged.
    """
    if start["step"] and folder.manifest.exists():
        manifest = read_manifest(folder)
        manifest["resumed"].append(start)
    else:
        manifest = start | {"resumed": []}
    write_json(folder.manifest, manifest, indent=2)


def read_manifest(folder: RunFolder) -> dict[str, Any]:
    """Read the manifest of a run, with the current names of its settings.

    Raises:
        ValueError, OSError: it is missing or damaged; names the file.
    """
    path = folder.manifest
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: give the folder of a run that train.py made, such as "
            f"runs/sample/<date>_<time>; runs of older versions have no manifest."
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: it is not JSON ({error}).") from error
    types = {"step": int, "device": str, "resumed": list}
    types |= dict.fromkeys(("config", "corpus", "environment", "code"), dict)
    for name, kind in types.items():
        if not isinstance(manifest, dict) or not isinstance(manifest.get(name), kind):
            raise ValueError(
                f"{path} is damaged: its entry {name!r} is missing or not a {kind.__name__}."
            )
    for start in (manifest, *manifest["resumed"]):
        start["config"] = upgrade(start["config"])
    return manifest


def describe_code() -> dict[str, Any]:
    """Identify the program, by a hash and, where possible, by its git commit."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\n".encode() + path.read_bytes())
    # The package may be installed inside an unrelated repository, whose commit means nothing here.
    if _git("rev-parse", "--show-prefix") != PACKAGE.name + "/":
        return {"sha256": digest.hexdigest(), "commit": None, "changed": None}
    changes = _git("status", "--porcelain", "--", ".")
    return {
        "sha256": digest.hexdigest(),
        "commit": _git("rev-parse", "HEAD"),
        "changed": None if changes is None else changes != "",
    }


def _git(*arguments: str) -> str | None:
    """Return the output of a git command in the package folder; None if the command fails."""
    command = ["git", "--no-optional-locks", "-C", str(PACKAGE), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip()


def write_json(path: Path, value: dict[str, Any], indent: int | None = None) -> None:
    """Write a JSON file, completely or not at all."""
    text = json.dumps(value, ensure_ascii=False, indent=indent) + "\n"
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
