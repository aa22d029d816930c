"""Named choices: one registry for each setting that selects a class, a function or a table row.

The module that owns the classes owns their registry; the configuration does not repeat the names.
A plug-in adds to a registry when it is imported.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """Entries by name, in the order in which they were added.

    Args:
        key: the setting that selects an entry, such as ``model.attention.name``; shown in error
            messages and ``--help``.
        entries: the initial entries.
    """

    def __init__(self, key: str, entries: Mapping[str, T]) -> None:
        self.key = key
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> T:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def register(self, name: str, entry: T) -> None:
        """Add an entry; adding the same one again does nothing.

        Raises:
            ValueError: another entry has this name.
        """
        if self._entries.setdefault(name, entry) is not entry:
            raise ValueError(f"{self.key}={name} is already registered; choose another name.")

    def get_entry(self, name: str) -> T:
        """Return the entry that the setting names.

        Raises:
            ValueError: there is no such entry; the message lists the choices.
        """
        if name not in self._entries:
            raise ValueError(
                f"{self.key}={on_one_line(name)} is unknown{did_you_mean(name, self)}; "
                f"choose one of {', '.join(self)}."
            )
        return self._entries[name]


def on_one_line(value: object) -> str:
    """Format a value for a one-line message; line feeds and the like are escaped."""
    text = str(value)
    return text if text.isprintable() else repr(text)


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Suggest the most similar name, in parentheses; empty if no name is similar.

    A key whose last components are ``word`` counts as similar: ``max_steps`` suggests
    ``trainer.max_steps``.
    """
    names = list(names)
    by_suffix = [name for name in names if name.endswith("." + word)]
    similar = by_suffix or difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f" (did you mean {similar[0]!r}?)" if similar else ""
