"""Every registry of the program, by the setting that chooses from it."""

from typing import Any

from seq2seq.config.registry import Registry


def registries() -> dict[str, Registry[Any]]:
    """Return the registries; their modules are imported now, as some take long."""
    from seq2seq.data.tokenizer import TOKENIZERS
    from seq2seq.evaluation.metrics import METRICS

    found: tuple[Registry[Any], ...] = (TOKENIZERS, METRICS)
    return {registry.key: registry for registry in found}
