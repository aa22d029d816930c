"""Several models under equal conditions: trained one after another, laid side by side.

A comparison is a folder with a run folder for each model and seed. What is finished is read from
there, so that a comparison can be stopped and gone on with, and its table grows with each run.
"""

import json
import logging
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq.checkpoint import load_checkpoint
from seq2seq.config import CompareConfig, TrainConfig, checkpoint_path
from seq2seq.decoding.translator import load_translator
from seq2seq.evaluation.heatmap import save_figure
from seq2seq.evaluation.panels import Panel, panel_figure
from seq2seq.training.run import Run, changed_settings
from seq2seq.training.trainer import Interrupted
from seq2seq.training.validation import as_dict

# Settings that change where a run lies and how fast it is, not what comes out of it.
CIRCUMSTANCES = (
    "name:",
    "resume:",
    "device:",
    "threads:",
    "data.root:",
    "data.prepared:",
    "data.url:",
)

COLUMNS_OF_PANELS = 5

log = logging.getLogger(__name__)


class Compared(NamedTuple):
    """A finished run of a comparison."""

    label: str
    folder: Path
    settings: dict[str, Any]
    summary: dict[str, Any]
    forced: dict[str, dict[str, Any]]  # by line: references of the test part, as ``as_dict``


def train_compared(config: CompareConfig, folder: Path, label: str) -> None:
    """Train and score one model in ``folder``; go on with what is begun, leave what is finished.

    Raises:
        ValueError: the folder holds a run with other settings, or a line is not in the test part.
    """
    settings = TrainConfig(
        **{item.name: getattr(config, item.name) for item in fields(TrainConfig)}
    )
    finished, last = folder / "comparison.json", checkpoint_path(folder, "last")
    if finished.exists():
        _check_equal(json.loads(finished.read_text(encoding="utf-8"))["settings"], settings, folder)
        log.info("%s is finished already", folder)
        return
    resumed = load_checkpoint(last) if last.exists() else None
    if resumed is not None:
        _check_equal(resumed.header["config"], settings, folder)
    run = Run(settings, folder, resumed)
    if max(config.lines, default=1) > len(run.test.pairs):
        raise ValueError(f"lines={config.lines}: the test part has {len(run.test.pairs):,} lines.")
    try:
        run.trainer.fit()
    except Interrupted as stop:
        log.warning("stopped by %s; go on with the same command and folder=%s", stop, folder.parent)
        sys.exit(stop.exit_status)
    run.finish()
    translator, _ = load_translator(checkpoint_path(folder, "best"), settings.decoding, run.device)
    forced = translator.force([run.test.pairs[line - 1] for line in config.lines])
    record = {
        "label": label,
        "settings": asdict(settings),
        "forced": {line: as_dict(t) for line, t in zip(config.lines, forced, strict=True)},
    }
    finished.write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")


def _check_equal(stored: dict[str, Any], settings: TrainConfig, folder: Path) -> None:
    changes = [
        change
        for change in changed_settings(stored, asdict(settings))
        if not change.startswith(CIRCUMSTANCES)
    ]
    if changes:
        raise ValueError(
            f"{folder} holds a run with other settings ({'; '.join(changes)}); give another "
            f"folder=, or hydra.sweep.subdir= a name that tells the runs apart."
        )


def read_comparison(folder: Path) -> list[Compared]:
    """The finished runs below ``folder``."""
    found = []
    for path in sorted(folder.glob("*/comparison.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        summary = json.loads((path.parent / "summary.json").read_text(encoding="utf-8"))
        found.append(
            Compared(record["label"], path.parent, record["settings"], summary, record["forced"])
        )
    return found


def by_label(runs: Sequence[Compared]) -> dict[str, list[Compared]]:
    """The runs of each model, which differ in their seed only.

    Raises:
        ValueError: they differ in more.
    """
    groups: dict[str, list[Compared]] = {}
    for run in runs:
        group = groups.setdefault(run.label, [])
        if group:
            changes = changed_settings(group[0].settings, run.settings)
            others = [c for c in changes if not c.startswith((*CIRCUMSTANCES, "seed:"))]
            if others:
                raise ValueError(
                    f"{group[0].folder} and {run.folder} are both called {run.label!r} but differ "
                    f"in {'; '.join(others)}: give label= a name that tells them apart."
                )
        group.append(run)
    return groups


class Column(NamedTuple):
    """A column of the table: its heading, where a summary has the figure, how it is written."""

    heading: str
    value: Callable[[dict[str, Any]], float | None]
    digits: int


COLUMNS = (
    Column("BLEU", lambda summary: summary["test"]["bleu"]["score"], 2),
    Column("perplexity", lambda summary: summary["test"]["perplexity"], 3),
    Column("AER", lambda summary: summary["test"].get("aer"), 3),
    Column("entropy", lambda summary: summary["test"].get("attention_entropy"), 3),
    Column("seconds", lambda summary: summary["seconds"], 0),
    Column("parameters", lambda summary: summary["parameters"], 0),
)


def comparison_table(runs: Sequence[Compared]) -> str:
    """Markdown: a row for each model, best BLEU first; mean and standard deviation over seeds."""
    groups = by_label(runs)
    best_first = sorted(groups, key=lambda label: _mean_bleu(groups[label]), reverse=True)
    head = ["attention", "seeds", *(column.heading for column in COLUMNS)]
    lines = [markdown_row(head), markdown_row(["---", *["---:"] * (len(head) - 1)])]
    for label in best_first:
        group = groups[label]
        figures = [spread([c.value(run.summary) for run in group], c.digits) for c in COLUMNS]
        lines.append(markdown_row([label, str(len(group)), *figures]))
    return "\n".join([*lines, "", *_notes(runs)])


def _mean_bleu(runs: Sequence[Compared]) -> float:
    return statistics.mean(run.summary["test"]["bleu"]["score"] for run in runs)


def markdown_row(cells: Sequence[str]) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def spread(values: Sequence[float | None], digits: int) -> str:
    """Mean and sample standard deviation; the mean alone of one value or of equal ones."""
    known = [value for value in values if value is not None]
    if not known:
        return "none"
    mean = f"{statistics.mean(known):,.{digits}f}"
    deviation = statistics.stdev(known) if len(known) > 1 else 0.0
    return f"{mean} ± {deviation:,.{digits}f}" if deviation else mean


def _notes(runs: Sequence[Compared]) -> list[str]:
    """How the scores were made."""
    test, decoding = runs[0].summary["test"], runs[0].summary["decoding"]
    notes = [
        f"Test part: {test['sentences']:,} sentences, beam {decoding['beam_size']}. "
        f"BLEU: {test['bleu']['signature']}.",
        "Mean ± standard deviation over seeds. Perplexity per target token; entropy of the weights "
        "in nats, over forced references; seconds of training and validation.",
    ]
    if "aer" in test:
        notes.append(f"AER: {test['aer_signature']}.")
    return notes


def write_comparison(folder: Path) -> str:
    """Table and picture of all finished runs below ``folder``, as files in it; the table.

    ``comparison.md``, and ``comparison.png``: the references that were chosen, one after another,
    each under every model (the run with its first seed).
    """
    groups = by_label(read_comparison(folder))
    table = comparison_table([run for group in groups.values() for run in group])
    (folder / "comparison.md").write_text(table + "\n", encoding="utf-8")
    firsts = [group[0] for group in groups.values()]
    panels = [
        Panel(run.label, shown["weights"], shown["source_tokens"], shown["target_tokens"])
        for line in firsts[0].forced
        if all(line in run.forced for run in firsts)
        for run in firsts
        for shown in [run.forced[line]]
    ]
    if panels:
        save_figure(panel_figure(panels, COLUMNS_OF_PANELS), folder / "comparison.png")
    return table
