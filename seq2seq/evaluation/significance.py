"""BLEU by the length of the source sentence, and the gap between two systems, with intervals.

The numbers of figure 2 of Bahdanau et al. 2015, arXiv:1409.0473: without attention a translator
fails as sentences grow. Few sentences are long, hence the intervals. ``length_figure`` draws them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seq2seq.evaluation.bleu import bleu_of_statistics, bleu_statistics, resampled_bleu

INTERVAL = (2.5, 97.5)  # percentiles: 95% of the resamples lie between
FEWEST = 2  # sentences; one can only be drawn again, which is no interval


class Estimate(NamedTuple):
    """A BLEU score, or a difference of two, in points, and the ends of its 95% interval."""

    score: float
    low: float
    high: float


class LengthBin(NamedTuple):
    """The sentences whose source has ``first`` to ``last`` words; a ``last`` of None: or more.

    ``mean_length`` is None where there are none, ``bleu`` where there are fewer than two.
    """

    first: int
    last: int | None
    num_sentences: int
    mean_length: float | None
    bleu: Estimate | None

    @property
    def label(self) -> str:
        """As on an axis: ``≤ 10``, ``11–20``, ``> 20``."""
        if self.last is None:
            return f"> {self.first - 1}" if self.first else "all"
        if self.first == 0:
            return f"≤ {self.last}"
        return f"{self.first}–{self.last}" if self.first < self.last else f"{self.last}"


class Gap(NamedTuple):
    """Two systems on the same sentences; ``difference`` is ``bleu`` minus ``baseline``."""

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
    """BLEU of the sentences of every length, with its 95% percentile bootstrap interval.

    What a bin gets depends on its own sentences and the seed alone. Texts of fewer than four words
    have no 4-gram: a bin of nothing else scores 0, whatever was written.

    Args:
        source_lengths: words of every source sentence, without the end token.
        hypotheses: detokenised translations, as for ``bleu.bleu``.
        references: lines of the reference file.
        edges: the last length of every bin but the last one, which is open: (10, 20) makes 0 to
            10, 11 to 20, and 21 or more; none makes one bin of all.
        tokenize: sacreBLEU's tokeniser.
        num_resamples: corpora drawn for an interval, as for ``bleu.resampled_bleu``.
        seed: of the draws.

    Returns:
        One bin more than there are edges; every sentence is in exactly one.

    Raises:
        ValueError: the sentences differ in number, or the edges do not rise.
    """
    if any(low >= high for low, high in zip([-1, *edges], edges, strict=False)):
        raise ValueError(f"edges={list(edges)} must rise, from 0 or more.")
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
        if number >= FEWEST:
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
    """How much better one system translates than another, by paired bootstrap (Koehn 2004).

    Both are scored on the same resampled sentences, so what makes a sentence hard for both cancels
    in the difference. An interval that leaves out 0 is the usual sign that it is no accident.

    Args:
        hypotheses: detokenised translations of the system in question.
        baseline: those of the other.
        references: lines of the reference file.
        chosen: True for the sentences that count, (N,), as in ``np.array(source_lengths) > 30``;
            without it all do.
        tokenize: sacreBLEU's tokeniser.
        num_resamples: corpora drawn, as for ``bleu.resampled_bleu``.
        seed: of the draws.

    Raises:
        ValueError: the sentences differ in number, or fewer than two are chosen.
    """
    ours, theirs = (
        bleu_statistics(hypotheses=system, references=references, tokenize=tokenize)
        for system in (hypotheses, baseline)
    )
    mask = np.ones(len(ours), bool) if chosen is None else np.asarray(chosen)
    if mask.dtype != bool or mask.shape != (len(ours),):  # numbers would be taken for positions
        raise ValueError(f"chosen must hold True or False for each of the {len(ours):,} sentences.")
    number = int(mask.sum())
    if number < FEWEST:
        raise ValueError(
            f"{number} of {len(ours):,} sentences are chosen; resampling takes {FEWEST} or more."
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
