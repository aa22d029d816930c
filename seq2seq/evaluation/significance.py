"""BLEU by source length, and the difference between two systems, with confidence intervals.

Figure 2 of Bahdanau et al. 2015 (arXiv:1409.0473) shows BLEU by length: without attention,
translation degrades as sentences grow. Few sentences are long, hence the intervals.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seq2seq.evaluation.bleu import bleu_of_statistics, bleu_statistics, resampled_bleu

INTERVAL = (2.5, 97.5)  # percentiles: 95% of the resampled scores lie between them
MIN_SENTENCES = 2  # resampling a single sentence always draws the same corpus


class Estimate(NamedTuple):
    """A BLEU score or difference in points, and the bounds of its 95% confidence interval."""

    score: float
    low: float
    high: float


class LengthBin(NamedTuple):
    """The sentences whose source has ``first`` to ``last`` words; None means no upper bound.

    ``mean_length`` is None without sentences, ``bleu`` with fewer than two.
    """

    first: int
    last: int | None
    num_sentences: int
    mean_length: float | None
    bleu: Estimate | None

    @property
    def label(self) -> str:
        """The range as an axis label: ``≤ 10``, ``11–20``, ``> 20``."""
        if self.last is None:
            return f"> {self.first - 1}" if self.first else "all"
        if self.first == 0:
            return f"≤ {self.last}"
        return f"{self.first}–{self.last}" if self.first < self.last else f"{self.last}"


class Gap(NamedTuple):
    """Scores of two systems on the same sentences; ``difference`` is ``bleu - baseline``."""

    num_sentences: int
    bleu: Estimate
    baseline: Estimate
    difference: Estimate


def bleu_by_length(
    *,
    source_lengths: Sequence[int],
    hypotheses: Sequence[str],
    references: Sequence[str],
    edges: Sequence[int],
    tokenize: str = "13a",
    num_resamples: int = 1000,
    seed: int = 0,
) -> list[LengthBin]:
    """Compute BLEU by source length, with 95% percentile bootstrap intervals.

    The result of a bin depends only on its own sentences and the seed. Sentences of fewer than
    four words have no 4-gram: a bin of only such sentences scores 0.

    Args:
        source_lengths: number of words of every source sentence, without the end token.
        hypotheses: detokenized translations, as for ``bleu.bleu``.
        references: lines of the reference file.
        edges: upper bounds of all bins except the last, which is open: (10, 20) makes the bins
            0 to 10, 11 to 20, and 21 or more; an empty sequence makes one bin.
        tokenize: a tokenizer of sacreBLEU.
        num_resamples: number of corpora drawn for an interval, as for ``bleu.resampled_bleu``.
        seed: random seed of the draws.

    Returns:
        One bin more than there are edges; every sentence is in exactly one bin.

    Raises:
        ValueError: the arguments differ in length, or the edges do not increase.
    """
    if any(low >= high for low, high in zip([-1, *edges], edges, strict=False)):
        raise ValueError(f"edges={list(edges)} must increase, from 0 or more.")
    statistics = bleu_statistics(hypotheses=hypotheses, references=references, tokenize=tokenize)
    lengths = np.asarray(source_lengths)
    if lengths.shape != (len(statistics),):
        raise ValueError(
            f"source lengths of shape {lengths.shape} do not belong to {len(statistics):,} "
            f"hypotheses: give the number of words of each source sentence."
        )
    bins = []
    ranges = zip([0, *(edge + 1 for edge in edges)], [*edges, None], strict=True)
    for index, (first, last) in enumerate(ranges):
        inside = np.searchsorted(edges, lengths) == index
        number = int(inside.sum())
        mean = float(lengths[inside].mean()) if number else None
        estimate = None
        if number >= MIN_SENTENCES:
            draws = resampled_bleu(statistics[inside], num_resamples, seed)
            estimate = _estimate(bleu_of_statistics(statistics[inside].sum(axis=0)), draws)
        bins.append(LengthBin(first, last, number, mean, estimate))
    return bins


def bleu_gap(
    *,
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[str],
    chosen: ArrayLike | None = None,
    tokenize: str = "13a",
    num_resamples: int = 1000,
    seed: int = 0,
) -> Gap:
    """Compare two systems by paired bootstrap resampling (Koehn 2004).

    Both are scored on the same resampled sentences, so what makes a sentence hard for both cancels
    out in the difference. If its interval does not contain 0, the difference is significant.

    Args:
        hypotheses: detokenized translations of the system.
        baseline: translations of the other system.
        references: lines of the reference file.
        chosen: True for the sentences to score, (N,), such as ``np.array(source_lengths) > 30``;
            all by default.
        tokenize: a tokenizer of sacreBLEU.
        num_resamples: number of corpora drawn, as for ``bleu.resampled_bleu``.
        seed: random seed of the draws.

    Raises:
        ValueError: the arguments differ in length, or fewer than two sentences are chosen.
    """
    ours, theirs = (
        bleu_statistics(hypotheses=system, references=references, tokenize=tokenize)
        for system in (hypotheses, baseline)
    )
    mask = np.ones(len(ours), bool) if chosen is None else np.asarray(chosen)
    if mask.dtype != bool or mask.shape != (len(ours),):  # integers would be used as indices
        raise ValueError(f"chosen must hold True or False for each of the {len(ours):,} sentences.")
    number = int(mask.sum())
    if number < MIN_SENTENCES:
        raise ValueError(
            f"{number} of {len(ours):,} sentences are chosen; resampling takes "
            f"{MIN_SENTENCES} or more."
        )
    (our_score, our_draws), (their_score, their_draws) = (
        (
            bleu_of_statistics(system[mask].sum(axis=0)),
            resampled_bleu(system[mask], num_resamples, seed),
        )
        for system in (ours, theirs)
    )
    return Gap(
        number,
        _estimate(our_score, our_draws),
        _estimate(their_score, their_draws),
        _estimate(our_score - their_score, our_draws - their_draws),
    )


def _estimate(score: float, draws: NDArray[np.float64]) -> Estimate:
    low, high = np.percentile(draws, INTERVAL)
    return Estimate(score, float(low), float(high))
