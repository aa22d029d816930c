"""One model from several checkpoints: the mean of their parameters.

As in Vaswani et al. 2017, arXiv:1706.03762, section 6.1, who translate with the mean of a run's
last checkpoints.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from seq2seq.checkpoint import Checkpoint, check_tensors, load_checkpoint, save_checkpoint
from seq2seq.config.changes import changes
from seq2seq.config.model import ModelConfig
from seq2seq.training.checkpoints import saved_steps

USED = ("model", "tokenizer")  # the parts of a checkpoint that translating takes


def average_checkpoints(paths: Sequence[Path], output: Path) -> None:
    """Write the average of checkpoints of the same model and vocabularies.

    The mean of each parameter is taken in float64 and rounded to the parameter's type; that of
    one checkpoint several times is that checkpoint, bit for bit. The result is for evaluation and
    translation: it has no optimiser and no place in the data.
    Its header lists its origins under ``averaged``.

    Raises:
        ValueError: the checkpoints differ in more than their parameters, or the output is there
            already.
        OSError: one cannot be read, or the output not be written.
    """
    if output.exists():
        # It may be the very file that a run goes on from.
        raise ValueError(f"output={output} exists already; give another name.")
    first, *others = [load_checkpoint(path, USED) for path in paths]
    for other in others:
        _check_same(first, other)
    total = {name: tensor.double() for name, tensor in first.part("model").items()}
    for other in others:
        for name, tensor in other.part("model").items():
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


def newest_steps(run_dir: Path, count: int) -> list[Path]:
    """The newest checkpoints of a run, the newest first.

    Raises:
        ValueError: it keeps fewer.
    """
    paths = list(saved_steps(run_dir).values())
    if len(paths) < count:
        raise ValueError(
            f"run={run_dir} has {len(paths)} checkpoints called step_<n>, fewer than last={count}; "
            f"give a smaller last=, or the folder of a run that was trained long enough, with "
            f"trainer.keep_last={count}."
        )
    return paths[:count]


def _check_same(first: Checkpoint, other: Checkpoint) -> None:
    """Refuse to mix what does not mean the same.

    Raises:
        ValueError: another model, tokenizer or vocabulary; names both files.
    """
    start = f"checkpoints: {other.path} cannot be averaged with {first.path}: "
    one, two = (c.read("config.model", ModelConfig) for c in (first, other))
    if different := changes({"model": asdict(one)}, {"model": asdict(two)}):
        raise ValueError(f"{start}another model ({'; '.join(map(str, different))}).")
    models, other_models = first.part("tokenizer"), other.part("tokenizer")
    if first.read("sides", dict) != other.read("sides", dict) or not (
        models.keys() == other_models.keys()
        and all(torch.equal(models[name], other_models[name]) for name in models)
    ):
        raise ValueError(f"{start}another tokenizer or vocabulary.")
    try:
        check_tensors(other.part("model"), first.part("model"))
    except ValueError as error:
        raise ValueError(f"{start}{error}") from error


def _origin(checkpoint: Checkpoint) -> dict[str, Any]:
    """What an average says of one that it was made from."""
    with checkpoint.path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    # None where this is an average itself.
    step = checkpoint.header.get("progress", {}).get("step")
    return {"file": str(checkpoint.path), "step": step, "sha256": digest}
