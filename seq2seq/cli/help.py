"""The text of ``--help``: purpose of the script, choices in ``conf/``, and every setting."""

import inspect
from pathlib import Path
from typing import Any

import yaml

from seq2seq.cli.registries import registries
from seq2seq.config.schema import MISSING, allowed, settings

REPOSITORY = Path(__file__).resolve().parents[2]
CONF = REPOSITORY / "conf"


def config_groups() -> dict[str, list[str]]:
    """Return the folders of ``conf/``, each with its choices."""
    groups: dict[str, list[str]] = {}
    for path in sorted(CONF.rglob("*.yaml")):
        group = path.parent.relative_to(CONF).as_posix()
        if group != "." and not group.startswith("hydra"):
            groups.setdefault(group, []).append(path.stem)
    return groups


def help_text(module: Any, schema: type) -> str:
    """Return the text of ``--help`` for a script."""
    lines = [inspect.getdoc(module) or "", "", "Settings are given as key=value.", ""]
    name = Path(module.__file__).stem
    defaults = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))["defaults"]
    # Keys such as `data`, or `optional training`.
    chosen = {next(iter(entry)).split()[-1] for entry in defaults if isinstance(entry, dict)}
    groups = {
        group: options
        for group, options in config_groups().items()
        if group.split("/")[0] in chosen
    }
    if groups:
        lines.append("Choices (files in conf/):")
        lines += [f"  {group}={'|'.join(options)}" for group, options in groups.items()]
        lines.append("")
    others = " (choices above may change them; --cfg job shows the settings of a run)"
    lines.append(f"Single settings, with their defaults{others if groups else ''}:")
    known = registries()
    for key, item in settings(schema):
        limits = "one of " + ", ".join(known[key]) if key in known else allowed(item)
        lines.append(f"  {key}={_default(item)}")
        lines.append(f"      {item.metadata['meaning']}" + (f"; {limits}" if limits else ""))
    lines += [
        "",
        "--cfg job prints the composed settings; --multirun a=1,2 runs one job for each value.",
    ]
    return "\n".join(lines)


def _default(item: Any) -> str:
    """Return the default of a setting as ``--help`` shows it."""
    if callable(item.default_factory):
        return str(item.default_factory())
    if item.default == MISSING:
        return "(needed)"
    return "null" if item.default is None else str(item.default)
