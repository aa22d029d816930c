"""The progress of a run, and the limits that end it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from seq2seq.config.training import TrainerConfig


@dataclass
class Progress:
    """The progress of a run; every checkpoint stores all of it."""

    step: int = 0  # updates made
    epoch: int = 0  # epochs finished
    position: int = 0  # examples of this epoch already used
    seconds: float = 0.0  # training time, including validation
    training_seconds: float = 0.0  # time spent on updates alone
    items: int = 0  # items trained on; for translation, target tokens including EOS
    validated_step: int = 0  # step of the last validation
    best_score: float | None = None
    best_step: int = 0
    # (score, step) of the validations whose checkpoints trainer.keep_best keeps, best first:
    ranking: list[tuple[float, int]] = field(default_factory=list)
    stale: int = 0  # validations since the best one
    skipped: int = 0  # updates skipped because a gradient was not finite
    consecutive_skips: int = 0  # updates skipped in a row, up to now
    # Factor by which fp16 gradients are scaled up, and number of updates without overflow:
    scaling: tuple[float, int] = (1.0, 0)
    # Since the last log line, without skipped updates; losses in the order of the objectives:
    interval_losses: list[float] = field(default_factory=list)
    interval_items: int = 0
    interval_seconds: float = 0.0

    def count_seconds(self, seconds: float) -> None:
        """Add the duration of an update."""
        self.seconds += seconds
        self.training_seconds += seconds
        self.interval_seconds += seconds


def is_over(settings: TrainerConfig, progress: Progress) -> bool:
    """Return whether a limit on updates, epochs, minutes or patience is reached."""
    return (
        (settings.max_steps is not None and progress.step >= settings.max_steps)
        or (settings.max_epochs is not None and progress.epoch >= settings.max_epochs)
        or (settings.max_minutes is not None and progress.seconds >= 60 * settings.max_minutes)
        or (settings.patience is not None and progress.stale >= settings.patience)
    )


def share_done(settings: TrainerConfig, progress: Progress, num_examples: int) -> float:
    """Return the completed share of the run, in [0, 1], measured by the nearest limit."""
    epochs = progress.epoch + progress.position / num_examples
    shares = (
        progress.step / settings.max_steps if settings.max_steps else 0.0,
        epochs / settings.max_epochs if settings.max_epochs else 0.0,
        progress.seconds / 60 / settings.max_minutes if settings.max_minutes else 0.0,
    )
    return min(1.0, max(shares))


def format_update(progress: Progress, max_epochs: int | None, values: Mapping[str, float]) -> str:
    """Format one line of the training log.

    Args:
        progress: progress of the run.
        max_epochs: number of epochs after which the run ends, if known.
        values: values of the ``train/`` curves; with several objectives, their names end in
            ``_<objective>``.
    """
    fields = [f"step {progress.step:>6}"]
    fields.append(f"epoch {progress.epoch + 1}" + (f"/{max_epochs}" if max_epochs else ""))
    formats = {
        "loss": ("loss", ".3f"),
        "gradient_norm": ("gradient", ".2f"),
        "learning_rate": ("rate", ".2g"),
    }
    for kind, (word, digits) in formats.items():
        fields += [
            f"{name.replace(kind, word)} {value:{digits}}"
            for name, value in values.items()
            if name.startswith(kind)
        ]
    fields += [
        f"{value:,.0f} {name.removesuffix('_per_second')}/s"
        for name, value in values.items()
        if name.endswith("_per_second")
    ]
    return "  ".join(fields)
