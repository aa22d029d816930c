"""Evaluates a translator on held-out text: translations, forced decoding, and scores."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from seq2seq.data.reading import ParallelFiles, SentencePair, read_lines, read_parallel
from seq2seq.data.tokenizer import build_tokenizer
from seq2seq.evaluation.alignment import (
    Link,
    hard_alignment,
    merge_subwords,
    parse_pharaoh,
    words_of_tokens,
)
from seq2seq.evaluation.metrics import Evaluated, evaluate_metrics, get_values
from seq2seq.search.translator import Translation, Translator


class EvaluationSet(NamedTuple):
    """Sentence pairs to evaluate on; every pair of the files is kept."""

    pairs: list[SentencePair]
    alignments: list[set[Link]] | None = None  # true links between Moses tokens


class Result(NamedTuple):
    """The output of a translator on an evaluation set."""

    translations: list[Translation]
    forced: list[Translation]  # the references under forced decoding
    scores: dict[str, Any]  # JSON, each score with its signature

    @property
    def values(self) -> dict[str, float]:
        """The number of each metric, without signatures."""
        return get_values(self.scores)


def read_evaluation_set(files: ParallelFiles) -> EvaluationSet:
    """Read every pair of the files, and their true alignments if there are any.

    Raises:
        ValueError: there are no pairs, or the alignment file does not match them.
    """
    pairs = list(read_parallel(files))
    if not pairs:
        raise ValueError(f"{files.source} and {files.target} have no sentences to score.")
    if files.alignment is None:
        return EvaluationSet(pairs)
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
    return EvaluationSet(pairs, links)


def evaluate(
    translator: Translator, examples: EvaluationSet, metric_tokenizer: str = "13a"
) -> Result:
    """Translate freely for BLEU and chrF; force-decode the references for perplexity and AER.

    The loss is the mean over all target tokens of the set, EOS included, in nats.

    Args:
        translator: translates with its own search settings.
        examples: sentences to translate, and their references.
        metric_tokenizer: tokenizer of sacreBLEU.
    """
    pairs = examples.pairs
    translations = translator.translate([pair.source for pair in pairs])
    forced = translator.score(pairs)
    predicted_links: list[set[Link]] = []
    if examples.alignments is not None:
        predicted_links = _predicted_links(translator, pairs, forced)
    evaluated = Evaluated(
        hypotheses=[translation.text for translation in translations],
        references=[pair.target for pair in pairs],
        log_prob=sum(translation.log_prob for translation in forced),
        target_tokens=sum(len(translation.tokens) for translation in forced),
        attention_weights=[translation.alignment for translation in forced],
        predicted_links=predicted_links,
        reference_links=examples.alignments,
        metric_tokenizer=metric_tokenizer,
    )
    return Result(translations, forced, evaluate_metrics(evaluated))


def _predicted_links(
    translator: Translator, pairs: Sequence[SentencePair], forced: Sequence[Translation]
) -> list[set[Link]]:
    """Return word alignments between Moses tokens, from the attention over the references."""
    splitters = [
        build_tokenizer("moses", codec.language) for codec in (translator.source, translator.target)
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
    """Link each target word to its most attended source word, ignoring EOS."""
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
