"""BLEU by source length for the runs of a comparison: figures 2 and 3 of Bahdanau et al. 2015."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seq2seq.config.model import AttentionConfig
from seq2seq.config.schema import settings
from seq2seq.config.scripts import CompareLengthsConfig
from seq2seq.config.training import TrainConfig
from seq2seq.data.tokenizer import build_tokenizer
from seq2seq.evaluation.significance import MIN_SENTENCES, Estimate, bleu_by_length, bleu_gap
from seq2seq.figures.curves import Curve, length_figure
from seq2seq.figures.heatmap import Panel, panel_figure
from seq2seq.figures.style import save_figure
from seq2seq.runs.comparison import (
    ComparedRun,
    by_label,
    changed_results,
    markdown_row,
    read_comparison,
)

ATTENTION = {key for key, _ in settings(AttentionConfig, "model.attention.")}
PAPER_NAMES = {"additive": "RNNsearch", "none": "RNNencdec"}


def model_label(attention: str, config: TrainConfig) -> str:
    """Name a model as in the paper: RNNsearch-50 was trained on sentences of up to 50 words."""
    return f"{PAPER_NAMES.get(attention, attention)}-{config.data.max_tokens}"


def write_lengths(folder: Path, config: CompareLengthsConfig) -> str:
    """Write figures and table of all finished runs in ``folder``, and return the table.

    Writes ``lengths.png``, ``lengths.md`` and, once a model with attention is finished,
    ``alignments.png``.
    """
    runs = _named(sorted(read_comparison(folder), key=_order))
    lengths = source_lengths(runs[0])
    curves = [_curve(run, lengths, config.edges) for run in runs]
    save_figure(length_figure(curves, "BLEU by source length"), folder / "lengths.png")
    table = lengths_table(runs, curves, np.array(lengths) > config.long, config.long)
    (folder / "lengths.md").write_text(table + "\n", encoding="utf-8")
    attending = [run for run in runs if not _without_attention(run)]
    if attending:
        panels = _panels(attending[-1], config.lines)
        if panels:
            save_figure(panel_figure(panels, 2), folder / "alignments.png")
    return table


def _order(run: ComparedRun) -> tuple[bool, int, str, int]:
    """Return a sort key: models with attention first, then by maximum training length."""
    settings = run.settings
    return _without_attention(run), settings["data"]["max_tokens"], run.label, settings["seed"]


def _named(runs: Sequence[ComparedRun]) -> list[ComparedRun]:
    """Add the seed to the labels of models with several runs."""
    groups = by_label(runs)
    return [
        run._replace(label=f"{run.label}, seed {run.settings['seed']}")
        if len(groups[run.label]) > 1
        else run
        for run in runs
    ]


def source_lengths(run: ComparedRun) -> list[int]:
    """Count the words of every source sentence of the test set: Moses tokens, without EOS."""
    moses = build_tokenizer("moses", run.settings["data"]["source_language"])
    return [len(words) for words in moses.tokenize_many(run.texts["sources"])]


def lengths_table(
    runs: Sequence[ComparedRun], curves: Sequence[Curve], is_long: NDArray[np.bool_], long: int
) -> str:
    """Return a Markdown table with one row per model: BLEU by length with its 95% interval."""
    bins = curves[0].bins
    head = ["source words", *(each.label for each in bins)]
    counts = ["sentences", *(str(each.num_sentences) for each in bins)]
    lines = [markdown_row(head), markdown_row(["---", *["---:"] * len(bins)]), markdown_row(counts)]
    for curve in curves:
        cells = ["none" if each.bleu is None else _shown(each.bleu) for each in curve.bins]
        lines.append(markdown_row([curve.label, *cells]))
    test = runs[0].summary["test"]
    notes = [
        f"BLEU with its 95% interval (bootstrap, 1,000 resamples of the sentences of a group): "
        f"{test['bleu']['signature']}, beam {runs[0].summary['decoding']['beam_size']}.",
        *_gaps(runs, is_long, long),
    ]
    return "\n".join([*lines, "", *notes])


def _gaps(runs: Sequence[ComparedRun], is_long: NDArray[np.bool_], long: int) -> list[str]:
    """Describe the gain from attention on long sentences, for runs that differ only in it."""
    if is_long.sum() < MIN_SENTENCES:
        return [f"The test set has {is_long.sum()} sentences of more than {long} words (long=)."]
    notes = []
    for run, baseline in itertools.product(runs, runs):
        other_changes = changed_results(run.settings, baseline.settings, ATTENTION)
        if other_changes or _without_attention(run) or not _without_attention(baseline):
            continue
        gap = bleu_gap(
            hypotheses=run.texts["hypotheses"],
            baseline=baseline.texts["hypotheses"],
            references=run.texts["references"],
            chosen=is_long,
            tokenize=run.settings["metric_tokenizer"],
        )
        notes.append(
            f"On the {gap.num_sentences} sentences of more than {long} words, {run.label} has "
            f"{_shown(gap.bleu)} and {baseline.label} {_shown(gap.baseline)}: a gap of "
            f"{_shown(gap.difference)} (paired bootstrap)."
        )
    return notes


def _without_attention(run: ComparedRun) -> bool:
    return run.settings["model"]["attention"]["name"] == "none"


def _curve(run: ComparedRun, lengths: Sequence[int], edges: Sequence[int]) -> Curve:
    bins = bleu_by_length(
        source_lengths=lengths,
        hypotheses=run.texts["hypotheses"],
        references=run.texts["references"],
        edges=edges,
        tokenize=run.settings["metric_tokenizer"],
    )
    return Curve(run.label, bins, dashed=_without_attention(run))


def _panels(run: ComparedRun, lines: Sequence[int]) -> list[Panel]:
    """Return panels with the translations and alignments of some test lines."""
    return [
        Panel(f"test line {line}", each["weights"], each["source_tokens"], each["target_tokens"])
        for line in lines
        if (each := run.alignment("translated", line))
    ]


def _shown(estimate: Estimate) -> str:
    return f"{estimate.score:.1f} [{estimate.low:.1f}, {estimate.high:.1f}]"
