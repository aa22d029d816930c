"""What the training loop needs to know about what it trains: nothing more than a ``Task``.

A task brings a model, its objectives, batches, a loss and a validation. The loop brings updates,
resuming, precision, checkpoints, logging, pictures and stopping to every task alike.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from seq2seq.checkpoint import Checkpoint
from seq2seq.config.training import TrainConfig

Batch = TypeVar("Batch")


class Objective(NamedTuple):
    """One optimizer with its parameters and learning rate; most tasks have one, a GAN has two."""

    name: str  # names curves and optimizer tensors where a task has several objectives
    optimizer: torch.optim.Optimizer
    learning_rate: float  # the highest one
    schedule: Callable[[int, float], float]  # (updates made, share of the run) -> factor
    max_gradient_norm: float | None = None  # gradients are scaled down to it

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Every parameter that the optimizer updates."""
        return [p for group in self.optimizer.param_groups for p in group["params"]]


class Loss(NamedTuple):
    """Sums over the items of one batch. Sums rather than means, because batches differ in their
    number of items: a mean of batch means would weight each item of a small batch more heavily."""

    objective: Tensor  # what is minimized, label smoothing and the like included
    reported: Tensor  # what is logged


class BatchSize(NamedTuple):
    """How large a batch is."""

    examples: int  # counted in the position within an epoch
    items: int  # that the loss is a sum over: target tokens, pixels, examples


class Drawing(NamedTuple):
    """A picture of one validation, and the numbers in it as JSON text."""

    figure: Figure
    data: str


class Report(NamedTuple):
    """The result of one validation."""

    values: Mapping[str, float]  # curves; ``trainer.select`` names one of them
    drawings: Mapping[str, Drawing] = {}  # by tag, such as ``alignment/valid_0001``
    texts: Mapping[str, str] = {}  # Markdown by tag


class TaskState(NamedTuple):
    """What a checkpoint holds in addition to parameters, optimizers and random states."""

    tensors: Mapping[str, Tensor] = {}
    header: Mapping[str, Any] = {}  # JSON


class Inputs(NamedTuple):
    """What a task read before it was built; tasks return a type of their own with ``digests``."""

    digests: Mapping[str, str] = {}  # SHA-256 of every file, by its name


class Task(ABC, Generic[Batch]):
    """Everything that the training loop asks of what it trains.

    ``train.py`` makes a task in two steps: ``open`` finds and reads what can be wrong, ``build``
    makes the model. A test may also call a constructor directly.

    Attributes:
        model: holds every parameter, on its device; saved as ``model.*``.
        objectives: updated one after another in each step.
        num_examples: examples in an epoch.
        item_name: plural noun for what the loss is averaged over, as in ``tokens/s``.
    """

    model: nn.Module
    objectives: Sequence[Objective]
    num_examples: int
    item_name: str = "examples"

    @classmethod
    def open(cls, config: TrainConfig) -> Any:
        """Find and read the inputs of a run; their ``digests`` go into its manifest.

        Raises:
            ValueError, OSError: something is wrong with a setting or a file.
        """
        return Inputs()

    @classmethod
    @abstractmethod
    def build(cls, config: TrainConfig, inputs: Any, device: torch.device) -> "Task":
        """Make the task of a run, with its model initialized from the seeded random state."""

    @abstractmethod
    def batches(self, epoch: int, position: int) -> Iterator[Batch]:
        """The batches of an epoch after its first ``position`` examples: a pure function of both,
        so that a run can be resumed anywhere."""

    @abstractmethod
    def size(self, batch: Batch) -> BatchSize:
        """How many examples and items a batch holds."""

    @abstractmethod
    def loss(self, objective: Objective, batch: Batch) -> Loss:
        """The loss of a batch, summed over its items, under the precision of the run."""

    @abstractmethod
    def validate(self, step: int) -> Report:
        """Evaluate the model on held-out data after ``step`` updates. Writes no file and leaves
        parameters and random states as they are."""

    def describe(self, epoch: int, position: int, num_batches: int) -> str:
        """Name the examples of some batches of an epoch, for messages about a failed update."""
        return f"epoch {epoch + 1}, after example {position:,} ({num_batches} batches)"

    def batch_settings(self) -> str:
        """The settings, with their values, that make batches smaller."""
        return "batch size"

    def score(self, checkpoint: Path) -> dict[str, Any]:
        """Score the best checkpoint at the end of a run, as JSON for ``summary.json``."""
        return {}

    @property
    def prepared(self) -> str | None:
        """The name of the folder of prepared data, for the manifest, if there is one."""
        return None

    def state(self) -> TaskState:
        """What a checkpoint must also hold."""
        return TaskState()

    def load_state(self, checkpoint: Checkpoint) -> None:
        """Restore what ``state`` returned."""
