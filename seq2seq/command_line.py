"""From the command line to plain dataclasses: the only place that knows Hydra.

    @command("train", TrainConfig)
    def main(config: TrainConfig) -> float: ...

    if __name__ == "__main__":
        main()

Whatever a user can get wrong ends in one line on stderr and exit status 2, before anything is
read or written.
"""

import difflib
import inspect
import os
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import hydra
import yaml
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq.schema import MISSING, allowed, check_values, settings

REPOSITORY = Path(__file__).resolve().parent.parent
CONF = REPOSITORY / "conf"
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
            except (ValueError, OSError) as error:
                if debugging:
                    raise
                refuse(error)
            return results[-1]

        def main() -> list[Any]:
            register(name, schema)
            args = get_args_parser().parse_args()
            if args.help:
                print(usage(inspect.getmodule(function), schema))
                return []
            # Hydra would print its own errors over several lines; this variable hands them to us.
            os.environ["HYDRA_FULL_ERROR"] = "1"
            try:
                check_overrides(args.overrides, schema)
                # Composed here once more, so that a bad value leaves no run folder behind, and
                # that of a last job does not wait for the jobs before it.
                with initialize_config_dir(str(CONF), version_base="1.3"):
                    for overrides in jobs(name, args.overrides, args.multirun or sweeps):
                        typed(compose(name, overrides), schema)
                hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(job)()
            except (HydraException, OmegaConfBaseException, UserError) as error:
                refuse(error)
            return results

        return main

    return decorate


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


def refuse(error: Exception) -> None:
    """Say what is wrong, in one line, and leave."""
    print(f"error: {one_line(error)}", file=sys.stderr)
    raise SystemExit(2) from error


def one_line(error: BaseException) -> str:
    """The useful part of an error; Hydra and OmegaConf spread it over lines and causes."""
    if isinstance(error, HydraException) and isinstance(error.__cause__, OmegaConfBaseException):
        error = error.__cause__
    if isinstance(error, OmegaConfBaseException):
        key = f"{error.full_key}: " if error.full_key else ""
        return key + str(error.msg or error).split("\n")[0]
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
    except (OmegaConfBaseException, ValueError) as error:
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
                f"blanks or any of , = {{ }} [ ] ( ), as in 'key=\"a, b\"'."
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
        elif key not in known and not any(name.startswith(key + ".") for name in known):
            raise UserError(
                f"{text}: there is no setting {key!r}{nearest(key, known + list(groups))}; "
                f"--help lists them all."
            )


def _check_option(text: str, value: Any, options: list[str]) -> None:
    if value not in options:  # null neither: Hydra takes it in conf/ alone
        raise UserError(
            f"{text}: there is no {str(value)!r}{nearest(str(value), options)}; "
            f"choose one of {', '.join(options)}."
        )


def nearest(word: str, words: list[str]) -> str:
    """A suggestion, where one is likely; it also finds a key given without its group."""
    by_end = [name for name in words if name.endswith("." + word)]
    found = by_end or difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f" (did you mean {found[0]!r}?)" if found else ""


def config_groups() -> dict[str, list[str]]:
    """The folders of ``conf/`` and the choices in each."""
    groups: dict[str, list[str]] = {}
    for path in sorted(CONF.rglob("*.yaml")):
        group = path.parent.relative_to(CONF).as_posix()
        if group != "." and not group.startswith("hydra"):
            groups.setdefault(group, []).append(path.stem)
    return groups


def register(name: str, schema: type) -> None:
    """Make the schema and the resolvers that ``conf/`` uses known to Hydra."""
    ConfigStore.instance().store(name=f"{name}_schema", node=schema)
    OmegaConf.register_new_resolver("repository", lambda path: str(REPOSITORY / path), replace=True)
    # Cached: every mention of the folder within one start means the same folder.
    OmegaConf.register_new_resolver("run_dir", run_dir, replace=True, use_cache=True)
    OmegaConf.register_new_resolver("snapshot", snapshot, replace=True, use_cache=True)


def run_dir(resume: str | None, name: str) -> str:
    """The folder of this run: the one to continue, or a new one that nobody else has."""
    if resume is not None:
        return resume
    stamp = Path("runs") / name / datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    for attempt in range(1000):
        path = stamp if attempt == 0 else stamp.with_name(f"{stamp.name}_{attempt + 1}")
        try:
            # Made at once and never shared: two starts within a second get two folders.
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return str(path)
    raise OSError(f"{stamp} and 999 folders beside it exist already.")


def snapshot(folder: str | None) -> str:
    """Where the composed config is kept; a run that goes on in ``folder`` keeps earlier ones."""
    if folder is None or not (Path(folder) / ".hydra").exists():
        return ".hydra"
    taken = len(list(Path(folder).glob(".hydra/resumed_*")))
    return f".hydra/resumed_{taken + 1}"


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


def usage(module: Any, schema: type) -> str:
    """The text of ``--help``: what the command does, and every setting."""
    lines = [inspect.getdoc(module) or "", "", "Settings are given as key=value.", ""]
    name = Path(module.__file__).stem
    defaults = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))["defaults"]
    chosen = {next(iter(entry)) for entry in defaults if isinstance(entry, dict)}
    groups = {
        group: options
        for group, options in config_groups().items()
        if group.split("/")[0] in chosen
    }
    if groups:
        lines.append("Choices (files in conf/):")
        lines += [f"  {group}={'|'.join(options)}" for group, options in groups.items()]
        lines.append("")
    lines.append("Single settings, with their defaults (a choice above may give others):")
    for key, item in settings(schema):
        limits = f"; {allowed(item)}" if allowed(item) else ""
        lines.append(f"  {key}={_shown(item)}\n      {item.metadata['meaning']}{limits}")
    lines += [
        "",
        "--cfg job prints the composed settings; --multirun a=1,2 tries several values;",
        "--hydra-help tells the rest.",
    ]
    return "\n".join(lines)


def _shown(item: Any) -> str:
    """The default of a setting, as ``--help`` shows it."""
    if callable(item.default_factory):
        return str(item.default_factory())
    if item.default == MISSING:
        return "(from a choice, or needed)"
    return "null" if item.default is None else str(item.default)
