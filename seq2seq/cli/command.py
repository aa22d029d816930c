"""From the command line to plain dataclasses.

    @command("train", TrainConfig)
    def main(config: TrainConfig) -> float: ...

    if __name__ == "__main__":
        main()

A mistake of the user is reported in one line on stderr, with exit status 2, before anything is
read or written; ``exit`` lists the other statuses.
"""

import gc
import inspect
import logging
import os
import sys
from collections.abc import Callable
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq.cli.exit import orderly_exit, refuse, write
from seq2seq.cli.help import CONF, REPOSITORY, help_text
from seq2seq.cli.hydra_internals import split_sweep
from seq2seq.cli.overrides import UserError, check_overrides, parse_arguments, parse_override
from seq2seq.cli.preflight import preflight
from seq2seq.config.plugins import import_plugins
from seq2seq.config.schema import check_values, settings
from seq2seq.device import is_out_of_memory
from seq2seq.run_folder import SNAPSHOT, remove_unused, run_dir, snapshot
from seq2seq.signals import Interrupted

T = TypeVar("T")

log = logging.getLogger(__name__)


def command(
    name: str, schema: type, sweeps: bool = False
) -> Callable[[Callable[[Any], Any]], Callable[[], list[Any]]]:
    """Turn a function of a config dataclass into the command that ``conf/<name>.yaml`` describes.

    Args:
        name: name of the file in ``conf/``.
        schema: the config dataclass.
        sweeps: whether the command always runs several jobs, which its YAML file lists.

    Returns:
        A decorator; the decorated function takes no argument and returns the results of all jobs.
    """

    # If Hydra's variable for full errors is set, the user wants the traceback.
    debugging = "HYDRA_FULL_ERROR" in os.environ

    def decorate(function: Callable[[Any], Any]) -> Callable[[], list[Any]]:
        results: list[Any] = []

        def job(composed: DictConfig) -> Any:
            try:
                results.append(function(typed(composed, schema)))
            except Interrupted as stop:
                log.warning("stopped by %s", stop)
                sys.exit(stop.exit_status)
            except (ValueError, OSError, MemoryError, RuntimeError) as error:
                if debugging or not _is_users(error):
                    raise
                if (
                    HydraConfig.get().output_subdir == SNAPSHOT
                ):  # not the folder of an earlier start
                    remove_unused(output_dir())
                refuse(error, error_text(error))
            return results[-1]

        def main() -> list[Any]:
            gc.freeze()  # imported objects are never freed, and scanning them takes 90 ms
            with orderly_exit():
                try:
                    args = parse_arguments()
                    if args.help:
                        import_plugins(_named_plugins(args.overrides))
                        write(help_text(inspect.getmodule(function), schema))
                    else:
                        _start(name, schema, args.overrides, args.multirun or sweeps, job)
                except (HydraException, OmegaConfBaseException, UserError, OSError) as error:
                    refuse(error, error_text(error))
                if sweeps and results:
                    write(results[-1])
            return results

        return main

    return decorate


def _is_users(error: Exception) -> bool:
    """Return whether the user can fix an error; of torch's errors, only running out of memory."""
    return not isinstance(error, RuntimeError) or is_out_of_memory(error)


def _start(
    name: str,
    schema: type,
    overrides: list[str],
    sweeps: bool,
    job: Callable[[DictConfig], Any],
) -> None:
    """Check the command line as a whole, then run the jobs that it asks for."""
    register(name, schema)
    # Hydra would print its own errors over several lines; this variable hands them to us.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    check_overrides(overrides, schema)
    # Hydra composes each job again later. Here, no run folder exists yet, and a mistake in the last
    # job of a sweep is found before the first one runs.
    with initialize_config_dir(str(CONF), version_base="1.3"):
        for job_overrides in _jobs(name, overrides, sweeps):
            check_job(typed(compose(name, job_overrides), schema))
    hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(job)()


def check_job(config: Any) -> None:
    """Import the plug-ins of a job, and refuse choices that do not exist or do not fit together.

    Raises:
        UserError: a plug-in cannot be imported or a choice is refused; names it.
    """
    try:
        import_plugins(getattr(config, "plugins", ()))
        preflight(config)
    except (ValueError, RuntimeError) as error:
        if not _is_users(error):
            raise
        raise UserError(error_text(error)) from error


def _named_plugins(overrides: list[str]) -> list[str]:
    """Return the plug-ins that a command line names, without composing it.

    Raises:
        UserError: an override cannot be parsed.
    """
    parsed = [parse_override(text) for text in overrides]
    values = [each.value() for each in parsed if each.key_or_group == "plugins"]
    return [str(name) for value in values if isinstance(value, list) for name in value]


def _jobs(name: str, overrides: list[str], sweeps: bool) -> list[list[str]]:
    """Return the overrides of each job that a command line starts."""
    if not sweeps:
        return [overrides]
    single = [text for text in overrides if not parse_override(text).is_sweep_override()]
    sweeper = compose(name, single, return_hydra_config=True).hydra.sweeper
    found = split_sweep(sweeper, overrides)
    return [single] if found is None else found


def error_text(error: BaseException) -> str:
    """Return the useful part of an error; Hydra and OmegaConf use several lines and causes."""
    if isinstance(error, HydraException) and isinstance(error.__cause__, OmegaConfBaseException):
        error = error.__cause__
    if isinstance(error, OmegaConfBaseException):
        if "is not a ListConfig" in str(error):  # this message does not name the setting
            return f"{error.full_key} must be a list, as in '{error.full_key}=[a,b]'."
        key = f"{error.full_key}: " if error.full_key else ""
        return key + str(error.msg or error).split("\n")[0]
    if isinstance(error, UnicodeEncodeError):  # from a file name: contents are always UTF-8
        return f"{error.object!r} cannot be a file name in this locale; set LC_ALL=C.UTF-8."
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT, EFBIG):  # has no file name
        return (
            f"a file could not be written ({error.strerror}); free some space. A run then "
            f"continues with resume=<its folder>."
        )
    return " ".join(str(error).split())


def typed(composed: DictConfig, schema: type[T]) -> T:
    """Convert the composed config to plain dataclasses, which know nothing of Hydra.

    Raises:
        UserError: a value is impossible or missing.
    """
    missing = sorted(OmegaConf.missing_keys(composed))
    if missing:
        known = dict(settings(schema))
        meaning = known[missing[0]].metadata["meaning"] if missing[0] in known else "needed"
        raise UserError(f"{missing[0]} is missing ({meaning}); give it as {missing[0]}=...")
    try:
        # Merged into the schema again because Hydra accepts `+model.typo=1`, which the conversion
        # alone would drop silently.
        values = OmegaConf.to_container(composed, resolve=True)
        config: Any = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), values))
        check_values(config)
    except (OmegaConfBaseException, ValueError, OSError) as error:
        raise UserError(error_text(error)) from error
    return config


def register(name: str, schema: type) -> None:
    """Register the schema, and the resolvers that ``conf/`` uses, with Hydra."""
    ConfigStore.instance().store(name=f"{name}_schema", node=schema)
    OmegaConf.register_new_resolver("repository", lambda path: str(REPOSITORY / path), replace=True)
    # Cached, so that every use within one start gives the same folder.
    OmegaConf.register_new_resolver("run_dir", run_dir, replace=True, use_cache=True)
    OmegaConf.register_new_resolver("snapshot", snapshot, replace=True, use_cache=True)


def output_dir() -> Path:
    """Return the run folder that Hydra created for this job."""
    return Path(HydraConfig.get().runtime.output_dir)


def choice(group: str) -> str:
    """Return the file of a folder of ``conf/`` that this job uses, without its suffix."""
    return str(HydraConfig.get().runtime.choices[group])


def task_overrides() -> list[str]:
    """Return the settings given on the command line, as they were typed."""
    return list(HydraConfig.get().overrides.task)


def merge_overrides(stored: dict[str, Any], overrides: list[str], schema: type[T]) -> T:
    """Return a stored config with some single settings changed.

    Raises:
        UserError: an override chooses a whole group, which would silently reset the rest of it.
    """
    config = OmegaConf.merge(OmegaConf.structured(schema), stored)
    known = [key for key, _ in settings(schema)]
    for text in overrides:
        parsed = parse_override(text)
        if parsed.key_or_group not in known:
            raise UserError(
                f"{text}: a run is resumed with the choices it was started with; "
                f"only single settings such as trainer.max_steps can change."
            )
        OmegaConf.update(config, parsed.key_or_group, parsed.value())
    return typed(config, schema)  # type: ignore[arg-type]
