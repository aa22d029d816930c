"""The state of a run, written to a checkpoint and read back."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.checkpoint import Checkpoint, check_tensors, save_checkpoint
from seq2seq.device import environment
from seq2seq.randomness import random_state, restore_random_state
from seq2seq.training.optim import optimizer_tensors, restore_optimizer
from seq2seq.training.progress import Progress
from seq2seq.training.task import Objective, Task


def save_run(
    path: Path, task: Task, progress: Progress, header: Mapping[str, Any] | None = None
) -> None:
    """Write everything that the rest of the run depends on.

    Args:
        path: file of the checkpoint.
        task: the task being trained.
        progress: progress of the run.
        header: further JSON, such as the settings of the run.
    """
    random, plain_random = random_state()
    state = task.state()
    tensors = {f"model.{name}": value for name, value in task.model.state_dict().items()}
    for prefix, objective in _by_prefix(task.objectives).items():
        held = optimizer_tensors(objective.optimizer)
        tensors |= {f"{prefix}.{name}": value for name, value in held.items()}
    tensors |= {f"rng.{name}": value for name, value in random.items()}
    tensors |= state.tensors
    device = next(task.model.parameters()).device
    everything = {
        **(header or {}),
        **state.header,
        "progress": asdict(progress),
        "random": plain_random,
        "environment": environment(device),
    }
    save_checkpoint(path, tensors, everything)


def restore_run(checkpoint: Checkpoint, task: Task) -> Progress:
    """Restore model, optimizers, random states and task to what ``save_run`` saved.

    Raises:
        ValueError: the checkpoint belongs to another model, or not to a run; names the file.
    """
    if "progress" not in checkpoint.header:
        raise ValueError(
            f"checkpoint={checkpoint.path} is for evaluate.py and translate.py only: an average, "
            f"or from an older version. A run resumes from a checkpoint of its own."
        )
    progress = checkpoint.read("progress", Progress)
    random = {
        "python": checkpoint.read("random.python", tuple[int, list[int], float | None]),
        "numpy": checkpoint.read("random.numpy", tuple[int, int, float]),
    }
    with checkpoint.naming_file():
        parameters = checkpoint.section("model")
        check_tensors(parameters, task.model.state_dict())
        states = {
            prefix: (objective.optimizer, checkpoint.section(prefix))
            for prefix, objective in _by_prefix(task.objectives).items()
        }
        for optimizer, held in states.values():
            _check_optimizer_state(held, optimizer)
        task.model.load_state_dict(parameters)
        for optimizer, held in states.values():
            restore_optimizer(optimizer, held)
        position = random["numpy"][0]
        if not 0 <= position <= 624:  # NumPy would read memory beyond its 624 words
            raise ValueError(f"random.numpy position {position} must lie in [0, 624].")
        try:
            restore_random_state(checkpoint.section("rng"), random)
        # The errors that torch, NumPy and Python each raise for an invalid state.
        except (LookupError, TypeError, RuntimeError, OverflowError) as error:
            raise ValueError("its random states are invalid.") from error
        task.load_state(checkpoint)
    return progress


def _by_prefix(objectives: Sequence[Objective]) -> dict[str, Objective]:
    """Return objectives by the prefix of their tensors; a single objective needs no name."""
    if len(objectives) == 1:
        return {"optimizer": objectives[0]}
    return {f"optimizer.{objective.name}": objective for objective in objectives}


def _check_optimizer_state(found: dict[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
    """Refuse tensors that are not a state of this optimizer.

    Raises:
        ValueError: names the first wrong tensor.
    """
    # torch creates the state of a parameter only with the first update, so make an update.
    probe = nn.Parameter(torch.zeros(1))
    probe.grad = torch.zeros(1)
    kind: Any = type(optimizer)
    example = kind([probe])
    example.step()
    kept = example.state[probe]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = {name.partition(".")[0] for name in found}
    expected = {
        f"{number}.{name}": value if value.dim() == 0 else parameter
        for number, parameter in enumerate(parameters)
        if str(number) in numbers  # a parameter that no loss depends on has no state
        for name, value in kept.items()
    }
    check_tensors(found, expected)
