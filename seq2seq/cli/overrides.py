"""The arguments of a command line: flags, and overrides such as ``trainer.max_steps=100``."""

import argparse
import sys
from typing import Any, NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from seq2seq.cli.help import config_groups
from seq2seq.cli.hydra_internals import flags_parser
from seq2seq.config.registry import did_you_mean
from seq2seq.config.renamed import RENAMED
from seq2seq.config.schema import settings

REMOVED_GROUPS = {  # removed groups of conf/: their replacement
    "recipe": "data= brings the training settings that suit its corpus, experiment= those of a task"
}


class UserError(ValueError):
    """A mistake of the user; its text is one line that says what to do."""


class _Parser(argparse.ArgumentParser):
    """Hydra's flags, refused like everything else: in one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(
            f"{message}; settings are given as key=value, without dashes; flags come before or "
            f"after all settings. --help lists the settings."
        )


def parse_arguments() -> argparse.Namespace:
    """Parse the flags and overrides of this command line.

    Raises:
        UserError: a flag does not exist or is not supported.
    """
    sys.argv[1:] = [_decode(argument) for argument in sys.argv[1:]]
    args = _Parser(parents=[flags_parser()], add_help=False).parse_args()
    reasons = {
        "config_name": "each script has its own, conf/<script>.yaml",
        "experimental_rerun": "it reads a pickle, which can run arbitrary code; use resume=",
        "package": "--cfg job prints all settings",
        "shell_completion": "--help lists all settings",
    }
    for flag, reason in reasons.items():
        if value := getattr(args, flag):
            shown = flag.replace("_", "-") + ("" if value is True else f"={value}")
            raise UserError(f"--{shown} cannot be used with this program: {reason}.")
    commands = {
        "--run": args.run,
        "--multirun": args.multirun,
        "--cfg": args.cfg,
        "--info": args.info,
    }
    given = [flag for flag, is_given in commands.items() if is_given]
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} cannot be combined; give one of them.")
    if (
        args.resolve and args.cfg != "job"
    ):  # other values would create the run folder that they show
        raise UserError("--resolve only goes with --cfg job.")
    return args


def _decode(argument: str) -> str:
    """Return an argument as it was typed, even if the locale makes Python read it as ASCII.

    Raises:
        UserError: its bytes are not UTF-8.
    """
    try:
        return argument.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{argument!r} is not UTF-8 text (byte {error.start + 1}).") from error


def parse_override(text: str) -> Override:
    """Parse one override.

    Raises:
        UserError: it is not of the form key=value.
    """
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise UserError(
            f"{text!r} is not an override: write key=value, and put quotes around a value with "
            f"spaces, letters other than a-z or any of , = {{ }} [ ] ( ), as in 'key=\"a, ä\"'."
        ) from error


def check_overrides(overrides: list[str], schema: type) -> None:
    """Refuse settings and groups that do not exist, and suggest the most similar name.

    Raises:
        UserError: an override is refused; names it.
    """
    known = [key for key, _ in settings(schema)]
    groups = config_groups()
    for text in overrides:
        override = parse_override(text)
        key = (override.key_or_group or "").partition("@")[0]
        if override.is_delete():
            # Hydra would silently fall back on the defaults of the schema.
            raise UserError(f"{text}: a setting cannot be deleted; give {key}= another value.")
        if key.split(".")[0] == "hydra" or key.startswith("hydra/"):
            continue
        if key in groups:
            if not override.is_sweep_override():
                _check_choice(text, override.value(), groups[key])
        elif (group := key.replace(".", "/")) in groups and isinstance(override.value(), str):
            raise UserError(f"{text}: the files of conf/ are chosen by {group}={override.value()}.")
        elif key in RENAMED:
            raise UserError(f"{text}: the setting {key} is now called {RENAMED[key]}.")
        elif key in REMOVED_GROUPS:
            raise UserError(f"{text}: {key}= no longer exists; {REMOVED_GROUPS[key]}.")
        elif key not in known and not any(name.startswith(key + ".") for name in known):
            raise UserError(
                f"{text}: there is no setting {key!r}{did_you_mean(key, known + list(groups))}; "
                f"--help lists them all."
            )


def _check_choice(text: str, value: Any, options: list[str]) -> None:
    if value not in options:  # null is refused too: Hydra accepts it only in conf/
        raise UserError(
            f"{text}: there is no {str(value)!r}{did_you_mean(str(value), options)}; "
            f"choose one of {', '.join(options)}."
        )
