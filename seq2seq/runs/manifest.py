"""``manifest.json`` of a run: all that decides what comes out of it, written before it begins.

command   the command line
step      updates made before; 0, but where a run was resumed
config    every setting, the seed and the precision among them
corpus    SHA-256 of every file of the corpus
prepared  folder of its ids, named after a hash of all that made them
device    that the run computes on
environment  processor, threads, versions of Python and packages
code      SHA-256 of the program, the commit it was checked out at, whether that was changed
resumed   the same of each start that went on with the run, but for this entry
"""

import hashlib
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from seq2seq.config.renamed import upgrade
from seq2seq.config.training import TrainConfig
from seq2seq.device import environment
from seq2seq.files import replacing

MANIFEST = "manifest.json"
PACKAGE = Path(__file__).resolve().parents[1]


def describe_start(
    config: TrainConfig, corpus: dict[str, str], prepared: str, device: torch.device, step: int
) -> dict[str, Any]:
    """What a manifest says about one start of a run."""
    return {
        "command": " ".join(sys.argv),
        "step": step,
        "config": asdict(config),
        "corpus": corpus,
        "prepared": prepared,
        "device": str(device),
        "environment": environment(device),
        "code": describe_code(),
    }


def record_start(run_dir: Path, start: dict[str, Any]) -> None:
    """Write the manifest of a new run, or add to it that the run was resumed.

    Raises:
        ValueError: the manifest that is there is none.
    """
    if start["step"] and (run_dir / MANIFEST).exists():
        manifest = read_manifest(run_dir)
        manifest["resumed"].append(start)
    else:
        manifest = start | {"resumed": []}
    write_json(run_dir / MANIFEST, manifest, indent=2)


def read_manifest(run_dir: Path) -> dict[str, Any]:
    """The manifest of a run.

    Raises:
        ValueError, OSError: there is none, or it is damaged; names it.
    """
    path = run_dir / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: give the folder of a run that train.py made, such as "
            f"runs/sample/<date>_<time>; runs of older versions have none."
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: it is no JSON ({error}).") from error
    parts = {"step": int, "device": str, "resumed": list}
    parts |= dict.fromkeys(("config", "corpus", "environment", "code"), dict)
    for name, kind in parts.items():
        if not isinstance(manifest, dict) or not isinstance(manifest.get(name), kind):
            raise ValueError(f"{path} is damaged: its entry {name!r} is missing or no {kind}.")
    manifest["config"] = upgrade(manifest["config"])
    for start in manifest["resumed"]:
        start["config"] = upgrade(start["config"])
    return manifest


def describe_code() -> dict[str, Any]:
    """Which program this is, whether or not git knows."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\n".encode() + path.read_bytes())
    # Not the repository of something else, in whose folder this one was installed.
    if _git("rev-parse", "--show-prefix") != PACKAGE.name + "/":
        return {"sha256": digest.hexdigest(), "commit": None, "changed": None}
    changes = _git("status", "--porcelain", "--", ".")  # of the package
    return {
        "sha256": digest.hexdigest(),
        "commit": _git("rev-parse", "HEAD"),
        "changed": None if changes is None else changes != "",
    }


def _git(*arguments: str) -> str | None:
    """What git says about the folder of the package; nothing where it cannot tell."""
    command = ["git", "--no-optional-locks", "-C", str(PACKAGE), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip()


def write_json(path: Path, value: dict[str, Any], indent: int | None = None) -> None:
    """Whole or not at all."""
    text = json.dumps(value, ensure_ascii=False, indent=indent) + "\n"
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
