"""All uses of Hydra's private API, in one place.

Hydra 1.3 has no public function to parse its command line without running a job, or to list the
jobs of a sweep; ``pyproject.toml`` excludes later versions until these functions are checked.
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
        overrides: the overrides of the command line.

    Returns:
        None if the sweeper is not Hydra's own and chooses its jobs at run time.
    """
    if not sweeper._target_.endswith(".BasicSweeper"):
        return None
    configured = [f"{key}={values}" for key, values in (sweeper.get("params") or {}).items()]
    parsed = OverridesParser.create().parse_overrides(configured + overrides)
    return BasicSweeper.split_arguments(parsed, None)[0]
