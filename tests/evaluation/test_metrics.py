import json
import math

import numpy as np
import pytest

from seq2seq.evaluation.bleu import Score, bleu
from seq2seq.evaluation.metrics import (
    METRICS,
    Evaluated,
    Metric,
    evaluate_metrics,
    format_scores,
    get_value,
    get_values,
    is_better,
    perplexity,
)

REFERENCES = ["a b c d e", "f g h i"]
HYPOTHESES = ["a b c d x", "f g h i"]
EVALUATED = Evaluated(HYPOTHESES, REFERENCES, log_prob=-22.0, target_tokens=11)
ALIGNED = EVALUATED._replace(
    attention_weights=[np.full((2, 4), 0.25), np.eye(3)],
    predicted_links=[{(0, 0)}, {(1, 1)}],
    reference_links=[{(0, 0)}, {(1, 0)}],
)


def test_report_holds_every_metric_and_serializes():
    report = json.loads(json.dumps(evaluate_metrics(ALIGNED)))
    expected = bleu(hypotheses=HYPOTHESES, references=REFERENCES)
    assert report["bleu"] == {"score": expected.score, "signature": expected.signature}
    assert report["loss"] == 2
    assert report["perplexity"] == pytest.approx(math.exp(2))
    assert report["aer"] == report["aer_precision"] == report["aer_recall"] == 0.5
    assert "Moses" in report["aer_signature"]
    assert report["attention_entropy"] == pytest.approx(math.log(4) / 2)
    assert (report["sentences"], report["target_tokens"]) == (2, 11)
    assert list(get_values(report)) == list(METRICS)


def test_metrics_without_a_value_are_left_out():
    """No true alignments, and no attention: all weights are 0."""
    report = evaluate_metrics(EVALUATED._replace(attention_weights=[np.zeros((2, 3))]))
    assert not {"aer", "aer_precision", "aer_signature", "attention_entropy"} & set(report)
    assert get_value(report, "aer") is None
    assert "AER" not in format_scores(report)


def test_formatted_scores_carry_their_signatures():
    line = format_scores(evaluate_metrics(ALIGNED))
    assert "\n" not in line
    score = bleu(hypotheses=HYPOTHESES, references=REFERENCES)
    assert f"BLEU {score.score:.2f} ({score.signature})" in line
    assert "AER 0.500" in line


def test_registered_metric_is_reported(monkeypatch):
    monkeypatch.setattr(METRICS, "_entries", dict(METRICS))
    longest = Metric("words", "words", 0, True, lambda evaluated: Score("w", 5, "none", {}))
    METRICS.register("words", longest)
    report = evaluate_metrics(EVALUATED)
    assert report["words"] == {"score": 5, "signature": "none"}
    assert get_values(report)["words"] == 5
    assert "words 5 (none)" in format_scores(report)


@pytest.mark.parametrize(("nats", "expected"), [(0, 1), (math.log(7), 7), (1e6, math.inf)])
def test_perplexity_of_equally_likely_words_is_their_number(nats, expected):
    assert perplexity(nats) == pytest.approx(expected)


BEST = pytest.mark.guarantee(
    "The metric decides which direction is better; NaN is never the best, and an unknown metric is "
    "refused."
)


@BEST
@pytest.mark.parametrize("name", METRICS)
def test_each_metric_knows_its_direction(name):
    best = None
    for score in (1.0, 5.0, 3.0):
        if is_better(METRICS[name], score, best):
            best = score
    assert best == (5 if name in ("bleu", "chrf") else 1)


@BEST
@pytest.mark.parametrize("name", METRICS)
def test_nan_is_never_better_and_never_kept(name):
    metric = METRICS[name]
    assert not is_better(metric, math.nan, None)
    assert not is_better(metric, math.nan, 1.0)
    assert is_better(metric, 1.0, math.nan)
    assert not is_better(metric, 1.0, 1.0)


@BEST
def test_unknown_metric_is_refused_with_the_choices():
    with pytest.raises(ValueError, match=r"trainer\.select=blue .*bleu.*loss"):
        METRICS.get_entry("blue")
