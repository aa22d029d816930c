"""Word alignments: their text format, their extraction from attention weights, their error rate.

Weights are arrays (T, S): row i is the attention of the decoder when it generated target token i.
A link (s, t) states that source word s and target word t translate each other, counted from 0.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

WORD_START = "▁"  # how SentencePiece marks a space


class Link(NamedTuple):
    """Positions of two words that translate each other, counted from 0."""

    source: int
    target: int


def parse_pharaoh(line: str, where: str, sizes: tuple[int, int] | None = None) -> set[Link]:
    """Parse the links of one sentence pair, written as ``0-0 1-2 2-1`` (source-target).

    Args:
        line: a line of an alignment file; an empty line has no links.
        where: file and line number, for error messages.
        sizes: numbers of source and target words; if given, links must not point beyond them.

    Raises:
        ValueError: an entry is not a link, or points beyond the sentences, as in a file that
            counts from 1.
    """
    links = set()
    for entry in line.split():
        match = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", entry)
        if match is None:
            raise ValueError(
                f"{where}: {entry[:40]!r} is not an alignment link; write SOURCE-TARGET, two word "
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
    """Write links sorted by source, then target position; the inverse of ``parse_pharaoh``."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def words_of_tokens(tokens: Sequence[str], words: Sequence[str]) -> list[int]:
    """Map each token of the model to the word that contains its first character.

    Tokens and words segment the same text, so counting characters pairs them for every tokenizer:
    SentencePiece pieces, Moses tokens, single characters. Spaces and the space mark of
    SentencePiece do not count; a token of nothing else belongs to the next word, or to the last
    one at the end. Special tokens (EOS) must be left out, and unknown words must be spelled out.

    Returns:
        An index into ``words`` for every token.

    Raises:
        ValueError: tokens and words have different numbers of characters.
    """
    starts = np.cumsum([0, *map(_spelled_length, tokens)])
    ends = np.cumsum([_spelled_length(word) for word in words])
    token_total, word_total = int(starts[-1]), int(ends[-1]) if len(words) else 0
    if token_total != word_total or (len(tokens) and not len(words)):
        raise ValueError(
            f"{len(tokens)} tokens spell {token_total} characters, but the {len(words)} words "
            f"they should segment spell {word_total}: "
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
    """Compute attention weights between words from weights between tokens.

    The weight of a source word is the sum over its tokens, and the row of a target word the mean
    over its tokens, as in Clark et al. 2019, arXiv:1906.04341. Rows that sum to 1 still do.

    Args:
        weights: attention between tokens, (T, S).
        source_words: the word of every source token, S indices, as from ``words_of_tokens``.
        target_words: the word of every target token, T indices.
        shape: numbers of target and source words, T' and S'.

    Returns:
        (T', S'); rows and columns of words without a token are 0.

    Raises:
        ValueError: the numbers of tokens or words do not match.
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
    """Link every target position to the source position with the largest weight.

    Of equal weights the first is linked; a row without a positive weight gets no link.

    Args:
        weights: attention weights, (T, S).
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
    """Agreement of predicted with true links: rates in [0, 1], of which ``aer`` is an error."""

    aer: float
    precision: float
    recall: float


def alignment_error_rate(
    predicted: Sequence[Iterable[tuple[int, int]]],
    sure: Sequence[Iterable[tuple[int, int]]],
    possible: Sequence[Iterable[tuple[int, int]]] | None = None,
) -> AlignmentQuality:
    """Compute the alignment error rate (Och and Ney 2003), counted over the whole corpus.

        AER = 1 - (|A and S| + |A and P|) / (|A| + |S|)
        precision = |A and P| / |A|        recall = |A and S| / |S|

    Args:
        predicted: A, predicted links of every sentence pair.
        sure: S, links that an alignment must contain.
        possible: P, links that it may contain; sure links are always possible, and by default
            they are the only ones.

    Returns:
        The three rates; 0 of 0 links counts as 1, so predicting none where none is true is no
        error.

    Raises:
        ValueError: the arguments differ in their numbers of sentence pairs, or are empty.
    """
    allowed = sure if possible is None else possible
    if not len(predicted) == len(sure) == len(allowed) or not len(predicted):
        raise ValueError(
            f"alignments of {len(predicted):,} sentence pairs are predicted, {len(sure):,} have "
            f"sure and {len(allowed):,} possible links; the three must be equal and not 0."
        )
    predictions = sures = predicted_sure = predicted_possible = 0
    for sentence, sentence_sure, sentence_allowed in zip(predicted, sure, allowed, strict=True):
        # As tuples, since links may be given as lists.
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
    """Compute the entropy of attention: the mean over target positions of -sum_j a_ij ln a_ij.

    In nats: 0 if each row attends to one position, ln S if it attends to all S equally. Rows of
    zeros, such as padding, are ignored; the result is NaN if there are no other rows.

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


def _beginning(words: Sequence[str]) -> str:
    text = " ".join(words)
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _membership(words: Sequence[int], num_words: int, side: str) -> NDArray[np.float64]:
    """Return a matrix with 1 where a token (row) belongs to a word (column)."""
    if len(words) and not 0 <= min(words) <= max(words) < num_words:
        raise ValueError(
            f"{side} tokens belong to words {min(words)} to {max(words)}, "
            f"but the {side} sentence has {num_words} words, counted from 0."
        )
    members = np.zeros((len(words), num_words))
    members[np.arange(len(words)), list(words)] = 1
    return members


def _ratio(count: int, total: int) -> float:
    return count / total if total else 1.0
