"""Which settings differ between two configurations of a training run, and what they decide."""

from typing import Any

from seq2seq.config.schema import (
    Change,
    Decides,
    comparable_settings,
    differences,
    settings,
)
from seq2seq.config.training import TrainConfig

DECIDES: dict[str, Decides] = {key: item.metadata["decides"] for key, item in settings(TrainConfig)}
COMPARABLE = comparable_settings(TrainConfig)


def changes(before: dict[str, Any], after: dict[str, Any], *decide: Decides) -> list[Change]:
    """Return the settings that differ between two ``dataclasses.asdict(TrainConfig)``.

    Args:
        before, after: the configurations; a group of settings alone may be given too.
        decide: keep only the settings that decide one of these; by default all. A setting that
            this version does not know counts as one that decides the parameters.
    """
    return [
        change
        for change in differences(before, after)
        # A resumed run always differs from its first start in ``resume``.
        if change.key != "resume"
        and (not decide or DECIDES.get(change.key, "parameters") in decide)
    ]
