"""When a run is over: by updates, epochs, minutes or patience, whichever comes first."""

from seq2seq.config.training import TrainConfig, TrainerConfig
from seq2seq.training.state import Progress


def is_over(settings: TrainerConfig, progress: Progress) -> bool:
    """Whether a limit is reached."""
    return (
        (settings.max_steps is not None and progress.step >= settings.max_steps)
        or (settings.max_epochs is not None and progress.epoch >= settings.max_epochs)
        or (settings.max_minutes is not None and progress.seconds >= 60 * settings.max_minutes)
        or (settings.patience is not None and progress.stale >= settings.patience)
    )


def share_done(settings: TrainerConfig, progress: Progress, num_pairs: int) -> float:
    """Share of a run on ``num_pairs`` that is done, by whichever limit is nearest."""
    epochs = progress.epoch + progress.position / num_pairs
    shares = (
        progress.step / settings.max_steps if settings.max_steps else 0.0,
        epochs / settings.max_epochs if settings.max_epochs else 0.0,
        progress.seconds / 60 / settings.max_minutes if settings.max_minutes else 0.0,
    )
    return min(1.0, max(shares))


def follows_clock(config: TrainConfig) -> bool:
    """Whether learning rates depend on how fast the machine is."""
    falls = config.optim.schedule.name in ("linear", "cosine")
    return falls and config.trainer.max_minutes is not None
