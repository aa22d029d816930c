"""BLEU by source length of the runs of a comparison: figures 2 and 3 of Bahdanau et al. 2015."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seq2seq.config import CompareLengthsConfig, TrainConfig, checkpoint_path
from seq2seq.data.corpus import read_lines
from seq2seq.data.tokenizer import build_tokenizer
from seq2seq.evaluation.by_length import Estimate, bleu_by_length, bleu_gap
from seq2seq.evaluation.heatmap import save_figure
from seq2seq.evaluation.length_figure import Curve, length_figure
from seq2seq.evaluation.panels import Panel, panel_figure
from seq2seq.training.comparison import Compared, markdown_row, read_comparison
from seq2seq.training.validation import beside

PAPER_NAMES = {"additive": "RNNsearch", "none": "RNNencdec"}


def model_label(config: TrainConfig) -> str:
    """As the paper has it: RNNsearch-50 was trained on sentences of up to 50 words."""
    name = PAPER_NAMES.get(config.model.attention.name, config.model.attention.name)
    return f"{name}-{config.data.max_tokens}"


def write_lengths(folder: Path, config: CompareLengthsConfig) -> str:
    """Figures and table of all finished runs below ``folder``, as files in it; the table.

    ``lengths.png``, ``lengths.md`` and, once a model with attention is there, ``alignments.png``.
    """
    runs = sorted(read_comparison(folder), key=_order)
    lengths = source_lengths(runs[0])
    curves = [_curve(run, lengths, config.edges) for run in runs]
    save_figure(length_figure(curves, "BLEU by source length"), folder / "lengths.png")
    table = lengths_table(runs, curves, lengths, config.long)
    (folder / "lengths.md").write_text(table + "\n", encoding="utf-8")
    attending = [run for run in runs if not _without_attention(run)]
    if attending and config.lines:
        widest = max(attending, key=lambda run: run.settings["data"]["max_tokens"])
        save_figure(panel_figure(_panels(widest, config.lines), 2), folder / "alignments.png")
    return table


def source_lengths(run: Compared) -> list[int]:
    """Words of every source sentence of the test part: Moses tokens, without the end token."""
    moses = build_tokenizer("moses", run.settings["data"]["source_language"])
    return [len(words) for words in moses.tokenize_many(_test_lines(run, "sources"))]


def lengths_table(
    runs: Sequence[Compared], curves: Sequence[Curve], lengths: Sequence[int], long: int
) -> str:
    """Markdown: a row for each model, BLEU of each group of lengths with its 95% interval."""
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
        *_gaps(runs, np.array(lengths) > long, long),
    ]
    return "\n".join([*lines, "", *notes])


def _gaps(runs: Sequence[Compared], chosen: np.ndarray, long: int) -> list[str]:
    """What attention is worth on long sentences, for each pair of runs that differ in it alone."""
    notes = []
    for run in runs:
        for baseline in runs:
            if _without_attention(run) or not _without_attention(baseline):
                continue
            if any(_conditions(run)[key] != value for key, value in _conditions(baseline).items()):
                continue
            gap = bleu_gap(
                hypotheses=_test_lines(run, "hypotheses"),
                baseline=_test_lines(baseline, "hypotheses"),
                references=_test_lines(run, "references"),
                chosen=chosen,
            )
            notes.append(
                f"On the {gap.num_sentences} sentences of more than {long} words {run.label} has "
                f"{_shown(gap.bleu)}, {baseline.label} {_shown(gap.baseline)}: a gap of "
                f"{_shown(gap.difference)} (paired bootstrap)."
            )
    return notes


def _order(run: Compared) -> tuple[bool, int, str]:
    """With attention first, then by the sentences that a model was trained on."""
    return _without_attention(run), run.settings["data"]["max_tokens"], run.label


def _conditions(run: Compared) -> dict[str, int]:
    return {"max_tokens": run.settings["data"]["max_tokens"], "seed": run.settings["seed"]}


def _without_attention(run: Compared) -> bool:
    return run.settings["model"]["attention"]["name"] == "none"


def _curve(run: Compared, lengths: Sequence[int], edges: Sequence[int]) -> Curve:
    bins = bleu_by_length(
        source_lengths=lengths,
        hypotheses=_test_lines(run, "hypotheses"),
        references=_test_lines(run, "references"),
        edges=edges,
    )
    return Curve(run.label, bins, dashed=_without_attention(run))


def _panels(run: Compared, lines: Sequence[int]) -> list[Panel]:
    """What the model made of some lines of the test part, and where it looked."""
    alignments = _test_lines(run, "alignments", "jsonl")
    panels = []
    for line in lines:
        shown = json.loads(alignments[line - 1])
        title = f"test line {line}"
        panels.append(
            Panel(title, shown["weights"], shown["source_tokens"], shown["target_tokens"])
        )
    return panels


def _test_lines(run: Compared, name: str, ending: str = "txt") -> list[str]:
    """The lines of a file that the evaluation of the test part wrote."""
    return list(
        read_lines(beside(checkpoint_path(run.folder, "best"), "test") / f"{name}.{ending}")
    )


def _shown(estimate: Estimate) -> str:
    return f"{estimate.score:.1f} [{estimate.low:.1f}, {estimate.high:.1f}]"
