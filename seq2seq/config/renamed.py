"""Old names of settings, parameters and fields of progress: the only place that still knows them.

Checkpoints and manifests of earlier versions are upgraded when they are read; on the command line
an old name is refused with the new one.
"""

from typing import Any

RENAMED = {  # old key: new key, in the same group
    "model.attention.weighing": "model.attention.mode",
    "model.attention.normalisation": "model.attention.normalization",
    "model.initialisation": "model.initialization",
}


RENAMED_TENSORS = {  # old prefix: new prefix, of the tensors in a checkpoint
    "model.decoder.attention.weighing.": "model.decoder.attention.distribution.",
}


RENAMED_PROGRESS = {  # old name: new name, in the progress of a run
    "tokens": "items",
    "nonsense": "consecutive_skips",
    "interval_nll": "interval_losses",  # one number, now a list with one for each objective
    "interval_tokens": "interval_items",
}


def current_tensor_name(name: str) -> str:
    """Return the current name of a tensor in a checkpoint."""
    for old, new in RENAMED_TENSORS.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def upgrade(config: Any, prefix: str = "") -> Any:
    """Return a stored configuration with the current names of its settings.

    Args:
        config: nested dictionaries as a checkpoint or manifest stores them; the input is not
            changed, and a value that is not a dictionary is returned as it is.
        prefix: the group that ``config`` holds, such as ``"model."``; by default all of them.
    """
    if not isinstance(config, dict):
        return config
    return {
        _current_name(f"{prefix}{name}"): upgrade(value, f"{prefix}{name}.")
        for name, value in config.items()
    }


def upgrade_progress(progress: Any) -> Any:
    """Return the progress that a checkpoint stores with its current names."""
    if not isinstance(progress, dict):  # a damaged file
        return progress
    renamed = {RENAMED_PROGRESS.get(name, name): value for name, value in progress.items()}
    if "interval_nll" in progress:
        renamed["interval_losses"] = [progress["interval_nll"]]
    return renamed


def _current_name(key: str) -> str:
    """Return the last component of a key's current name."""
    return RENAMED.get(key, key).rpartition(".")[2]
