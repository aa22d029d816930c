"""A model meets sentences it has not seen: scores with their signatures, and pictures."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seq2seq.data.reading import ParallelFiles, SentencePair, read_lines, read_parallel
from seq2seq.data.tokenizer import build_tokenizer
from seq2seq.evaluation.alignment import (
    Link,
    format_pharaoh,
    hard_alignment,
    merge_subwords,
    parse_pharaoh,
    words_of_tokens,
)
from seq2seq.evaluation.bleu import replace_newlines
from seq2seq.evaluation.metrics import Evaluated, evaluate_metrics
from seq2seq.figures.heatmap import alignment_figure
from seq2seq.figures.style import figure_image, save_figure
from seq2seq.search.translator import Translation, Translator
from seq2seq.training.journal import Journal


class TestSet(NamedTuple):
    """Sentence pairs to score on; none is ever left out."""

    pairs: list[SentencePair]
    alignments: list[set[Link]] | None = None  # true links between Moses tokens


class Result(NamedTuple):
    """What a model makes of a test set."""

    translations: list[Translation]
    forced: list[Translation]  # the references under teacher forcing
    scores: dict[str, Any]  # JSON-able, each score with its signature


def read_test_set(files: ParallelFiles) -> TestSet:
    """Every pair of the files, and their true alignments where there are any.

    Raises:
        ValueError: there is no pair, or the alignment file does not fit.
    """
    pairs = list(read_parallel(files))
    if not pairs:
        raise ValueError(f"{files.source} and {files.target} hold no sentence to score.")
    if files.alignment is None:
        return TestSet(pairs)
    lines = list(read_lines(files.alignment))
    if len(lines) != len(pairs):
        raise ValueError(
            f"{files.alignment} has {len(lines):,} lines, but there are "
            f"{len(pairs):,} sentence pairs; line n must align pair n."
        )
    links = [
        parse_pharaoh(line, f"{files.alignment}, line {number}")
        for number, line in enumerate(lines, start=1)
    ]
    return TestSet(pairs, links)


def evaluate(translator: Translator, test_set: TestSet, metric_tokenizer: str = "13a") -> Result:
    """Translate freely for BLEU and chrF; force the references for perplexity and AER.

    The loss is in nats for each real target token, EOS included, over the whole set.
    """
    pairs = test_set.pairs
    translations = translator.translate([pair.source for pair in pairs])
    forced = translator.score(pairs)
    predicted_links: list[set[Link]] = []
    if test_set.alignments is not None:
        predicted_links = _predicted_links(translator, pairs, forced)
    evaluated = Evaluated(
        hypotheses=[translation.text for translation in translations],
        references=[pair.target for pair in pairs],
        log_prob=sum(translation.log_prob for translation in forced),
        target_tokens=sum(len(translation.tokens) for translation in forced),
        attention_weights=[translation.alignment for translation in forced],
        predicted_links=predicted_links,
        reference_links=test_set.alignments,
        metric_tokenizer=metric_tokenizer,
    )
    return Result(translations, forced, evaluate_metrics(evaluated))


def _predicted_links(
    translator: Translator, pairs: Sequence[SentencePair], forced: Sequence[Translation]
) -> list[set[Link]]:
    """Word alignments read from the attention over the references, between Moses tokens."""
    splitters = [
        build_tokenizer("moses", side.language) for side in (translator.source, translator.target)
    ]
    predicted = []
    for pair, translation in zip(pairs, forced, strict=True):
        source, target = (
            splitter.tokenize(text) for splitter, text in zip(splitters, pair, strict=True)
        )
        predicted.append(word_links(translation, source, target))
    return predicted


def word_links(
    translation: Translation, source_words: list[str], target_words: list[str]
) -> set[Link]:
    """For each target word the source word that it looked at most; EOS of both sides left out."""
    source, target = translation.source_tokens[:-1], translation.tokens[:-1]
    if not source or not target:
        return set()
    merged = merge_subwords(
        translation.alignment[:-1, :-1],
        words_of_tokens(source, source_words),
        words_of_tokens(target, target_words),
        (len(target_words), len(source_words)),
    )
    return hard_alignment(merged)


def beside(checkpoint: Path, name: str) -> Path:
    """The folder for what a checkpoint makes of the test set called ``name``."""
    return checkpoint.parent / f"{checkpoint.stem}_{name}"


def evaluate_and_write(
    translator: Translator, test_set: TestSet, folder: Path, metric_tokenizer: str
) -> dict[str, Any]:
    """The scores of ``evaluate``, and all that they were made from as files in ``folder``."""
    result = evaluate(translator, test_set, metric_tokenizer)
    write_translations(folder, test_set, result)
    return result.scores


def write_translations(folder: Path, test_set: TestSet, result: Result) -> None:
    """Sources, hypotheses, references, alignments and scores as files, line for line.

    ``sacrebleu references.txt -i hypotheses.txt`` gives the same BLEU. ``alignments.txt`` has
    the most attended source token of each target token (Pharaoh format, positions of the
    model's own tokens), ``alignments.jsonl`` the tokens and all weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    scores = folder / "scores.json"
    # Gone first and written last: they are never beside files that they were not made from.
    scores.unlink(missing_ok=True)
    write_lines(folder / "sources.txt", [pair.source for pair in test_set.pairs])
    write_lines(folder / "references.txt", [pair.target for pair in test_set.pairs])
    write_lines(folder / "hypotheses.txt", [replace_newlines(t.text) for t in result.translations])
    write_lines(
        folder / "alignments.txt",
        [
            format_pharaoh(hard_alignment(t.alignment[:-1, :-1])) if len(t.tokens) > 1 else ""
            for t in result.translations
        ],
    )
    write_lines(folder / "alignments.jsonl", [as_json(t) for t in result.translations])
    scores.write_text(json.dumps(result.scores, indent=2), encoding="utf-8")


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """UTF-8, LF, one line each, whatever the platform."""
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")


def as_dict(translation: Translation) -> dict[str, Any]:
    """Tokens and weights of a translation, for JSON; weights rounded to six places."""
    return {
        "source_tokens": translation.source_tokens,
        "target_tokens": translation.tokens,
        "weights": [[round(float(w), 6) for w in row] for row in translation.alignment],
    }


def as_json(translation: Translation) -> str:
    """``as_dict`` on one line."""
    return json.dumps(as_dict(translation), ensure_ascii=False)


def draw(translation: Translation, title: str, stem: Path) -> np.ndarray:
    """The heatmap of a translation as ``<stem>.png``, its weights as ``<stem>.json``; pixels."""
    figure = alignment_figure(
        translation.alignment, translation.source_tokens, translation.tokens, title
    )
    stem.parent.mkdir(parents=True, exist_ok=True)
    save_figure(figure, stem.with_name(stem.name + ".png"))
    stem.with_name(stem.name + ".json").write_text(as_json(translation) + "\n", encoding="utf-8")
    return figure_image(figure)


def show_sentences(
    result: Result, test_set: TestSet, lines: list[int], step: int, run_dir: Path, journal: Journal
) -> None:
    """Draw the same sentences at every validation, so that their alignment is seen emerging.

    Args:
        result: what the model made of the test set.
        test_set: what it was given.
        lines: the sentences to show, the first being 1; those beyond the set are left out.
        step: updates made so far.
        run_dir: the run folder; pictures and weights go to its ``alignments/``.
        journal: where TensorBoard gets picture and text from.
    """
    for line in lines:
        if line > len(test_set.pairs):
            continue
        translation, pair = result.translations[line - 1], test_set.pairs[line - 1]
        name = f"valid_{line:04d}"
        title = f"{name}, step {step:,}: {translation.text}"
        pixels = draw(translation, title, run_dir / "alignments" / name / f"step_{step:07d}")
        journal.picture(f"alignment/{name}", step, pixels)
        # Indented by four: Markdown shows it as it is, whatever characters it holds.
        text = (
            f"    source     {pair.source}\n"
            f"    reference  {pair.target}\n"
            f"    hypothesis {translation.text}"
        )
        journal.text(f"translation/{name}", step, text)
