"""The state of a run: where it stands, written to a checkpoint and read back."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.checkpoint import Checkpoint, check_tensors, save_checkpoint
from seq2seq.config.training import TrainConfig
from seq2seq.data.codec import Codec
from seq2seq.device import environment
from seq2seq.randomness import random_state, restore_random_state
from seq2seq.training.optim import optimizer_tensors, restore_optimizer


@dataclass
class Progress:
    """Where a run stands; all of it is in the checkpoint."""

    step: int = 0  # updates made
    epoch: int = 0  # passes finished
    position: int = 0  # sentence pairs of this epoch already used
    seconds: float = 0.0  # of training, validations included
    training_seconds: float = 0.0  # of updates alone
    tokens: int = 0  # target tokens trained on, EOS included
    validated_step: int = 0  # of the last validation
    best_score: float | None = None
    best_step: int = 0
    # (score, step) of the validations whose checkpoints trainer.keep_best keeps, best first:
    ranking: list[tuple[float, int]] = field(default_factory=list)
    stale: int = 0  # validations since the best one
    skipped: int = 0  # updates left out because their gradient was not finite
    nonsense: int = 0  # of these, the last ones in a row
    # How much gradients in fp16 are scaled up, and for how many updates that went well:
    scaling: tuple[float, int] = (1.0, 0)
    # Since the last line of the log, skipped updates not counted:
    interval_nll: float = 0.0
    interval_tokens: int = 0
    interval_seconds: float = 0.0


def save_run(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    config: TrainConfig,
    sides: dict[str, Codec],
) -> None:
    """Write everything that the rest of the run, or a translation, depends on."""
    random, plain_random = random_state()
    models = {name: side.tokenizer.model for name, side in sides.items()}
    parts = {
        "model": model.state_dict(),
        "optimizer": optimizer_tensors(optimizer),
        "rng": random,
        "tokenizer": {
            name: torch.tensor(list(content), dtype=torch.uint8)
            for name, content in models.items()
            if content is not None
        },
    }
    tensors = {f"{part}.{key}": value for part, all in parts.items() for key, value in all.items()}
    header = {
        "config": asdict(config),
        "sides": {name: side.state() for name, side in sides.items()},
        "progress": asdict(progress),
        "random": plain_random,
        "environment": environment(next(model.parameters()).device),
    }
    save_checkpoint(path, tensors, header)


def restore_run(
    checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer
) -> Progress:
    """Put model, optimiser and random numbers where ``save_run`` found them.

    Raises:
        ValueError: the checkpoint is of another model, or of no run; names the file.
    """
    if "progress" not in checkpoint.header:
        raise ValueError(
            f"checkpoint={checkpoint.path} is for evaluate.py and translate.py alone: an average, "
            f"or of an older version. A run is resumed from a checkpoint of its own."
        )
    progress = checkpoint.read("progress", Progress)
    random = {
        "python": checkpoint.read("random.python", tuple[int, list[int], float | None]),
        "numpy": checkpoint.read("random.numpy", tuple[int, int, float]),
    }
    with checkpoint.blamed():
        parameters = checkpoint.part("model")
        check_tensors(parameters, model.state_dict())
        memory = checkpoint.part("optimizer")
        _check_memory(memory, optimizer)
        model.load_state_dict(parameters)
        restore_optimizer(optimizer, memory)
        position = random["numpy"][0]
        if not 0 <= position <= 624:  # NumPy would read memory beyond its 624 words
            raise ValueError(f"random.numpy position {position} must lie in [0, 624].")
        try:
            restore_random_state(checkpoint.part("rng"), random)
        # What torch, NumPy and Python each say to a state that is none.
        except (LookupError, TypeError, RuntimeError, OverflowError) as error:
            raise ValueError("its random numbers have no such state.") from error
    return progress


def _check_memory(found: dict[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
    """Refuse tensors that are no memory of this optimiser.

    Raises:
        ValueError: names the first that is not.
    """
    # What a parameter is remembered by, torch tells only after an update: here is one to update.
    probe = nn.Parameter(torch.zeros(1))
    probe.grad = torch.zeros(1)
    kind: Any = type(optimizer)
    example = kind([probe])
    example.step()
    of_probe = example.state[probe]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = {name.partition(".")[0] for name in found}
    expected = {
        f"{number}.{name}": value if value.dim() == 0 else parameter
        for number, parameter in enumerate(parameters)
        if str(number) in numbers  # a parameter that no loss depends on has no memory
        for name, value in of_probe.items()
    }
    check_tensors(found, expected)
