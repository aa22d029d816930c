"""Optimisers, and learning rates as a pure function of progress."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from seq2seq.config.training import OptimConfig, ScheduleConfig


def build_optimizer(
    config: OptimConfig, parameters: Iterable[nn.Parameter]
) -> torch.optim.Optimizer:
    """The optimiser that ``optim.name`` asks for."""
    parameters = list(parameters)
    if config.name == "adadelta":
        return torch.optim.Adadelta(
            parameters, config.learning_rate, config.rho, config.epsilon, config.weight_decay
        )
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.name]
    first, second = config.betas
    return kind(
        parameters,
        config.learning_rate,
        (first, second),
        config.epsilon,
        config.weight_decay,
        fused=True,  # one pass over memory: four to five times as fast on a CPU
    )


def rate_factor(config: ScheduleConfig, step: int, progress: float) -> float:
    """The share of ``optim.learning_rate`` to use for the next update.

    A function of where the run stands and of nothing else, so that a resumed run goes on with
    the very same rates.

    Args:
        config: the schedule.
        step: updates made so far.
        progress: share of the run that is done, in [0, 1].
    """
    warmup = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    late = max(0.0, min(1.0, (progress - config.decay_from) / (1 - config.decay_from)))
    if config.name == "linear":
        return warmup * (1 - late)
    if config.name == "cosine":
        return warmup * (1 + math.cos(math.pi * late)) / 2
    if config.name == "inverse_sqrt":
        return warmup * math.sqrt(max(config.warmup_steps, 1) / max(step + 1, config.warmup_steps))
    return warmup


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use ``rate`` from now on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's memory, named ``<parameter number>.<what>``."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": torch.as_tensor(value)
        for number, values in state.items()
        for name, value in values.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Give an optimiser the memory that ``optimizer_tensors`` read."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
