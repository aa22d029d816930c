"""The state of a run: where it stands, written to a checkpoint and read back."""

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from seq2seq import runtime
from seq2seq.checkpoint import Checkpoint, save_checkpoint
from seq2seq.config import TrainConfig
from seq2seq.data.side import Side
from seq2seq.training.optim import optimizer_tensors, restore_optimizer


@dataclass
class Progress:
    """Where a run stands; all of it is in the checkpoint."""

    step: int = 0  # updates made
    epoch: int = 0  # passes finished
    position: int = 0  # batches of this epoch's plan already used
    seconds: float = 0.0  # of training, validations included
    training_seconds: float = 0.0  # of updates alone
    tokens: int = 0  # target tokens trained on, EOS included
    validated_step: int = 0  # of the last validation
    best_score: float | None = None
    best_step: int = 0
    stale: int = 0  # validations since the best one
    skipped: int = 0  # updates left out because their gradient was not finite
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
    sides: dict[str, Side],
) -> None:
    """Write everything that the rest of the run, or a translation, depends on."""
    random, plain_random = runtime.random_state()
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
        "environment": runtime.environment(next(model.parameters()).device),
    }
    save_checkpoint(path, tensors, header)


def restore_run(
    checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer
) -> Progress:
    """Put model, optimiser and random numbers where ``save_run`` found them."""
    model.load_state_dict(checkpoint.part("model"))
    restore_optimizer(optimizer, checkpoint.part("optimizer"))
    runtime.restore_random_state(checkpoint.part("rng"), checkpoint.header["random"])
    return Progress(**checkpoint.header["progress"])
