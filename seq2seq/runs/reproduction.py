"""A run trained again from its manifest, and laid beside the first."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq.checkpoint import Checkpoint, load_checkpoint
from seq2seq.config.changes import changes
from seq2seq.config.schema import Change, check_values, differences, from_dict
from seq2seq.config.scripts import ReproduceConfig
from seq2seq.config.training import TrainConfig
from seq2seq.run_folder import checkpoint_path
from seq2seq.runs.manifest import MANIFEST, read_manifest
from seq2seq.runs.run import Run, Texts, read_texts
from seq2seq.training.journal import read_events
from seq2seq.training.limits import follows_clock
from seq2seq.training.state import Progress

SPEED = "tokens_per_second"  # the one value of a journal that may differ
# Entries of a manifest, other than settings, that may explain a difference.
ENVIRONMENT = ("device", "environment", "prepared", "code")

log = logging.getLogger(__name__)


def train_again(wanted: ReproduceConfig, folder: Path) -> None:
    """Train as the manifest of a run says, in a new folder, as many updates as that run made.

    The log says first what is not as it was, and what cannot be repeated.

    Raises:
        ValueError, OSError: the run is no such run, or its corpus has changed; names the file.
    """
    first = Path(wanted.run)
    manifest = read_manifest(first)
    if manifest["step"]:
        raise ValueError(
            f"run={first} began before there were manifests and was then resumed; how it began is "
            f"not known. Give the folder of another run."
        )
    steps = _last(first).read("progress", Progress).step
    _curves(first, steps)  # a damaged journal is refused now, not when all is done
    config = _config(manifest, wanted, first)
    texts = read_texts(config.data)
    _check_corpus(manifest["corpus"], texts, config)
    run = Run(config, folder, texts=texts)
    for change in changed_environment(manifest, run.start):
        log.warning("differs: %s", change)
    for obstacle in _obstacles(manifest, config):
        log.warning("not repeated: %s", obstacle)
    run.trainer.fit(until=steps)


def _last(run_dir: Path) -> Checkpoint:
    return load_checkpoint(checkpoint_path(run_dir, "last"), ("model",))


def _config(manifest: dict[str, Any], wanted: ReproduceConfig, first: Path) -> TrainConfig:
    """The settings of the run, with its device and threads unless others are ``wanted``."""
    try:
        config = from_dict(TrainConfig, manifest["config"])
        config = replace(
            config,
            resume=None,
            device=wanted.device or manifest["device"],
            threads=wanted.threads or manifest["environment"]["threads"],
            data=replace(config.data, root=wanted.root or config.data.root),
        )
        check_values(config)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{first / MANIFEST} holds no settings of a run: {error}") from error
    return config


def _check_corpus(expected: dict[str, str], texts: Texts, config: TrainConfig) -> None:
    for name, digest in texts.corpus.digests.items():
        if expected.get(name) != digest:
            raise ValueError(
                f"{Path(config.data.root) / name} is not the file that the run was trained on "
                f"(SHA-256 {digest[:12]}... instead of {expected.get(name, 'none')[:12]}...); give "
                f"root= a folder with the files as they were."
            )


def changed_environment(manifest: dict[str, Any], start: dict[str, Any]) -> list[Change]:
    """Return how the machine and the code of a start differ from those of the first start."""
    before, after = ({name: each.get(name) for name in ENVIRONMENT} for each in (manifest, start))
    return differences(before, after)


def _obstacles(manifest: dict[str, Any], config: TrainConfig) -> list[str]:
    """Why the two may part although nothing differs, a line each."""
    found = []
    if follows_clock(config):
        found.append(
            f"optim.schedule.name={config.optim.schedule.name} followed the clock, as "
            f"trainer.max_minutes={config.trainer.max_minutes:g} limits the run; learning rates "
            f"will differ"
        )
    for start in manifest["resumed"]:
        changed = changes(manifest["config"], start["config"])
        changed += changed_environment(manifest, start)
        found += [f"resumed at step {start['step']} with {change}" for change in changed]
    return found


def compare_runs(first: Path, again: Path) -> str | None:
    """Where two runs of as many updates part: step and value, or a parameter; None if they do not.

    Raises:
        ValueError, OSError: a journal or a checkpoint cannot be read; names it.
    """
    progress = _last(first).read("progress", Progress)
    curves = [_curves(folder, progress.step) for folder in (first, again)]
    if progress.validated_step != progress.step:  # stopped before it came to that
        for events in curves:
            events.pop((progress.step, "valid"), None)
    parted = _part_of_curves(*curves)
    if parted is not None:
        return parted
    return _part_of_parameters(*(_last(folder).part("model") for folder in (first, again)))


def _curves(run_dir: Path, steps: int) -> dict[tuple[int, str], dict[str, Any]]:
    """The values of each event of a journal up to a step, but for the speed."""
    events = {}
    for values in read_events(run_dir / "journal.jsonl"):
        event = values.pop("step"), values.pop("event")
        values.pop(SPEED, None)
        if event[0] <= steps:
            events[event] = values
    return events


def _part_of_curves(
    first: dict[tuple[int, str], dict[str, Any]], again: dict[tuple[int, str], dict[str, Any]]
) -> str | None:
    for step, event in sorted(first.keys() | again.keys()):
        a, b = first.get((step, event)), again.get((step, event))
        if a is None or b is None:
            run = "the first run" if a is None else "this one"
            return f"step {step}: the journal of {run} lacks the event {event!r}"
        for name in a | b:
            if a.get(name) != b.get(name):
                return f"step {step}: {event}/{name} was {a.get(name)} and is {b.get(name)}"
    return None


def _part_of_parameters(first: dict[str, Tensor], again: dict[str, Tensor]) -> str | None:
    parted = [
        name
        for name in sorted(first.keys() | again.keys())
        if name not in first or name not in again or _bytes(first[name]) != _bytes(again[name])
    ]
    if not parted:
        return None
    name = parted[0]
    if name not in first or name not in again or first[name].shape != again[name].shape:
        return f"parameter {name}: another shape, or in one of the runs alone"
    distance = (first[name] - again[name]).abs().max().item()
    return (
        f"parameter {name}, and {len(parted) - 1} others: up to {distance:.3g} apart at the end, "
        f"with equal journals"
    )


def _bytes(tensor: Tensor) -> bytes:
    """Every bit: 0 and -0, which are equal as numbers, differ."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
