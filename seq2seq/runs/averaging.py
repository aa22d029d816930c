"""Averages the parameters of several checkpoints of one model.

Vaswani et al. 2017 (arXiv:1706.03762, section 6.1) translate with the average of the last
checkpoints of a run.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from seq2seq.checkpoint import Checkpoint, check_tensors, load_checkpoint, save_checkpoint
from seq2seq.config.model import ModelConfig
from seq2seq.config.schema import differences
from seq2seq.data.reading import file_digest
from seq2seq.run_folder import RunFolder

NEEDED = ("model", "tokenizer")  # the sections of a checkpoint that translation needs


def average_checkpoints(paths: Sequence[Path], output: Path) -> None:
    """Write the average of checkpoints of the same model and vocabularies.

    The mean of each parameter is taken in float64 and rounded to the parameter's type; averaging
    a checkpoint with itself returns the same parameters, bit for bit. The result is for evaluation
    and translation: it has no optimizer state and no position in the data. Its header lists the
    original files under ``averaged``.

    Raises:
        ValueError: the checkpoints differ in more than their parameters, or the output exists.
        OSError: a checkpoint cannot be read, or the output cannot be written.
    """
    if output.exists():
        # It may be the file that a run resumes from.
        raise ValueError(f"output={output} already exists; give another name.")
    first, *others = [load_checkpoint(path, NEEDED) for path in paths]
    for other in others:
        _check_same(first, other)
    total = {name: tensor.double() for name, tensor in first.section("model").items()}
    for other in others:
        for name, tensor in other.section("model").items():
            total[name] += tensor.double()
    tensors = first.tensors | {
        f"model.{name}": (tensor / len(paths)).to(first.tensors[f"model.{name}"].dtype)
        for name, tensor in total.items()
    }
    header = {
        "config": first.header["config"],
        "sides": first.header["sides"],
        "averaged": [_origin(checkpoint) for checkpoint in (first, *others)],
    }
    save_checkpoint(output, tensors, header)


def newest_steps(folder: RunFolder, count: int) -> list[Path]:
    """Return the newest checkpoints of a run, newest first.

    Raises:
        ValueError: the run has fewer.
    """
    paths = list(folder.saved_steps().values())
    if len(paths) < count:
        raise ValueError(
            f"run={folder.path} has {len(paths)} checkpoints called step_<n>, fewer than "
            f"last={count}; give a smaller last=, or the folder of a run that was trained long "
            f"enough, with trainer.keep_last={count}."
        )
    return paths[:count]


def _check_same(first: Checkpoint, other: Checkpoint) -> None:
    """Refuse to average parameters of different models.

    Raises:
        ValueError: model, tokenizer or vocabulary differ; names both files.
    """
    start = f"checkpoints: {other.path} cannot be averaged with {first.path}: "
    one, two = (c.read("config.model", ModelConfig) for c in (first, other))
    if different := differences({"model": asdict(one)}, {"model": asdict(two)}):
        raise ValueError(f"{start}another model ({'; '.join(map(str, different))}).")
    models, other_models = first.section("tokenizer"), other.section("tokenizer")
    if first.read("sides", dict) != other.read("sides", dict) or not (
        models.keys() == other_models.keys()
        and all(torch.equal(models[name], other_models[name]) for name in models)
    ):
        raise ValueError(f"{start}another tokenizer or vocabulary.")
    try:
        check_tensors(other.section("model"), first.section("model"))
    except ValueError as error:
        raise ValueError(f"{start}{error}") from error


def _origin(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the record, kept with an average, of one of its checkpoints."""
    # None if this is itself an average.
    step = checkpoint.header.get("progress", {}).get("step")
    return {"file": str(checkpoint.path), "step": step, "sha256": file_digest(checkpoint.path)}
