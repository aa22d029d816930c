"""Hydra's private parts that this program uses, all in one place.

Hydra 1.3 has no public way to parse its command line without running a job, or to list the jobs of
a sweep; ``pyproject.toml`` allows no later version until these two functions have been checked.
"""

import argparse
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser


def flags_parser() -> argparse.ArgumentParser:
    """Return the parser of Hydra's flags and of the list of overrides."""
    return get_args_parser()


def split_sweep(sweeper: Any, overrides: list[str]) -> list[list[str]] | None:
    """Return the overrides of each job of a sweep.

    Args:
        sweeper: the composed ``hydra.sweeper``.
        overrides: those of the command line.

    Returns:
        None where another sweeper than Hydra's own decides at run time what it tries.
    """
    if not sweeper._target_.endswith(".BasicSweeper"):
        return None
    configured = [f"{key}={values}" for key, values in (sweeper.get("params") or {}).items()]
    parsed = OverridesParser.create().parse_overrides(configured + overrides)
    return BasicSweeper.split_arguments(parsed, None)[0]
