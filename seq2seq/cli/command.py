"""From the command line to plain dataclasses: the only place that knows Hydra.

    @command("train", TrainConfig)
    def main(config: TrainConfig) -> float: ...

    if __name__ == "__main__":
        main()

Whatever a user can get wrong ends in one line on stderr and exit status 2, before anything is
read or written; ``ending`` has the other statuses.
"""

from seq2seq.cli.exit import orderly, refuse, write  # isort: skip  (before all that takes long to import)

import argparse
import gc
import inspect
import os
import sys
from collections.abc import Callable
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import hydra
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq.cli.help import CONF, REPOSITORY, config_groups, usage
from seq2seq.config.registry import did_you_mean
from seq2seq.config.renamed import RENAMED
from seq2seq.config.schema import check_values, settings
from seq2seq.device import is_out_of_memory
from seq2seq.run_folder import SNAPSHOT, remove_unused, run_dir, snapshot

T = TypeVar("T")


class UserError(ValueError):
    """A setting that cannot be; its text is one line that says what to do."""


def command(
    name: str, schema: type, sweeps: bool = False
) -> Callable[[Callable[[Any], Any]], Callable[[], list[Any]]]:
    """Make a function of a config dataclass the command that ``conf/<name>.yaml`` describes.

    Args:
        name: of the file in ``conf/``.
        schema: the config dataclass.
        sweeps: whether it always runs several jobs, those that its file names.

    Returns:
        What makes a function the command; calling that gives what each job returned.
    """

    # Somebody who sets Hydra's variable for full errors wants the traceback.
    debugging = "HYDRA_FULL_ERROR" in os.environ

    def decorate(function: Callable[[Any], Any]) -> Callable[[], list[Any]]:
        results: list[Any] = []

        def job(composed: DictConfig) -> Any:
            try:
                results.append(function(typed(composed, schema)))
            except (ValueError, OSError, MemoryError, RuntimeError) as error:
                # Of torch's many errors, a user can do something about one.
                fault = isinstance(error, RuntimeError) and not is_out_of_memory(error)
                if debugging or fault:
                    raise
                if HydraConfig.get().output_subdir == SNAPSHOT:  # not that of an earlier start
                    remove_unused(output_dir())
                refuse(error, one_line(error))
            return results[-1]

        def main() -> list[Any]:
            gc.freeze()  # what was imported stays; to look through it again took 90 ms each time
            with orderly():
                try:
                    if parse_arguments().help:
                        write(usage(inspect.getmodule(function), schema))
                    else:
                        _start(name, schema, sweeps, job)
                except (HydraException, OmegaConfBaseException, UserError, OSError) as error:
                    refuse(error, one_line(error))
                if sweeps and results:
                    write(results[-1])
            return results

        return main

    return decorate


def _start(name: str, schema: type, sweeps: bool, job: Callable[[DictConfig], Any]) -> None:
    """Check the command line as a whole, then run the jobs that it asks for."""
    register(name, schema)
    args = parse_arguments()
    # Hydra would print its own errors over several lines; this variable hands them to us.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    check_overrides(args.overrides, schema)
    # Composed here once more, so that a bad value leaves no run folder behind, and that of a last
    # job does not wait for the jobs before it.
    with initialize_config_dir(str(CONF), version_base="1.3"):
        for overrides in jobs(name, args.overrides, args.multirun or sweeps):
            typed(compose(name, overrides), schema)
    hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(job)()


def in_utf8(argument: str) -> str:
    """An argument as it was typed, also where the locale makes Python take it for ASCII.

    Raises:
        UserError: its bytes are no UTF-8.
    """
    try:
        return argument.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{argument!r} is not UTF-8 text (byte {error.start + 1}).") from error


class _Parser(argparse.ArgumentParser):
    """Hydra's flags, refused as everything else is: in one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(
            f"{message}; settings are given as key=value, without dashes, and flags before or "
            f"behind all of them. --help lists what there is."
        )


def parse_arguments() -> argparse.Namespace:
    """Flags and overrides of this command line.

    Raises:
        UserError: a flag that does not exist, or that makes no sense here.
    """
    sys.argv[1:] = [in_utf8(argument) for argument in sys.argv[1:]]
    args = _Parser(parents=[get_args_parser()], add_help=False).parse_args()
    reasons = {
        "config_name": "each script has its own, conf/<script>.yaml",
        "experimental_rerun": "it reads a pickle, which may run anything; use resume=",
        "package": "--cfg job prints all settings",
        "shell_completion": "--help lists all settings",
    }
    for flag, reason in reasons.items():
        if value := getattr(args, flag):
            shown = flag.replace("_", "-") + ("" if value is True else f"={value}")
            raise UserError(f"--{shown} is not for this program: {reason}.")
    commands = {
        "--run": args.run,
        "--multirun": args.multirun,
        "--cfg": args.cfg,
        "--info": args.info,
    }
    given = [flag for flag, is_given in commands.items() if is_given]
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} cannot go together; give one of them.")
    if args.resolve and args.cfg != "job":  # the others would make the run folder they show
        raise UserError("--resolve goes with --cfg job alone.")
    return args


def jobs(name: str, overrides: list[str], sweeps: bool) -> list[list[str]]:
    """The overrides of each job that a command line starts."""
    if not sweeps:
        return [overrides]
    parser = OverridesParser.create()
    parsed = parser.parse_overrides(overrides)
    single = [text for text, o in zip(overrides, parsed, strict=True) if not o.is_sweep_override()]
    sweeper = compose(name, single, return_hydra_config=True).hydra.sweeper
    if not sweeper._target_.endswith(".BasicSweeper"):
        return [single]  # what another sweeper tries, it alone knows
    swept = [f"{key}={values}" for key, values in (sweeper.get("params") or {}).items()]
    return BasicSweeper.split_arguments(parser.parse_overrides(swept + overrides), None)[0]


def one_line(error: BaseException) -> str:
    """The useful part of an error; Hydra and OmegaConf spread it over lines and causes."""
    if isinstance(error, HydraException) and isinstance(error.__cause__, OmegaConfBaseException):
        error = error.__cause__
    if isinstance(error, OmegaConfBaseException):
        if "is not a ListConfig" in str(error):  # and does not say which value
            return f"{error.full_key} must be a list, as in '{error.full_key}=[a,b]'."
        key = f"{error.full_key}: " if error.full_key else ""
        return key + str(error.msg or error).split("\n")[0]
    if isinstance(error, UnicodeEncodeError):  # of a file name: contents are always UTF-8
        return f"{error.object!r} is no file name in this locale; set LC_ALL=C.UTF-8."
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT, EFBIG):  # has no file's name
        return (
            f"a file could not be written ({error.strerror}); free some space. A run then goes on "
            f"with resume=<its folder>."
        )
    return " ".join(str(error).split())


def typed(composed: DictConfig, schema: type[T]) -> T:
    """The composed config as plain dataclasses; beyond this line nobody knows Hydra.

    Raises:
        UserError: a value is impossible or missing.
    """
    missing = sorted(OmegaConf.missing_keys(composed))
    if missing:
        known = dict(settings(schema))
        meaning = known[missing[0]].metadata["meaning"] if missing[0] in known else "needed"
        raise UserError(f"{missing[0]} is missing ({meaning}); give it as {missing[0]}=...")
    try:
        # Merged into the schema once more because Hydra lets `+model.typo=1` pass, and the
        # conversion alone would drop it without a word.
        values = OmegaConf.to_container(composed, resolve=True)
        config: Any = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), values))
        check_values(config)
    except (OmegaConfBaseException, ValueError, OSError) as error:
        raise UserError(one_line(error)) from error
    return config


def check_overrides(overrides: list[str], schema: type) -> None:
    """Refuse settings and groups that do not exist, with the nearest name that does.

    Raises:
        UserError: names the override.
    """
    known = [key for key, _ in settings(schema)]
    groups = config_groups()
    for text in overrides:
        try:
            parsed = OverridesParser.create().parse_override(text)
        except HydraException as error:
            raise UserError(
                f"{text!r} is no override: write key=value, and put quotes around a value with "
                f"blanks, letters beyond a-z or any of , = {{ }} [ ] ( ), as in 'key=\"a, ä\"'."
            ) from error
        key = (parsed.key_or_group or "").partition("@")[0]
        if parsed.is_delete():
            # Hydra would fall back on the schema's defaults without a word.
            raise UserError(f"{text}: nothing can be left out; give {key}= another value.")
        if key.split(".")[0] == "hydra" or key.startswith("hydra/"):
            continue
        if key in groups:
            if not parsed.is_sweep_override():
                _check_option(text, parsed.value(), groups[key])
        elif (group := key.replace(".", "/")) in groups and isinstance(parsed.value(), str):
            raise UserError(f"{text}: the files of conf/ are chosen by {group}={parsed.value()}.")
        elif key in RENAMED:
            raise UserError(f"{text}: the setting {key} is now called {RENAMED[key]}.")
        elif key not in known and not any(name.startswith(key + ".") for name in known):
            raise UserError(
                f"{text}: there is no setting {key!r}{did_you_mean(key, known + list(groups))}; "
                f"--help lists them all."
            )


def _check_option(text: str, value: Any, options: list[str]) -> None:
    if value not in options:  # null neither: Hydra takes it in conf/ alone
        raise UserError(
            f"{text}: there is no {str(value)!r}{did_you_mean(str(value), options)}; "
            f"choose one of {', '.join(options)}."
        )


def register(name: str, schema: type) -> None:
    """Make the schema and the resolvers that ``conf/`` uses known to Hydra."""
    ConfigStore.instance().store(name=f"{name}_schema", node=schema)
    OmegaConf.register_new_resolver("repository", lambda path: str(REPOSITORY / path), replace=True)
    # Cached: every mention of the folder within one start means the same folder.
    OmegaConf.register_new_resolver("run_dir", run_dir, replace=True, use_cache=True)
    OmegaConf.register_new_resolver("snapshot", snapshot, replace=True, use_cache=True)


def output_dir() -> Path:
    """The run folder that Hydra made for this job."""
    return Path(HydraConfig.get().runtime.output_dir)


def choice(group: str) -> str:
    """The file of a folder of ``conf/`` that this job uses."""
    return str(HydraConfig.get().runtime.choices[group])


def task_overrides() -> list[str]:
    """The settings given on the command line, as they were typed."""
    return list(HydraConfig.get().overrides.task)


def merge_overrides(stored: dict[str, Any], overrides: list[str], schema: type[T]) -> T:
    """A stored config with some single settings changed.

    Raises:
        UserError: an override chooses a whole group, which would silently reset the rest of it.
    """
    config = OmegaConf.merge(OmegaConf.structured(schema), stored)
    known = [key for key, _ in settings(schema)]
    for text in overrides:
        parsed = OverridesParser.create().parse_override(text)
        if parsed.key_or_group not in known:
            raise UserError(
                f"{text}: a run is resumed with the choices it was started with; "
                f"only single settings such as trainer.max_steps can change."
            )
        OmegaConf.update(config, parsed.key_or_group, parsed.value())
    return typed(config, schema)  # type: ignore[arg-type]
