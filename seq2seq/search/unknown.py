"""Tokens that a model has no word for."""

import logging
from collections import Counter
from collections.abc import Iterable

from seq2seq.data.vocabulary import Vocabulary
from seq2seq.device import counted

KEPT = 10_000  # different tokens that are counted, so that a long text needs no more memory
SHOWN = 5

log = logging.getLogger(__name__)


class UnknownTokens:
    """Counts the tokens of one side that its vocabulary does not hold, which are read as <unk>."""

    def __init__(self, side: str, vocabulary: Vocabulary):
        """``side``: source or target."""
        self.side, self.vocabulary = side, vocabulary
        self.total = 0
        self._counts: Counter[str] = Counter()

    def count(self, tokens: Iterable[str]) -> None:
        """Those among the tokens of a text, without end of sentence."""
        for token in tokens:
            if token not in self.vocabulary:
                self.total += 1
                if token in self._counts or len(self._counts) < KEPT:
                    self._counts[token] += 1

    def report(self) -> None:
        """Log how many there were, and the commonest of those that came first."""
        if self.total:
            shown = ", ".join(repr(token) for token, _ in self._counts.most_common(SHOWN))
            more = ", ..." if len(self._counts) > SHOWN else ""
            number = counted(self.total, f"{self.side} token")
            log.warning("%s unknown to the model, read as <unk>: %s%s", number, shown, more)
