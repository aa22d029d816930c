"""Plug-ins: modules of the user's own that add to the registries when they are imported."""

import importlib
import os
import sys
from collections.abc import Sequence


def import_plugins(names: Sequence[str]) -> None:
    """Import the modules that ``plugins=`` names, from the current folder too.

    Raises:
        ValueError: one cannot be imported; names it and the reason.
    """
    # `python scripts/train.py` looks for modules in scripts/, not in the current folder. Last in
    # the path, so that no file there hides a module of a library.
    if names and (folder := os.getcwd()) not in sys.path:
        sys.path.append(folder)
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise ValueError(
                f"plugins=[{name}]: the module {name!r} cannot be imported "
                f"({type(error).__name__}: {error})."
            ) from error


def require_plugins(stored: Sequence[str], source: str) -> None:
    """Refuse what needs a plug-in that has not been imported.

    A plug-in is code, and a checkpoint may come from a stranger: loading one never imports what it
    names.

    Args:
        stored: the ``plugins`` of a stored configuration.
        source: what holds it, for the message, such as ``checkpoint=<file>``.

    Raises:
        ValueError: names the plug-ins, and how to give them.
    """
    if missing := [name for name in stored if name not in sys.modules]:
        raise ValueError(
            f"{source} was trained with plug-ins that are not loaded; if you trust them, give "
            f"'plugins=[{','.join(stored)}]' (missing: {', '.join(missing)})."
        )
