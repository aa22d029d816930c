"""Output files of an evaluation: translations, scores, alignments and pictures."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seq2seq.evaluation.alignment import format_pharaoh, hard_alignment
from seq2seq.evaluation.bleu import replace_newlines
from seq2seq.figures.heatmap import alignment_figure
from seq2seq.scoring.evaluate import EvaluationSet, Result
from seq2seq.search.translator import Translation
from seq2seq.training.task import Drawing


def write_evaluation(folder: Path, examples: EvaluationSet, result: Result) -> None:
    """Write sources, hypotheses, references, alignments and scores, line for line.

    ``sacrebleu references.txt -i hypotheses.txt`` gives the same BLEU. ``alignments.txt`` has
    the most attended source token of each target token (Pharaoh format, positions of the
    model's own tokens), ``alignments.jsonl`` the tokens and all weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    scores = folder / "scores.json"
    # Removed first and written last, so that the scores always match the other files.
    scores.unlink(missing_ok=True)
    write_lines(folder / "sources.txt", [pair.source for pair in examples.pairs])
    write_lines(folder / "references.txt", [pair.target for pair in examples.pairs])
    write_lines(folder / "hypotheses.txt", [replace_newlines(t.text) for t in result.translations])
    write_lines(
        folder / "alignments.txt",
        [
            format_pharaoh(hard_alignment(t.alignment[:-1, :-1])) if len(t.tokens) > 1 else ""
            for t in result.translations
        ],
    )
    write_lines(folder / "alignments.jsonl", [to_json(t) for t in result.translations])
    scores.write_text(json.dumps(result.scores, indent=2), encoding="utf-8")


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write lines in UTF-8, each ended by LF on every platform."""
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")


def to_dict(translation: Translation) -> dict[str, Any]:
    """Return tokens and weights of a translation for JSON, weights rounded to six decimals."""
    return {
        "source_tokens": translation.source_tokens,
        "target_tokens": translation.tokens,
        "weights": [[round(float(w), 6) for w in row] for row in translation.alignment],
    }


def to_json(translation: Translation) -> str:
    """Return ``to_dict`` as one line of JSON."""
    return json.dumps(to_dict(translation), ensure_ascii=False)


def draw(translation: Translation, title: str) -> Drawing:
    """Draw the alignment heatmap of a translation, and add its weights as JSON."""
    figure = alignment_figure(
        translation.alignment, translation.source_tokens, translation.tokens, title
    )
    return Drawing(figure, to_json(translation))


def draw_sentences(
    result: Result, examples: EvaluationSet, lines: Sequence[int], step: int
) -> tuple[dict[str, Drawing], dict[str, str]]:
    """Draw the same sentences at every validation, to show how the alignment emerges.

    Args:
        result: result of the evaluation.
        examples: the sentences that were translated.
        lines: line numbers to draw, counted from 1; those past the end are left out.
        step: updates made so far.

    Returns:
        Drawings and Markdown texts by TensorBoard tag.
    """
    drawings, texts = {}, {}
    for line in lines:
        if line > len(examples.pairs):
            continue
        translation, pair = result.translations[line - 1], examples.pairs[line - 1]
        name = f"valid_{line:04d}"
        title = f"{name}, step {step:,}: {translation.text}"
        drawings[f"alignment/{name}"] = draw(translation, title)
        # Indented by four spaces: Markdown shows it verbatim, whatever characters it contains.
        texts[f"translation/{name}"] = (
            f"    source     {pair.source}\n"
            f"    reference  {pair.target}\n"
            f"    hypothesis {translation.text}"
        )
    return drawings, texts
