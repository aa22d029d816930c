"""How a setting is declared, listed and checked. ``config`` declares them all.

Knows nothing of Hydra: that is ``command_line``'s.
"""

from collections.abc import Iterator
from dataclasses import field, fields, is_dataclass
from typing import Any, TypeVar

T = TypeVar("T")

MISSING: Any = "???"  # OmegaConf's mark of a value that must be given


def setting(
    default: Any,
    meaning: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """One setting of a dataclass below: default, meaning (with its unit) and what is allowed."""
    metadata = {
        "meaning": meaning,
        "at least": at_least,
        "above": above,
        "at most": at_most,
        "below": below,
        "choices": choices,
    }
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def part(kind: type) -> Any:
    """A group of settings inside another."""
    return field(default_factory=kind)


def from_dict(kind: type[T], values: dict[str, Any]) -> T:
    """A config dataclass from ``dataclasses.asdict`` of one, as checkpoints keep it.

    Raises:
        ValueError: it has a setting that this version does not know.
    """
    groups = {
        item.name: item.default_factory
        for item in fields(kind)  # type: ignore[arg-type]
        if is_dataclass(item.default_factory)
    }
    unknown = set(values) - {item.name for item in fields(kind)}  # type: ignore[arg-type]
    if unknown:
        raise ValueError(
            f"the checkpoint has settings that this version does not know: "
            f"{', '.join(sorted(unknown))} (of {kind.__name__})."
        )
    return kind(
        **{
            name: from_dict(groups[name], value) if name in groups else value  # type: ignore[arg-type]
            for name, value in values.items()
        }
    )


def settings(kind: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a config class with its full key, depth first."""
    for item in fields(kind):
        if is_dataclass(item.default_factory):
            yield from settings(item.default_factory, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, item


def allowed(item: Any) -> str:
    """What a setting may be, in words; empty where its type says it all."""
    if item.metadata["choices"]:
        return "one of " + ", ".join(item.metadata["choices"])
    bounds = [
        f"{word} {item.metadata[word]:g}"
        for word in ("at least", "above", "at most", "below")
        if item.metadata[word] is not None
    ]
    return " and ".join(bounds)


def check_values(config: Any, prefix: str = "") -> None:
    """Refuse impossible values.

    Raises:
        ValueError: names the key as the user types it, the value, and what is allowed.
    """
    for item in fields(config):
        value, key = getattr(config, item.name), prefix + item.name
        if is_dataclass(value):
            check_values(value, key + ".")
        elif value is not None and not _is_allowed(value, item.metadata):
            raise ValueError(f"{key}={value} must be {allowed(item)}.")
    # Not __post_init__: OmegaConf makes objects with defaults that nobody asked for.
    if hasattr(config, "check"):
        config.check()


def _is_allowed(value: Any, limits: Any) -> bool:
    if limits["choices"]:
        return value in limits["choices"]
    # Written so that NaN fails every bound.
    return (
        (limits["at least"] is None or value >= limits["at least"])
        and (limits["above"] is None or value > limits["above"])
        and (limits["at most"] is None or value <= limits["at most"])
        and (limits["below"] is None or value < limits["below"])
    )
