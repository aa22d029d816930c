"""Word alignments: their text format, their extraction from attention weights, their error rate.

Weights are arrays (T, S): row i says where the decoder looked while it wrote target token i. A
link (s, t) says that source word s and target word t translate each other, both counted from 0.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

WORD_START = "▁"  # SentencePiece's mark of a blank


class Link(NamedTuple):
    """Positions of two words that translate each other, both from 0."""

    source: int
    target: int


def parse_pharaoh(line: str, where: str, sizes: tuple[int, int] | None = None) -> set[Link]:
    """The links of one sentence pair, written as ``0-0 1-2 2-1`` (source-target).

    Args:
        line: a line of an alignment file; an empty one has no links.
        where: file and line, for the message.
        sizes: words of the source and of the target; if given, no link may point beyond them.

    Raises:
        ValueError: an entry is no link, or points beyond the sentences, as those of a file that
            counts from 1 do.
    """
    links = set()
    for entry in line.split():
        match = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", entry)
        if match is None:
            raise ValueError(
                f"{where}: {entry[:40]!r} is no alignment link; write SOURCE-TARGET, two word "
                f"positions counted from 0, such as 0-0."
            )
        link = Link(int(match[1]), int(match[2]))
        if sizes is not None and (link.source >= sizes[0] or link.target >= sizes[1]):
            raise ValueError(
                f"{where}: link {entry} points beyond {sizes[0]} source and {sizes[1]} target "
                f"words; positions count words from 0 and are written SOURCE-TARGET."
            )
        links.add(link)
    return links


def format_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """The links in the order of the source, then of the target; inverse of ``parse_pharaoh``."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def words_of_tokens(tokens: Sequence[str], words: Sequence[str]) -> list[int]:
    """To which word each token of the model belongs: the one that holds its first character.

    Both are the same text, cut differently, so counting characters pairs them whatever the
    tokeniser: SentencePiece pieces, Moses tokens, single characters. Blanks and SentencePiece's
    mark count nothing; a token of nothing else belongs to the word that follows, the last one at
    the end. Special tokens (EOS) must be left out, and unknown words be spelled.

    Raises:
        ValueError: the two spell texts of different length, so some token was changed.
    """
    starts = np.cumsum([0, *map(_spelled_length, tokens)])
    ends = np.cumsum([_spelled_length(word) for word in words])
    token_total, word_total = int(starts[-1]), int(ends[-1]) if len(words) else 0
    if token_total != word_total or (len(tokens) and not len(words)):
        raise ValueError(
            f"{len(tokens)} tokens spell {token_total} characters, but the {len(words)} words "
            f"they should be cut from spell {word_total}: "
            f"{_beginning(tokens)} against {_beginning(words)}."
        )
    found = np.searchsorted(ends, starts[:-1], side="right")
    return [min(int(word), len(words) - 1) for word in found]


def merge_subwords(
    weights: ArrayLike,
    source_words: Sequence[int],
    target_words: Sequence[int],
    shape: tuple[int, int],
) -> NDArray[np.float64]:
    """Weights between words, from weights between tokens.

    A word was looked at as much as its tokens together (sum over its columns), and looked where
    its tokens did on average (mean over its rows); so a row sums to the mean of the sums of its
    tokens' rows, to 1 if they did (Clark et al. 2019, arXiv:1906.04341, do the same).

    Args:
        weights: between tokens, (T, S).
        source_words: the word of every source token, S numbers, as from ``words_of_tokens``.
        target_words: the word of every target token, T numbers.
        shape: number of words of target and source, T' and S'.

    Returns:
        (T', S'); rows and columns of words without a token are 0.

    Raises:
        ValueError: the numbers of tokens or words do not fit.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != (len(target_words), len(source_words)):
        raise ValueError(
            f"weights of shape {weights.shape} do not belong to {len(target_words)} target and "
            f"{len(source_words)} source tokens; rows are target tokens."
        )
    rows = _membership(target_words, shape[0], "target")
    columns = _membership(source_words, shape[1], "source")
    tokens_per_word = np.maximum(rows.sum(axis=0), 1)
    return (rows / tokens_per_word).T @ weights @ columns


def hard_alignment(weights: ArrayLike) -> set[Link]:
    """One link for every target position: to the source position with the largest weight.

    Of equal weights the first counts. A row without a positive weight, which looked nowhere, gets
    no link.

    Args:
        weights: (T, S).
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.size == 0:
        return set()
    best = weights.argmax(axis=1)
    return {
        Link(int(best[target]), target)
        for target in range(len(weights))
        if weights[target, best[target]] > 0
    }


class AlignmentQuality(NamedTuple):
    """How well predicted links agree with true ones, each in [0, 1]; ``aer`` is an error."""

    aer: float
    precision: float
    recall: float


def alignment_error_rate(
    predicted: Sequence[Iterable[tuple[int, int]]],
    sure: Sequence[Iterable[tuple[int, int]]],
    possible: Sequence[Iterable[tuple[int, int]]] | None = None,
) -> AlignmentQuality:
    """Alignment error rate of a corpus (Och and Ney 2003), links counted over all of it.

        AER = 1 - (|A and S| + |A and P|) / (|A| + |S|)
        precision = |A and P| / |A|        recall = |A and S| / |S|

    Args:
        predicted: A, the links of every sentence pair.
        sure: S, links that an alignment must have.
        possible: P, links that it may have; sure ones are possible whether listed or not, and
            without this argument only they are.

    Returns:
        The three rates; 0 of 0 links counts as all of them, so nothing predicted where nothing is
        true has no error.

    Raises:
        ValueError: the corpora differ in their number of sentence pairs, or have none.
    """
    allowed = sure if possible is None else possible
    if not len(predicted) == len(sure) == len(allowed) or not len(predicted):
        raise ValueError(
            f"alignments of {len(predicted):,} sentence pairs are predicted, {len(sure):,} have "
            f"sure and {len(allowed):,} possible links; the three must be equal and not 0."
        )
    predictions = sures = predicted_sure = predicted_possible = 0
    for sentence, sentence_sure, sentence_allowed in zip(predicted, sure, allowed, strict=True):
        # Tuples, so that a Link equals the pair of numbers it is.
        links, must = set(map(tuple, sentence)), set(map(tuple, sentence_sure))
        may = must | set(map(tuple, sentence_allowed))
        predictions += len(links)
        sures += len(must)
        predicted_sure += len(links & must)
        predicted_possible += len(links & may)
    agreement = _ratio(predicted_sure + predicted_possible, predictions + sures)
    precision, recall = _ratio(predicted_possible, predictions), _ratio(predicted_sure, sures)
    return AlignmentQuality(1 - agreement, precision, recall)


def attention_entropy(weights: ArrayLike) -> float:
    """How spread the attention is: mean over target positions of ``-sum_j a_ij ln a_ij``.

    In nats: 0 where each row looks at one position, ln S where it looks at all S alike. Rows of
    zeros, such as padding, are left out; NaN if there are no others.

    Args:
        weights: rows of non-negative weights, (..., S).
    """
    weights = np.asarray(weights, dtype=np.float64)
    present = weights[weights.any(axis=-1)]
    if present.size == 0:
        return float("nan")
    logs = np.log(present, where=present > 0, out=np.zeros_like(present))
    return float(abs((present * logs).sum(axis=-1).mean()))  # no -0.0


def _spelled_length(text: str) -> int:
    return sum(not char.isspace() and char != WORD_START for char in text)


def _beginning(parts: Sequence[str]) -> str:
    text = " ".join(parts)
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _membership(words: Sequence[int], num_words: int, side: str) -> NDArray[np.float64]:
    """1 where a token (row) belongs to a word (column)."""
    if len(words) and not 0 <= min(words) <= max(words) < num_words:
        raise ValueError(
            f"{side} tokens belong to words {min(words)} to {max(words)}, "
            f"but the {side} sentence has {num_words} words, counted from 0."
        )
    members = np.zeros((len(words), num_words))
    members[np.arange(len(words)), list(words)] = 1
    return members


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
