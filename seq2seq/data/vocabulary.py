"""Map tokens to ids and back.

torchtext is needed to build a vocabulary, but not to use one: a checkpoint holds the list of its
tokens.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import chain

import numpy as np
from numpy.typing import NDArray

PAD, UNK, BOS, EOS = range(4)
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")

MAX_COUNTED = 10_000  # different unknown tokens, so that memory does not grow with the text
NUM_EXAMPLES = 5

log = logging.getLogger(__name__)


class Vocabulary:
    """Tokens of one language, numbered by their position in a list.

    Args:
        tokens: all tokens in the order of their ids; the first four are ``SPECIALS``.

    Raises:
        ValueError: the list does not begin with the special tokens, or a token occurs twice.
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
                f"The token {token!r} occurs {count} times in this vocabulary, so its id is "
                f"ambiguous. Keep one of them, or build the vocabulary with build_vocabulary."
            )
        # Special tokens are excluded: "</s>" typed in a sentence is an unknown word and does not
        # end the sentence.
        ordinary = self._tokens[len(SPECIALS) :]
        self._ids = {token: id for id, token in enumerate(ordinary, start=len(SPECIALS))}

    def __len__(self) -> int:
        return len(self._tokens)

    def __contains__(self, token: str) -> bool:
        """Return whether a token of a text has its own id; the text of a special token has none."""
        return token in self._ids

    @property
    def token_list(self) -> list[str]:
        """All tokens in the order of their ids; ``Vocabulary(token_list)`` is an equal copy."""
        return list(self._tokens)

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """Return the ids of tokens of a text, without BOS and EOS; the only special id is UNK."""
        return [self._ids.get(token, UNK) for token in tokens]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of ids, special ids included."""
        ids = list(ids)
        # A negative index would count from the end and give a wrong token.
        if ids and min(ids) < 0:
            raise IndexError(f"Token ids must be at least 0, not {min(ids)}.")
        return [self._tokens[id] for id in ids]


class Numbering:
    """Numbers tokens in the order of their first occurrence, and counts them."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__
        self._counts = np.zeros(0, dtype=np.int64)

    def number(self, sentences: list[list[str]]) -> NDArray[np.int32]:
        """Return the numbers of all tokens of these sentences, concatenated."""
        tokens = chain.from_iterable(sentences)
        numbers = np.fromiter(map(self._numbers.__getitem__, tokens), dtype=np.int32)
        counts = np.bincount(numbers, minlength=len(self._numbers))
        counts[: len(self._counts)] += self._counts
        self._counts = counts
        return numbers

    def counts(self) -> Counter[str]:
        """Return the count of each token, in the order of the numbers."""
        return Counter(dict(zip(self._numbers, self._counts.tolist(), strict=True)))


def build_vocabulary(
    counts: Counter[str], max_size: int | None = None, min_frequency: int = 1
) -> Vocabulary:
    """Build the vocabulary of the most frequent tokens, with ties in alphabetical order.

    The order depends only on ``counts``, not on the order in which tokens were counted.

    Args:
        counts: occurrences of each token in the training text.
        max_size: maximum number of tokens, excluding the four special ones; None keeps all.
        min_frequency: minimum number of occurrences of a token.

    Raises:
        ValueError: a limit is below 1, or no token is left.
    """
    if max_size is not None and max_size < 1:
        raise ValueError(
            f"data.vocabulary.max_size={max_size} must be at least 1, or null for no limit; the "
            f"{len(SPECIALS)} special tokens are not counted."
        )
    if min_frequency < 1:
        raise ValueError(
            f"data.vocabulary.min_frequency={min_frequency} must be at least 1, "
            f"which keeps every token."
        )
    from torchtext.vocab import Vocab  # 1.6 s, and nothing else here needs it

    # Vocab ignores tokens that are spelled like a special token.
    built = Vocab(counts, max_size=max_size, min_freq=min_frequency, specials=list(SPECIALS))
    if len(built.itos) == len(SPECIALS):
        raise ValueError(
            f"data.vocabulary.min_frequency={min_frequency} keeps none of the {len(counts)} "
            f"different tokens of the training text. Lower it, or check the training files."
        )
    return Vocabulary(built.itos)


def unknown_rate(counts: Counter[str], vocabulary: Vocabulary) -> float:
    """Return the fraction of tokens outside the vocabulary, in [0, 1]; 0 without tokens."""
    unknown = sum(count for token, count in counts.items() if token not in vocabulary)
    return unknown / max(counts.total(), 1)


class UnknownTokenCounter:
    """Counts the tokens of a text that a vocabulary does not contain, which are read as <unk>."""

    def __init__(self, language: str, vocabulary: Vocabulary):
        """``language``: ``source`` or ``target``, for the report."""
        self.language, self.vocabulary = language, vocabulary
        self.total = 0
        self._counts: Counter[str] = Counter()

    def count(self, tokens: Iterable[str]) -> None:
        """Count the unknown tokens of a text, given without EOS."""
        for token in tokens:
            if token not in self.vocabulary:
                self.total += 1
                if token in self._counts or len(self._counts) < MAX_COUNTED:
                    self._counts[token] += 1

    def report(self) -> None:
        """Log the number of unknown tokens and the most frequent of those seen first."""
        if self.total:
            examples = ", ".join(repr(token) for token, _ in self._counts.most_common(NUM_EXAMPLES))
            more = ", ..." if len(self._counts) > NUM_EXAMPLES else ""
            tokens = f"{self.total} {self.language} token" + "s" * (self.total != 1)
            log.warning("%s unknown to the model, read as <unk>: %s%s", tokens, examples, more)
