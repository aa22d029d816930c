"""Repeats a run from its manifest, and compares the two runs."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq.checkpoint import Checkpoint, load_checkpoint
from seq2seq.config.changes import changes
from seq2seq.config.plugins import require_plugins
from seq2seq.config.schema import Change, check_values, differences, from_dict
from seq2seq.config.scripts import ReproduceConfig
from seq2seq.config.training import TrainConfig
from seq2seq.run_folder import RunFolder
from seq2seq.runs.manifest import read_manifest
from seq2seq.runs.run import Run, follows_clock
from seq2seq.tasks.build import TASKS
from seq2seq.training.journal import read_events
from seq2seq.training.progress import Progress

# Entries of a manifest, other than settings, that may explain a difference.
ENVIRONMENT = ("device", "environment", "prepared", "code")

log = logging.getLogger(__name__)


def train_again(wanted: ReproduceConfig, folder: RunFolder) -> None:
    """Train again from the manifest of a run, in a new folder, for the same number of updates.

    Before training, the differences from the first run and what cannot be repeated are logged.

    Raises:
        ValueError, OSError: the folder does not hold such a run, or its corpus has changed.
    """
    first = RunFolder(Path(wanted.run))
    manifest = read_manifest(first)
    if manifest["step"]:
        raise ValueError(
            f"run={first.path} was started by a version without manifests and resumed later, "
            f"so its start is unknown. Give the folder of another run."
        )
    steps = _last(first).read("progress", Progress).step
    _curves(first, steps)  # a damaged journal is refused now, not after training
    config = _config(manifest, wanted, first)
    inputs = TASKS.get_entry(config.task).open(config)
    _check_corpus(manifest["corpus"], inputs.digests, config)
    run = Run(config, folder, inputs=inputs)
    for change in changed_environment(manifest, run.start):
        log.warning("differs: %s", change)
    for caveat in _caveats(manifest, config):
        log.warning("not repeated: %s", caveat)
    run.trainer.fit(until=steps)


def _last(folder: RunFolder) -> Checkpoint:
    return load_checkpoint(folder.checkpoint("last"), ("model",))


def _config(manifest: dict[str, Any], wanted: ReproduceConfig, first: RunFolder) -> TrainConfig:
    """Return the settings of the run; ``wanted`` may replace its device, threads and root."""
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
        raise ValueError(
            f"{first.manifest} does not hold the settings of a run: {error}"
        ) from error
    require_plugins(config.plugins, f"run={first.path}")
    return config


def _check_corpus(
    expected: dict[str, str], digests: Mapping[str, str], config: TrainConfig
) -> None:
    for name, digest in digests.items():
        if expected.get(name) != digest:
            raise ValueError(
                f"{Path(config.data.root) / name} is not the file that the run was trained on "
                f"(SHA-256 {digest[:12]}... instead of {expected.get(name, 'none')[:12]}...); give "
                f"root= a folder with the original files."
            )


def changed_environment(manifest: dict[str, Any], start: dict[str, Any]) -> list[Change]:
    """Return the differences of a start from the first one in machine and code."""
    before, after = ({name: each.get(name) for name in ENVIRONMENT} for each in (manifest, start))
    return differences(before, after)


def _caveats(manifest: dict[str, Any], config: TrainConfig) -> list[str]:
    """Return the reasons why the two runs may diverge under equal conditions, one per line."""
    found = []
    if follows_clock(config):
        found.append(
            f"optim.schedule.name={config.optim.schedule.name} followed the clock, because "
            f"trainer.max_minutes={config.trainer.max_minutes:g} limits the run; learning rates "
            f"will differ"
        )
    for start in manifest["resumed"]:
        found += [
            f"resumed at step {start['step']} with {change}"
            for change in (
                *changes(manifest["config"], start["config"]),
                *changed_environment(manifest, start),
            )
        ]
    return found


def compare_runs(first: RunFolder, second: RunFolder) -> str | None:
    """Return the first difference between two runs of equal length, or None.

    Raises:
        ValueError, OSError: a journal or a checkpoint cannot be read; names it.
    """
    progress = _last(first).read("progress", Progress)
    curves = [_curves(folder, progress.step) for folder in (first, second)]
    if progress.validated_step != progress.step:  # the first run stopped before this validation
        for events in curves:
            events.pop((progress.step, "valid"), None)
    found = _first_difference_in_curves(*curves)
    if found is not None:
        return found
    parameters = (_last(folder).section("model") for folder in (first, second))
    return _first_difference_in_parameters(*parameters)


def _curves(folder: RunFolder, steps: int) -> dict[tuple[int, str], dict[str, Any]]:
    """Return the values of each journal event up to a step, without speeds."""
    events = {}
    for values in read_events(folder.journal):
        event = values.pop("step"), values.pop("event")
        if event[0] <= steps:
            events[event] = {k: v for k, v in values.items() if not k.endswith("_per_second")}
    return events


def _first_difference_in_curves(
    first: dict[tuple[int, str], dict[str, Any]], second: dict[tuple[int, str], dict[str, Any]]
) -> str | None:
    for step, event in sorted(first.keys() | second.keys()):
        a, b = first.get((step, event)), second.get((step, event))
        if a is None or b is None:
            run = "the first run" if a is None else "this one"
            return f"step {step}: the journal of {run} lacks the event {event!r}"
        for name in a | b:
            if a.get(name) != b.get(name):
                return f"step {step}: {event}/{name} was {a.get(name)} and is {b.get(name)}"
    return None


def _first_difference_in_parameters(
    first: dict[str, Tensor], second: dict[str, Tensor]
) -> str | None:
    different = [
        name
        for name in sorted(first.keys() | second.keys())
        if name not in first or name not in second or _bytes(first[name]) != _bytes(second[name])
    ]
    if not different:
        return None
    name = different[0]
    if name not in first or name not in second or first[name].shape != second[name].shape:
        return f"parameter {name}: different shapes, or present in only one of the runs"
    distance = (first[name] - second[name]).abs().max().item()
    return (
        f"parameter {name}, and {len(different) - 1} others: up to {distance:.3g} apart at the "
        f"end, with equal journals"
    )


def _bytes(tensor: Tensor) -> bytes:
    """Return the bytes of a tensor; 0 and -0 are equal as numbers but differ in bytes."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
