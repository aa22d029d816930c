"""Functions to declare, list and check settings; the other modules of this room declare them.

Independent of Hydra, which only the command line knows.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import field, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from seq2seq.config.registry import on_one_line

T = TypeVar("T")

MISSING: Any = "???"  # OmegaConf's marker of a required value
LARGEST = 2**63 - 1  # the largest integer that every library below accepts

# What a setting decides. Resuming, reproduction, comparison and the cache of prepared data use this
# instead of lists of settings.
Decides = Literal[
    "parameters",  # meaning and initial values of the tensors in a checkpoint
    "corpus",  # which text is read
    "text",  # how that text is read, cleaned, tokenized and numbered
    "order",  # batches and their order
    "updates",  # how parameters are updated, and how often
    "scores",  # how translations are made, scored and selected
    "nothing",  # folders, logging, speed: the results are the same
]


class Form(NamedTuple):
    """The form of an allowed string: a regular expression, and the same in words."""

    pattern: str
    words: str


def setting(
    default: Any,
    meaning: str,
    *,
    decides: Decides,
    comparable: bool = False,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
    form: Form | None = None,
) -> Any:
    """Declare one setting of a configuration dataclass.

    Args:
        default: its default value.
        meaning: one phrase for ``--help``, with the unit.
        decides: what the setting decides, one of ``Decides``.
        comparable: whether the models of a comparison may differ in it.
        at_least, above, at_most, below: bounds of a number, or of each number in a list.
        choices: the allowed strings, unless a registry owns them.
        form: the form of an allowed string.
    """
    if decides not in get_args(Decides):
        raise TypeError(f"decides={decides!r} must be one of {', '.join(get_args(Decides))}.")
    metadata = {
        "meaning": meaning,
        "decides": decides,
        "comparable": comparable,
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


def group(kind: type, comparable: bool = False) -> Any:
    """Declare a group of settings inside another; ``comparable`` holds for all of them."""
    return field(default_factory=kind, metadata={"comparable": comparable})


def settings(kind: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting of a configuration class with its full key, depth first."""
    for item in fields(kind):
        if is_dataclass(item.default_factory):
            yield from settings(item.default_factory, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, item


def comparable_settings(kind: type, prefix: str = "", inherited: bool = False) -> set[str]:
    """Return the keys of the settings in which the models of a comparison may differ."""
    keys: set[str] = set()
    for item in fields(kind):
        is_comparable = inherited or item.metadata["comparable"]
        if is_dataclass(item.default_factory):
            inner = item.default_factory
            keys |= comparable_settings(inner, f"{prefix}{item.name}.", is_comparable)
        elif is_comparable:
            keys.add(prefix + item.name)
    return keys


def values_that_decide(what: Decides, config: Any) -> dict[str, Any]:
    """Return the settings of a configuration that decide ``what``, as nested dictionaries."""
    values: dict[str, Any] = {}
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value):
            if inner := values_that_decide(what, value):
                values[item.name] = inner
        elif item.metadata["decides"] == what:
            values[item.name] = value
    return values


class Change(NamedTuple):
    """A setting with two different values; as text, ``key: before -> after``."""

    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.key}: {self.before} -> {self.after}"


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Return the differences between nested dictionaries, in the order of ``after``.

    Keys that only ``before`` has are not reported.
    """
    flat_before, flat_after = _flatten(before), _flatten(after)
    return [
        Change(key, flat_before.get(key), value)
        for key, value in flat_after.items()
        if flat_before.get(key) != value
    ]


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def from_dict(kind: type[T], values: dict[str, Any]) -> T:
    """Make a configuration dataclass from its ``dataclasses.asdict``, as checkpoints store it.

    Raises:
        ValueError: a setting is unknown to this version, or its value has the wrong type.
    """
    return from_json(kind, values, kind.__name__)


def from_json(kind: Any, value: Any, key: str) -> Any:
    """Check the type of a value read from JSON, and convert it to that type.

    A library would be shorter, but dacite 1.9 accepts ``true`` as an integer, does not convert
    lists to tuples and does not quote the value; OmegaConf turns ``"1"`` into 1.

    Args:
        kind: a dataclass, which is constructed; or a type such as ``int``, ``list[str]`` or
            ``float | None``, which is only checked. A JSON list may be a ``tuple``.
        value: the value read from JSON.
        key: its position in the JSON, for messages.

    Raises:
        ValueError: the value has the wrong type; names the entry.
    """
    if not (isinstance(kind, type) and is_dataclass(kind)):
        if not _has_type(value, kind):
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


def _has_type(value: Any, kind: Any) -> bool:
    """Return whether a value read from JSON has a type that is not a dataclass."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return any(_has_type(value, choice) for choice in inner)
    if origin is list:
        return isinstance(value, list) and all(_has_type(item, inner[0]) for item in value)
    if origin is tuple:
        return (
            isinstance(value, list)
            and len(value) == len(inner)
            and all(_has_type(item, each) for item, each in zip(value, inner, strict=True))
        )
    if isinstance(value, bool):  # to Python, a bool is an int
        return kind is bool
    return isinstance(value, int | float if kind is float else kind)


def allowed(item: Any) -> str:
    """Describe the allowed values of a setting in words; empty if its type says it all."""
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
    """Refuse values outside their range, and combinations that a ``check`` method refuses.

    Raises:
        ValueError: names the key as the user types it, the value, and what is allowed.
    """
    for item in fields(config):
        value, key = getattr(config, item.name), prefix + item.name
        if is_dataclass(value):
            check_values(value, key + ".")
        elif value is not None and (problem := _problem(value, item)):
            raise ValueError(f"{key}={on_one_line(value)} {problem}.")
    # Not __post_init__: OmegaConf constructs objects with defaults that the user never asked for.
    if hasattr(config, "check"):
        config.check()


def _problem(value: Any, item: Any) -> str:
    """Describe what is wrong with a value; empty if it is allowed."""
    if isinstance(value, list):
        if any(isinstance(one, list | dict) for one in value):
            return "must be a list of single values"
        return next(filter(None, (_problem(one, item) for one in value)), "")
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
