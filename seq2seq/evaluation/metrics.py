"""The table of metrics: every score of a translator on a test set, in one place.

The report in JSON, the log lines, the TensorBoard curves, the tables of comparisons and
``trainer.select`` all read METRICS, so a new metric is one more entry. Strings and numbers only:
this module knows neither tensors nor models.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from seq2seq.config.registry import Registry
from seq2seq.evaluation.alignment import (
    AlignmentQuality,
    Link,
    alignment_error_rate,
    attention_entropy,
)
from seq2seq.evaluation.bleu import Score, bleu, chrf


class Evaluated(NamedTuple):
    """The output of a translator on a test set of N sentence pairs, and the references."""

    hypotheses: Sequence[str]  # detokenized translations, N of them
    references: Sequence[str]  # lines of the reference file, N of them
    log_prob: float  # of all references given their sources, in nats
    target_tokens: int  # in the references, end-of-sentence tokens included
    attention_weights: Sequence[
        ArrayLike
    ] = ()  # (T, S) for each reference; rows of 0: no attention
    predicted_links: Sequence[Iterable[Link]] = ()  # word alignments read from the attention
    reference_links: Sequence[Iterable[Link]] | None = None  # true alignments; None: unknown
    metric_tokenizer: str = "13a"  # of sacreBLEU

    @property
    def loss(self) -> float:
        """Mean negative log-likelihood of a target token, in nats."""
        return -self.log_prob / self.target_tokens


class Metric(NamedTuple):
    """One score, with the information that reports and checkpoint selection need.

    A metric whose ``score`` returns None is left out of the report: it has no value for these
    data, such as an alignment error rate without true alignments.
    """

    name: str  # key in JSON, TensorBoard tag, value of trainer.select
    heading: str  # in log lines and tables
    digits: int  # decimals in log lines and tables
    higher_is_better: bool
    score: Callable[[Evaluated], float | Score | None]
    details: Callable[[Evaluated], Mapping[str, float | str]] | None = None  # for the JSON only
    in_tables: bool = True  # False: too much for the summary line and the tables of comparisons


def perplexity(nats_per_token: float) -> float:
    """Return ``exp`` of a mean negative log-likelihood; inf if that exceeds a float."""
    try:
        return math.exp(nats_per_token)
    except OverflowError:
        return math.inf


def _bleu(evaluated: Evaluated) -> Score:
    return bleu(
        hypotheses=evaluated.hypotheses,
        references=evaluated.references,
        tokenize=evaluated.metric_tokenizer,
    )


def _chrf(evaluated: Evaluated) -> Score:
    return chrf(hypotheses=evaluated.hypotheses, references=evaluated.references)


def _alignment_quality(evaluated: Evaluated) -> AlignmentQuality | None:
    if evaluated.reference_links is None:
        return None
    return alignment_error_rate(evaluated.predicted_links, evaluated.reference_links)


def _alignment_error_rate(evaluated: Evaluated) -> float | None:
    quality = _alignment_quality(evaluated)
    return None if quality is None else quality.aer


def _alignment_details(evaluated: Evaluated) -> dict[str, float | str]:
    quality = _alignment_quality(evaluated)
    assert quality is not None
    return {
        "aer_precision": quality.precision,
        "aer_recall": quality.recall,
        "aer_signature": "forced references|arg-max per target word|subwords merged to Moses "
        "words|EOS left out|all links sure",
    }


def _mean_attention_entropy(evaluated: Evaluated) -> float | None:
    entropies = [attention_entropy(weights) for weights in evaluated.attention_weights]
    # Without attention all weights are 0, and no sentence has an entropy.
    return None if np.isnan(entropies).all() else float(np.nanmean(entropies))


METRICS = Registry(
    "trainer.select",
    {
        metric.name: metric
        for metric in (
            Metric("bleu", "BLEU", 2, True, _bleu),
            Metric("chrf", "chrF", 2, True, _chrf),
            Metric("loss", "loss", 3, False, lambda evaluated: evaluated.loss, in_tables=False),
            Metric(
                "perplexity", "perplexity", 3, False, lambda evaluated: perplexity(evaluated.loss)
            ),
            Metric("aer", "AER", 3, False, _alignment_error_rate, _alignment_details),
            Metric("attention_entropy", "entropy", 3, False, _mean_attention_entropy),
        )
    },
)


def evaluate_metrics(evaluated: Evaluated) -> dict[str, Any]:
    """Compute every metric of the table that has a value for these data.

    Returns:
        A JSON-able dictionary by name of the metric: a number, or ``score`` and ``signature`` of
        scores that have a signature; then the details of the metrics, ``sentences`` and
        ``target_tokens``.

    Raises:
        ValueError: hypotheses and references, or predicted and true alignments, do not fit.
    """
    report: dict[str, Any] = {}
    for metric in METRICS.values():
        score = metric.score(evaluated)
        if score is None:
            continue
        report[metric.name] = score.to_dict() if isinstance(score, Score) else score
        if metric.details is not None:
            report |= metric.details(evaluated)
    return report | {
        "sentences": len(evaluated.references),
        "target_tokens": evaluated.target_tokens,
    }


def get_value(scores: Mapping[str, Any], name: str) -> float | None:
    """Return the number of one metric in a report of ``evaluate_metrics``, None if it has none."""
    score = scores.get(name)
    return score["score"] if isinstance(score, Mapping) else score


def get_values(scores: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of all metrics in a report, by name, in the order of the table."""
    values = {name: get_value(scores, name) for name in METRICS}
    return {name: value for name, value in values.items() if value is not None}


def format_scores(scores: Mapping[str, Any]) -> str:
    """Format a report of ``evaluate_metrics`` on one line, scores with their signatures."""
    fields = []
    for metric in METRICS.values():
        value = get_value(scores, metric.name)
        if value is None or not metric.in_tables:
            continue
        score = scores[metric.name]
        signature = f" ({score['signature']})" if isinstance(score, Mapping) else ""
        fields.append(f"{metric.heading} {value:.{metric.digits}f}{signature}")
    return "  ".join(fields)


def format_values(values: Mapping[str, float]) -> str:
    """Format the numbers of metrics on one line; a name without a metric is shown as it is."""
    fields = []
    for name, value in values.items():
        metric = METRICS.get(name)
        heading, digits = (metric.heading, metric.digits) if metric else (name, 3)
        fields.append(f"{heading} {value:.{digits}f}")
    return "  ".join(fields)


def is_better(metric: Metric, new: float, best: float | None) -> bool:
    """Return whether a score is strictly better than the best one so far.

    Of two equal scores the earlier one stays the best. NaN is never better; any other number is
    better than None or NaN, which stand for no score yet.
    """
    if math.isnan(new):
        return False
    if best is None or math.isnan(best):
        return True
    return new > best if metric.higher_is_better else new < best
