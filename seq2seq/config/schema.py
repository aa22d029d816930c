"""How a setting is declared, listed and checked. ``config`` declares them all.

Knows nothing of Hydra: that is ``command_line``'s.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import field, fields, is_dataclass
from types import UnionType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")

MISSING: Any = "???"  # OmegaConf's mark of a value that must be given
LARGEST = 2**63 - 1  # whole number that every library below takes


class Form(NamedTuple):
    """What a text may look like: a regular expression, and the same in words."""

    pattern: str
    words: str


def setting(
    default: Any,
    meaning: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
    form: Form | None = None,
) -> Any:
    """One setting of a dataclass below: default, meaning (with its unit) and what is allowed."""
    metadata = {
        "meaning": meaning,
        "at least": at_least,
        "above": above,
        "at most": at_most,
        "below": below,
        "choices": choices,
        "form": form,
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
        ValueError: it has a setting that this version does not know, or one of another type.
    """
    return from_json(kind, values, kind.__name__)


def from_json(kind: Any, value: Any, key: str) -> Any:
    """A value that came out of JSON, where ``key`` was, if it is one of this type.

    Args:
        kind: a dataclass of such types, which is made here; or ``int``, ``list[str]``,
            ``float | None`` and the like, which are only looked at. A list may be a ``tuple``.

    Raises:
        ValueError: it is of another type; names the entry.
    """
    if not (isinstance(kind, type) and is_dataclass(kind)):
        if not _fits(value, kind):
            shown = getattr(kind, "__name__", kind) if get_origin(kind) is None else kind
            raise ValueError(f"{key}={str(value)[:80]!r} must be of type {shown}.")
        return value
    if not isinstance(value, dict):
        raise ValueError(f"{key}={str(value)[:80]!r} must hold the settings of {kind.__name__}.")
    types = get_type_hints(kind)
    unknown = set(value) - set(types)
    if unknown:
        raise ValueError(
            f"the checkpoint has settings that this version does not know: "
            f"{', '.join(map(repr, sorted(unknown)))} (of {kind.__name__})."
        )
    return kind(
        **{name: from_json(types[name], item, f"{key}.{name}") for name, item in value.items()}
    )


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value out of JSON has a type that is no dataclass."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return any(_fits(value, choice) for choice in inner)
    if origin is list:
        return isinstance(value, list) and all(_fits(item, inner[0]) for item in value)
    if origin is tuple:
        return (
            isinstance(value, list)
            and len(value) == len(inner)
            and all(_fits(item, part) for item, part in zip(value, inner, strict=True))
        )
    if isinstance(value, bool):  # to Python, true is a number
        return kind is bool
    return isinstance(value, int | float if kind is float else kind)


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
    if item.metadata["form"]:
        return item.metadata["form"].words
    bounds = [
        f"{word} {item.metadata[word]}"
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
        elif value is not None and (fault := _fault(value, item)):
            raise ValueError(f"{key}={value} {fault}.")
    # Not __post_init__: OmegaConf makes objects with defaults that nobody asked for.
    if hasattr(config, "check"):
        config.check()


def _fault(value: Any, item: Any) -> str:
    """What is wrong with a value; empty if nothing is."""
    if isinstance(value, list):
        if any(isinstance(one, list | dict) for one in value):
            return "must be a list of single values"
        return next(filter(None, (_fault(one, item) for one in value)), "")
    if value == "":
        return "is empty: give it a value, or leave it out"
    if isinstance(value, float) and not math.isfinite(value):
        return "must be a finite number" + (f", {allowed(item)}" if allowed(item) else "")
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"must be at most {LARGEST}"
    return "" if _is_allowed(value, item.metadata) else f"must be {allowed(item)}"


def _is_allowed(value: Any, limits: Any) -> bool:
    if limits["choices"]:
        return value in limits["choices"]
    if limits["form"]:
        return re.fullmatch(limits["form"].pattern, value) is not None
    return (
        (limits["at least"] is None or value >= limits["at least"])
        and (limits["above"] is None or value > limits["above"])
        and (limits["at most"] is None or value <= limits["at most"])
        and (limits["below"] is None or value < limits["below"])
    )
