"""The interface between the training loop and what it trains.

A task provides a model, its objectives, batches, a loss and a validation. For every task, the loop
provides updates, resuming, precision, checkpoints, logging, pictures and stopping.
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
from seq2seq.figures.style import save_figure
from seq2seq.files import replacing

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

    def save(self, stem: Path) -> None:
        """Write ``<stem>.png`` and ``<stem>.json``, each as a whole or not at all."""
        save_figure(self.figure, stem.with_name(stem.name + ".png"))
        with replacing(stem.with_name(stem.name + ".json")) as partial:
            partial.write_text(self.data + "\n", encoding="utf-8")


class Report(NamedTuple):
    """The result of one validation."""

    values: Mapping[str, float]  # curves; ``trainer.select`` names one of them
    drawings: Mapping[str, Drawing] = {}  # by tag, such as ``alignment/valid_0001``
    texts: Mapping[str, str] = {}  # Markdown by tag


class TaskState(NamedTuple):
    """Additional content of a checkpoint, next to parameters, optimizers and random states."""

    tensors: Mapping[str, Tensor] = {}
    header: Mapping[str, Any] = {}  # JSON


class Inputs(NamedTuple):
    """All that a task reads before it is built; a task may use another type with ``digests``."""

    digests: Mapping[str, str] = {}  # SHA-256 of every file, by its name


class Task(ABC, Generic[Batch]):
    """The base class of everything that the training loop can train.

    ``train.py`` creates a task in two steps: ``open`` finds and checks the input files, ``build``
    creates the model. A test may also call a constructor directly.

    Attributes:
        model: the module with all parameters, on its device; saved as ``model.*``.
        objectives: updated one after another in each step.
        num_examples: examples in an epoch.
        item_name: plural noun for the items over which the loss is averaged, as in ``tokens/s``.
    """

    model: nn.Module
    objectives: Sequence[Objective]
    num_examples: int
    item_name: str = "examples"

    @classmethod
    def open(cls, config: TrainConfig) -> Any:
        """Find and read the inputs of a run; their ``digests`` go into its manifest.

        Raises:
            ValueError, OSError: a setting or a file is invalid.
        """
        return Inputs()

    @classmethod
    @abstractmethod
    def build(cls, config: TrainConfig, inputs: Any, device: torch.device) -> "Task":
        """Build the task of a run; the random state is already seeded."""

    @abstractmethod
    def batches(self, epoch: int, position: int) -> Iterator[Batch]:
        """Yield the batches of an epoch after its first ``position`` examples. They depend only on
        ``epoch`` and ``position``, so a run can be resumed anywhere."""

    @abstractmethod
    def size(self, batch: Batch) -> BatchSize:
        """Return the number of examples and of items in a batch."""

    @abstractmethod
    def loss(self, objective: Objective, batch: Batch) -> Loss:
        """Compute the loss of a batch, summed over its items, in the precision of the run."""

    @abstractmethod
    def validate(self, step: int) -> Report:
        """Evaluate the model on held-out data after ``step`` updates. Writes no file, and does not
        change parameters or random states."""

    def describe(self, epoch: int, position: int, num_batches: int) -> str:
        """Name the examples of some batches of an epoch, for messages about a failed update."""
        return f"epoch {epoch + 1}, after example {position:,} ({num_batches} batches)"

    def batch_settings(self) -> str:
        """Name the settings, with their values, that make batches smaller."""
        return "batch size"

    def score(self, checkpoint: Path) -> dict[str, Any]:
        """Score the best checkpoint at the end of a run, as JSON for ``summary.json``."""
        return {}

    @property
    def prepared(self) -> str | None:
        """The name of the folder of prepared data, for the manifest, if there is one."""
        return None

    def state(self) -> TaskState:
        """Return additional content for a checkpoint."""
        return TaskState()

    def load_state(self, checkpoint: Checkpoint) -> None:
        """Restore what ``state`` returned."""
