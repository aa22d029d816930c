"""Tokens become ids, and ids become tokens.

Knows nothing of how a sentence is split. torchtext is needed to build a vocabulary, not to use
one: a checkpoint holds the list of its tokens.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import chain

import numpy as np
from numpy.typing import NDArray

PAD, UNK, BOS, EOS = range(4)
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")


class Vocabulary:
    """Two directions between the tokens of one side and their ids.

    Args:
        tokens: every token, in the order of the ids; the first four are ``SPECIALS``.

    Raises:
        ValueError: the special tokens are not in front, or a token occurs twice.
    """

    def __init__(self, tokens: Iterable[str]):
        self._tokens = list(tokens)
        if tuple(self._tokens[: len(SPECIALS)]) != SPECIALS:
            raise ValueError(
                f"A vocabulary begins with {list(SPECIALS)}, but this one begins with "
                f"{self._tokens[: len(SPECIALS)]}. Build it with build_vocabulary."
            )
        if len(set(self._tokens)) < len(self._tokens):
            token, count = Counter(self._tokens).most_common(1)[0]
            raise ValueError(
                f"The token {token!r} occurs {count} times in this vocabulary, so that its id is "
                f"not certain. Keep one of them, or build the vocabulary with build_vocabulary."
            )
        # Without the special tokens: whoever types "</s>" in a sentence writes an unknown word
        # and does not end the sentence.
        ordinary = self._tokens[len(SPECIALS) :]
        self._ids = {token: id for id, token in enumerate(ordinary, start=len(SPECIALS))}

    def __len__(self) -> int:
        return len(self._tokens)

    def __contains__(self, token: str) -> bool:
        """Whether a token of a text has an id of its own; a special token's spelling has not."""
        return token in self._ids

    @property
    def token_list(self) -> list[str]:
        """All tokens in the order of their ids: ``Vocabulary(token_list)`` is the same again."""
        return list(self._tokens)

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """Ids of a text's tokens, without BOS and EOS; never another control id than UNK."""
        return [self._ids.get(token, UNK) for token in tokens]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The token of every id, control ids included."""
        ids = list(ids)
        # A negative index would count from the end and name some other token.
        if ids and min(ids) < 0:
            raise IndexError(f"Token ids are at least 0, not {min(ids)}.")
        return [self._tokens[id] for id in ids]


class Numbering:
    """Numbers tokens in the order in which they first come, and counts them on the way."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__
        self._counts = np.zeros(0, dtype=np.int64)

    def number(self, sentences: list[list[str]]) -> NDArray[np.int32]:
        """The number of every token of these sentences, one after another."""
        tokens = chain.from_iterable(sentences)
        numbers = np.fromiter(map(self._numbers.__getitem__, tokens), dtype=np.int32)
        counts = np.bincount(numbers, minlength=len(self._numbers))
        counts[: len(self._counts)] += self._counts
        self._counts = counts
        return numbers

    def counts(self) -> Counter[str]:
        """How often each token has come, in the order of the numbers."""
        return Counter(dict(zip(self._numbers, self._counts.tolist(), strict=True)))


def build_vocabulary(
    counts: Counter[str], max_size: int | None = None, min_frequency: int = 1
) -> Vocabulary:
    """The most frequent tokens, equally frequent ones in alphabetical order.

    The order depends on ``counts`` alone, not on the order in which they were counted.

    Args:
        counts: how often each token occurs in the training text.
        max_size: tokens to keep at most, the four special ones not counted; None keeps all.
        min_frequency: occurrences that a token needs to be kept.

    Raises:
        ValueError: a bound is below 1, or no token is left.
    """
    if max_size is not None and max_size < 1:
        raise ValueError(
            f"data.vocabulary.max_size={max_size} must be at least 1, or null for no bound; the "
            f"{len(SPECIALS)} special tokens come on top."
        )
    if min_frequency < 1:
        raise ValueError(
            f"data.vocabulary.min_frequency={min_frequency} must be at least 1, "
            f"which keeps every token."
        )
    from torchtext.vocab import Vocab  # 1.6 s, and nothing else here needs it

    # Vocab leaves out of the counts what is spelled like one of the specials.
    built = Vocab(counts, max_size=max_size, min_freq=min_frequency, specials=list(SPECIALS))
    if len(built.itos) == len(SPECIALS):
        raise ValueError(
            f"data.vocabulary.min_frequency={min_frequency} leaves none of the {len(counts)} "
            f"different tokens of the training text. Lower it, or check the training files."
        )
    return Vocabulary(built.itos)


def unknown_rate(counts: Counter[str], vocabulary: Vocabulary) -> float:
    """Share of running tokens that the vocabulary does not hold, in [0, 1]; 0 without tokens."""
    unknown = sum(count for token, count in counts.items() if token not in vocabulary)
    return unknown / max(counts.total(), 1)
