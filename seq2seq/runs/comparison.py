"""Comparison of several models: trained under equal conditions, summarized in one table.

A comparison is a folder with a run folder for each model and seed. Finished runs are read from
there, so a comparison can be stopped and continued, and its table grows with each run.
"""

import json
import logging
import statistics
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

from seq2seq.config.changes import COMPARABLE, changes
from seq2seq.config.renamed import upgrade
from seq2seq.config.schema import Change, Decides
from seq2seq.config.scripts import CompareConfig
from seq2seq.config.training import TrainConfig
from seq2seq.data.reading import read_lines
from seq2seq.device import select_device
from seq2seq.evaluation.metrics import METRICS, get_value
from seq2seq.figures.heatmap import Panel, panel_figure
from seq2seq.figures.style import save_figure
from seq2seq.run_folder import RunFolder
from seq2seq.runs.manifest import write_json
from seq2seq.runs.run import Run, with_absolute_root
from seq2seq.scoring.evaluate import EvaluationSet
from seq2seq.scoring.output import to_dict
from seq2seq.search.loading import load_translator
from seq2seq.signals import continued_by
from seq2seq.tasks.translation import TranslationInputs, TranslationTask
from seq2seq.training.checkpoints import claim, newest_checkpoint

PANEL_COLUMNS = 5

log = logging.getLogger(__name__)


class ComparedRun(NamedTuple):
    """A finished run of a comparison."""

    label: str
    folder: RunFolder
    settings: dict[str, Any]
    summary: dict[str, Any]
    record: dict[str, Any]

    @property
    def texts(self) -> dict[str, list[str]]:
        """``sources``, ``references`` and ``hypotheses`` of the test set."""
        return self.record["texts"]

    def alignment(self, kind: str, line: int) -> dict[str, Any] | None:
        """Return the tokens and weights of a test line (``scoring.output.to_dict``), or None if
        the run did not keep them.

        Args:
            kind: ``translated`` for the translation, ``forced`` for the reference under forced
                decoding.
            line: line number in the test set, counted from 1.
        """
        return self.record[kind].get(str(line))


def train_compared(config: CompareConfig, path: Path, label: str) -> None:
    """Train and score one model in the folder ``path``; resume it if it has begun, and reuse its
    results if it is finished.

    Raises:
        ValueError: this folder or another one of the comparison holds a run under different
            conditions, or the test set lacks one of ``config.lines``.
    """
    settings = with_absolute_root(
        TrainConfig(**{item.name: getattr(config, item.name) for item in fields(TrainConfig)})
    )
    folder = RunFolder(path)
    inputs = TranslationTask.open(settings)
    count = len(inputs.test.pairs)
    if max(config.lines, default=1) > count:
        raise ValueError(f"lines={config.lines}: the test set has {count:,} lines.")
    runs = {run.folder: run for run in read_comparison(path.parent)}
    for other in runs.values():
        if other.folder != folder:
            has_own_label = config.label is not None
            _check_conditions(other, settings, inputs.digests, label, has_own_label)
    if folder in runs:
        _check_same(runs[folder].settings, settings, folder)
        _check_corpus(runs[folder], inputs.digests)
        log.info("%s is already finished", path)
        record = runs[folder].record
    else:
        _train(settings, folder, inputs)
        record = {"settings": asdict(settings), "texts": _texts(folder)}
    alignments = _alignments(config, folder, record, inputs.test)
    write_json(folder.comparison, record | {"label": label} | alignments)


def _train(settings: TrainConfig, folder: RunFolder, inputs: TranslationInputs) -> None:
    """Train from the newest checkpoint if there is one, and score."""
    with claim(folder):
        resumed = None
        if folder.checkpoint("last").exists():
            resumed = newest_checkpoint(folder)
            _check_same(resumed.header["config"], settings, folder)
        run = Run(settings, folder, resumed, inputs)
        with continued_by(f"go on with the same command and folder={folder.path.parent}"):
            run.trainer.fit()
            run.finish()


def _texts(folder: RunFolder) -> dict[str, list[str]]:
    """Return the test-set texts just scored; they are kept as evaluate.py may replace them."""
    scored = folder.evaluation("best", "test")
    names = ("sources", "references", "hypotheses")
    return {name: list(read_lines(scored / f"{name}.txt")) for name in names}


def _alignments(
    config: CompareConfig, folder: RunFolder, record: dict[str, Any], test: EvaluationSet
) -> dict[str, Any]:
    """Return the ``translated`` and ``forced`` alignments of ``config.lines``, and compute those
    that ``record`` lacks."""
    kept = {kind: record.get(kind, {}) for kind in ("translated", "forced")}
    missing = [line for line in config.lines if str(line) not in kept["forced"]]
    if missing:
        best = folder.checkpoint("best")
        translator = load_translator(best, config.decoding, select_device(config.device))[0]
        pairs = [test.pairs[line - 1] for line in missing]
        computed = {
            "translated": translator.translate([pair.source for pair in pairs]),
            "forced": translator.score(pairs),
        }
        for kind, translations in computed.items():
            lines = zip(missing, translations, strict=True)
            kept[kind] = kept[kind] | {str(line): to_dict(found) for line, found in lines}
    return kept


def changed_results(
    before: dict[str, Any], after: dict[str, Any], allowed: Container[str] = ()
) -> list[Change]:
    """Return the changed settings that affect results, except those with ``allowed`` keys."""
    decisive = [what for what in get_args(Decides) if what != "nothing"]
    return [change for change in changes(before, after, *decisive) if change.key not in allowed]


def _check_same(stored: dict[str, Any], settings: TrainConfig, folder: RunFolder) -> None:
    if found := changed_results(stored, asdict(settings)):
        raise ValueError(
            f"{folder.path} holds a run with other settings ({_listed(found)}); give another "
            f"folder=, or with hydra.sweep.subdir= a name that distinguishes the runs."
        )


def _listed(found: Sequence[Change]) -> str:
    return "; ".join(map(str, found))


def _check_corpus(run: ComparedRun, digests: Mapping[str, str]) -> None:
    # Only the files that the run recorded: older versions left out the alignments.
    if not run.summary["corpus_sha256"].items() <= digests.items():
        raise ValueError(
            f"{run.folder.path} was trained or scored on other text than data.root now holds; "
            f"give another folder=."
        )


def _check_conditions(
    run: ComparedRun,
    settings: TrainConfig,
    digests: Mapping[str, str],
    label: str,
    has_own_label: bool,
) -> None:
    """Refuse to compare under unequal conditions, before anything is trained."""
    _check_corpus(run, digests)
    if run.label == label:
        found = changed_results(run.settings, asdict(settings), ("seed",))
        advice = f"both are called {label!r}: give label= a name that distinguishes them"
    else:
        found = [] if has_own_label else changed_results(run.settings, asdict(settings), COMPARABLE)
        advice = "give the same settings, another folder=, or label= a name for the difference"
    if found:
        raise ValueError(
            f"{run.folder.path} was trained with other settings ({_listed(found)}); {advice}."
        )


def read_comparison(path: Path) -> list[ComparedRun]:
    """Return the finished runs of the comparison in the folder ``path``.

    Raises:
        ValueError: the record of a run is damaged; names the run folder.
    """
    found = []
    for record_path in sorted(path.glob(f"*/{RunFolder(Path()).comparison}")):
        folder = RunFolder(record_path.parent)
        try:
            record = json.loads(record_path.read_text(encoding="utf-8"))
            summary = json.loads(folder.summary.read_text(encoding="utf-8"))
            settings = upgrade(record["settings"])
            found.append(ComparedRun(record["label"], folder, settings, summary, record))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{folder.path}: its record is damaged ({error}).") from error
    return found


def by_label(runs: Sequence[ComparedRun]) -> dict[str, list[ComparedRun]]:
    """Group runs by label; the runs of a group differ only in their seed."""
    groups: dict[str, list[ComparedRun]] = {}
    for run in runs:
        groups.setdefault(run.label, []).append(run)
    return groups


def _test_score(name: str, summary: dict[str, Any]) -> float | None:
    return get_value(summary["test"], name)


class Column(NamedTuple):
    """A column of the table: heading, value for a run's summary, and number of decimals."""

    heading: str
    value: Callable[[dict[str, Any]], float | None]
    digits: int


def columns() -> list[Column]:
    """Return a column for each metric that is shown in tables, then the costs."""
    scores = [
        Column(metric.heading, partial(_test_score, metric.name), metric.digits)
        for metric in METRICS.values()
        if metric.in_tables
    ]
    return [
        *scores,
        Column("seconds", lambda summary: summary["seconds"], 0),
        Column("parameters", lambda summary: summary["parameters"], 0),
    ]


def comparison_table(runs: Sequence[ComparedRun]) -> str:
    """Return a Markdown table with one row per model, best BLEU first: mean ± standard deviation
    over seeds."""
    groups = by_label(runs)
    best_first = sorted(groups, key=lambda label: _mean_bleu(groups[label]), reverse=True)
    shown = columns()
    head = ["attention", "seeds", *(column.heading for column in shown)]
    lines = [markdown_row(head), markdown_row(["---", *["---:"] * (len(head) - 1)])]
    for label in best_first:
        group = groups[label]
        figures = [
            mean_and_deviation([column.value(run.summary) for run in group], column.digits)
            for column in shown
        ]
        lines.append(markdown_row([label, str(len(group)), *figures]))
    return "\n".join([*lines, "", *_notes(runs)])


def _mean_bleu(runs: Sequence[ComparedRun]) -> float:
    return statistics.mean(run.summary["test"]["bleu"]["score"] for run in runs)


def markdown_row(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table, with its cells escaped."""
    escaped = [cell.replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def mean_and_deviation(values: Sequence[float | None], digits: int) -> str:
    """Format mean ± sample standard deviation; only the mean for one value or equal values."""
    known = [value for value in values if value is not None]
    if not known:
        return "none"
    mean = f"{statistics.mean(known):,.{digits}f}"
    deviation = statistics.stdev(known) if len(known) > 1 else 0.0
    return f"{mean} ± {deviation:,.{digits}f}" if deviation else mean


def _notes(runs: Sequence[ComparedRun]) -> list[str]:
    """Return the notes below the table, on how the scores were computed."""
    test, decoding = runs[0].summary["test"], runs[0].summary["decoding"]
    notes = [
        f"Test set: {test['sentences']:,} sentences, beam {decoding['beam_size']}. "
        f"BLEU: {test['bleu']['signature']}.",
        "Mean ± standard deviation over seeds. Perplexity per target token; entropy of the weights "
        "in nats, under forced decoding of the references; seconds of training and validation.",
    ]
    if "aer" in test:
        notes.append(f"AER: {test['aer_signature']}.")
    return notes


def write_comparison(folder: Path, lines: Sequence[int]) -> str:
    """Write the table and picture of all finished runs in ``folder``, and return the table.

    The table is written to ``comparison.md``. ``comparison.png`` shows the references of some test
    lines, each with the alignment of every model (its first seed) that kept one.
    """
    groups = by_label(read_comparison(folder))
    table = comparison_table([run for group in groups.values() for run in group])
    (folder / "comparison.md").write_text(table + "\n", encoding="utf-8")
    panels = [
        Panel(label, shown["weights"], shown["source_tokens"], shown["target_tokens"])
        for line in lines
        for label, group in groups.items()
        if (shown := group[0].alignment("forced", line))
    ]
    if panels:
        save_figure(panel_figure(panels, PANEL_COLUMNS), folder / "comparison.png")
    return table
