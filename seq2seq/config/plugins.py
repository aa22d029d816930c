"""Plug-ins: the user's own modules, which add to the registries when they are imported."""

import importlib
import os
import sys
from collections.abc import Sequence


def import_plugins(names: Sequence[str]) -> None:
    """Import the modules that ``plugins=`` names; they may be in the current folder.

    Raises:
        ValueError: a module cannot be imported; names the module and the reason.
    """
    # `python scripts/train.py` looks for modules in scripts/, not in the current folder. The
    # current folder comes last, so that its files cannot hide the module of a library.
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
    """Refuse a stored configuration that needs a plug-in which has not been imported.

    A plug-in is code, and a checkpoint may come from a stranger, so loading a checkpoint never
    imports the plug-ins that it names.

    Args:
        stored: the ``plugins`` of a stored configuration.
        source: where it is stored, for the message, such as ``checkpoint=<file>``.

    Raises:
        ValueError: a plug-in is missing; names it and the setting that imports it.
    """
    if missing := [name for name in stored if name not in sys.modules]:
        raise ValueError(
            f"{source} was trained with plug-ins that are not loaded; if you trust them, give "
            f"'plugins=[{','.join(stored)}]' (missing: {', '.join(missing)})."
        )
