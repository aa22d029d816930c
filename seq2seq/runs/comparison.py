"""Several models under equal conditions: trained one after another, laid side by side.

A comparison is a folder with a run folder for each model and seed. What is finished is read from
there, so that a comparison can be stopped and gone on with, and its table grows with each run.
"""

import json
import logging
import statistics
import sys
from collections.abc import Callable, Container, Sequence
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
from seq2seq.run_folder import checkpoint_path
from seq2seq.runs.manifest import write_json
from seq2seq.runs.run import Run, Texts, read_texts
from seq2seq.scoring.evaluate import TestSet, as_dict, beside
from seq2seq.search.loading import load_translator
from seq2seq.signals import Interrupted
from seq2seq.training.checkpoints import claim, newest_checkpoint

RECORD = "comparison.json"  # in the folder of a finished run

COLUMNS_OF_PANELS = 5

log = logging.getLogger(__name__)


class Compared(NamedTuple):
    """A finished run of a comparison."""

    label: str
    folder: Path
    settings: dict[str, Any]
    summary: dict[str, Any]
    record: dict[str, Any]

    @property
    def texts(self) -> dict[str, list[str]]:
        """``sources``, ``references`` and ``hypotheses`` of the test part."""
        return self.record["texts"]

    def alignment(self, kind: str, line: int) -> dict[str, Any] | None:
        """What the run keeps of a line of the test part, as ``validation.as_dict`` has it: its
        ``translated`` sentence, or its reference, ``forced``."""
        return self.record[kind].get(str(line))


def train_compared(config: CompareConfig, folder: Path, label: str) -> None:
    """Train and score one model in ``folder``; go on with what is begun, leave what is finished.

    Raises:
        ValueError: the folder, or one beside it, holds a run under other conditions; or a line is
            not in the test part.
    """
    settings = TrainConfig(
        **{item.name: getattr(config, item.name) for item in fields(TrainConfig)}
    )
    path = folder / RECORD
    texts = read_texts(settings.data)
    count = len(texts.test.pairs)
    if max(config.lines, default=1) > count:
        raise ValueError(f"lines={config.lines}: the test part has {count:,} lines.")
    runs = {run.folder: run for run in read_comparison(folder.parent)}
    for other in runs.values():
        if other.folder != folder:
            _check_conditions(
                other, settings, texts.corpus.digests, label, config.label is not None
            )
    if folder in runs:
        _check_same(runs[folder].settings, settings, folder)
        _check_corpus(runs[folder], texts.corpus.digests)
        log.info("%s is finished already", folder)
        record = runs[folder].record
    else:
        _train(settings, folder, texts)
        record = {"settings": asdict(settings), "texts": _texts(folder)}
    write_json(path, record | {"label": label} | _alignments(config, folder, record, texts.test))


def _train(settings: TrainConfig, folder: Path, texts: Texts) -> None:
    with claim(folder):
        run = _begin(settings, folder, texts)
        try:
            run.trainer.fit()
            run.finish()
        except Interrupted as stop:
            log.warning(
                "stopped by %s; go on with the same command and folder=%s", stop, folder.parent
            )
            sys.exit(stop.exit_status)


def _begin(settings: TrainConfig, folder: Path, texts: Texts) -> Run:
    """A run from its newest checkpoint on, if it has any."""
    if not checkpoint_path(folder, "last").exists():
        return Run(settings, folder, texts=texts)
    resumed = newest_checkpoint(folder)
    _check_same(resumed.header["config"], settings, folder)
    return Run(settings, folder, resumed, texts)


def _texts(folder: Path) -> dict[str, list[str]]:
    """The test part as it was just scored; kept, for evaluate.py may score it otherwise."""
    scored = beside(checkpoint_path(folder, "best"), "test")
    names = ("sources", "references", "hypotheses")
    return {name: list(read_lines(scored / f"{name}.txt")) for name in names}


def _alignments(
    config: CompareConfig, folder: Path, record: dict[str, Any], test: TestSet
) -> dict[str, Any]:
    """``translated`` and ``forced`` of ``config.lines``, made now where ``record`` lacks them."""
    kept = {kind: record.get(kind, {}) for kind in ("translated", "forced")}
    missing = [line for line in config.lines if str(line) not in kept["forced"]]
    if missing:
        best = checkpoint_path(folder, "best")
        translator = load_translator(best, config.decoding, select_device(config.device))[0]
        pairs = [test.pairs[line - 1] for line in missing]
        made = {
            "translated": translator.translate([pair.source for pair in pairs]),
            "forced": translator.score(pairs),
        }
        for kind, translations in made.items():
            lines = zip(missing, translations, strict=True)
            kept[kind] = kept[kind] | {str(line): as_dict(found) for line, found in lines}
    return kept


def changed_results(
    before: dict[str, Any], after: dict[str, Any], allowed: Container[str] = ()
) -> list[Change]:
    """Return the settings that differ and decide results, except those with ``allowed`` keys."""
    decisive = [what for what in get_args(Decides) if what != "nothing"]
    return [change for change in changes(before, after, *decisive) if change.key not in allowed]


def _check_same(stored: dict[str, Any], settings: TrainConfig, folder: Path) -> None:
    if changed := changed_results(stored, asdict(settings)):
        listed = "; ".join(map(str, changed))
        raise ValueError(
            f"{folder} holds a run with other settings ({listed}); give another folder=, or "
            f"hydra.sweep.subdir= a name that tells the runs apart."
        )


def _check_corpus(run: Compared, digests: dict[str, str]) -> None:
    # Whatever it had; older versions left out the alignments.
    if not run.summary["corpus_sha256"].items() <= digests.items():
        raise ValueError(
            f"{run.folder} was trained or scored on other text than there is now in data.root; "
            f"give another folder=."
        )


def _check_conditions(
    run: Compared, settings: TrainConfig, digests: dict[str, str], label: str, own_label: bool
) -> None:
    """Refuse to compare what is not comparable, before anything is trained."""
    _check_corpus(run, digests)
    if run.label == label:
        changed = changed_results(run.settings, asdict(settings), ("seed",))
        advice = f"both are called {label!r}: give label= a name that tells them apart"
    else:
        changed = [] if own_label else changed_results(run.settings, asdict(settings), COMPARABLE)
        advice = "give the same settings, another folder=, or label= a name that tells of it"
    if changed:
        raise ValueError(
            f"{run.folder} was trained otherwise ({'; '.join(map(str, changed))}); {advice}."
        )


def read_comparison(folder: Path) -> list[Compared]:
    """The finished runs below ``folder``.

    Raises:
        ValueError: a record is none; names it.
    """
    found = []
    for path in sorted(folder.glob(f"*/{RECORD}")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            summary = json.loads((path.parent / "summary.json").read_text(encoding="utf-8"))
            found.append(
                Compared(record["label"], path.parent, upgrade(record["settings"]), summary, record)
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path.parent}: a record is damaged ({error}).") from error
    return found


def by_label(runs: Sequence[Compared]) -> dict[str, list[Compared]]:
    """The runs of each model, which differ in their seed only."""
    groups: dict[str, list[Compared]] = {}
    for run in runs:
        groups.setdefault(run.label, []).append(run)
    return groups


def _test_value(name: str, summary: dict[str, Any]) -> float | None:
    return get_value(summary["test"], name)


class Column(NamedTuple):
    """A column of the table: its heading, where a summary has the figure, how it is written."""

    heading: str
    value: Callable[[dict[str, Any]], float | None]
    digits: int


COLUMNS = (
    *(
        Column(metric.heading, partial(_test_value, metric.name), metric.digits)
        for metric in METRICS.values()
        if metric.in_tables
    ),
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
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


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


def write_comparison(folder: Path, lines: Sequence[int]) -> str:
    """Table and picture of all finished runs below ``folder``, as files in it; the table.

    ``comparison.md``, and ``comparison.png``: the references of some lines of the test part, one
    after another, each under every model that kept it (the run with its first seed).
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
        save_figure(panel_figure(panels, COLUMNS_OF_PANELS), folder / "comparison.png")
    return table
