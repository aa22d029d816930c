"""Every registry of the program, by the setting that selects an entry."""

from typing import Any

from seq2seq.config.registry import Registry


def registries() -> dict[str, Registry[Any]]:
    """Return the registries; their modules are imported only now, because some are slow."""
    from seq2seq.attention.distribution import MODES
    from seq2seq.attention.masking import NORMALIZERS
    from seq2seq.attention.scoring import SCORES
    from seq2seq.data.tokenizer import TOKENIZERS
    from seq2seq.evaluation.metrics import METRICS
    from seq2seq.model.build import INITIALIZATIONS
    from seq2seq.model.cells import CELLS
    from seq2seq.tasks.build import TASKS
    from seq2seq.training.optim import OPTIMIZERS, SCHEDULES

    found: tuple[Registry[Any], ...] = (
        *(TASKS, TOKENIZERS, SCORES, MODES, NORMALIZERS, CELLS, INITIALIZATIONS),
        *(OPTIMIZERS, SCHEDULES, METRICS),
    )
    return {registry.key: registry for registry in found}
