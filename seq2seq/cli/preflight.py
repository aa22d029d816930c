"""Checks a configuration with the builders that own its choices, before any data are read."""

from typing import Any

from seq2seq.cli.registries import registries
from seq2seq.config.schema import settings


def preflight(config: Any) -> None:
    """Refuse choices that are not registered, and models and optimizers that cannot be built.

    The model is built without values on the device "meta"; nothing is read or written.

    Raises:
        ValueError: a choice does not exist, or two do not fit together; names the settings.
        RuntimeError: a tensor would be too large to exist.
    """
    known = registries()
    for key, _ in settings(type(config)):
        if key in known:
            known[key].get_entry(_value(config, key))
    if hasattr(config, "model"):
        from seq2seq.search.loading import build_outline
        from seq2seq.training.optim import build_optimizer

        outline = build_outline(config.model, 4, 4)
        if hasattr(config, "optim"):
            build_optimizer(config.optim, outline.parameters())


def _value(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = getattr(config, name)
    return config
