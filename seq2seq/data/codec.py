"""Text of one language to token ids, and ids back to text."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from seq2seq.data.tokenizer import Tokenizer, tokenizer_from_state
from seq2seq.data.vocabulary import BOS, EOS, PAD, Vocabulary

CONTROL_IDS = frozenset((PAD, BOS, EOS))


class Encoded(NamedTuple):
    """A tokenized sentence, without BOS and EOS; a blank sentence has no tokens."""

    tokens: list[str]
    ids: list[int]  # of the same length


class Codec(NamedTuple):
    """Tokenizer and vocabulary of one language: the only way from text to ids and back."""

    tokenizer: Tokenizer
    vocabulary: Vocabulary

    @property
    def language(self) -> str:
        return self.tokenizer.language

    def encode(self, sentences: Iterable[str]) -> list[Encoded]:
        """Return tokens and ids of each sentence; tokens outside the vocabulary get the id UNK."""
        return [
            Encoded(tokens, self.vocabulary.ids(tokens))
            for tokens in self.tokenizer.tokenize_many(sentences)
        ]

    def decode(self, sentence: Sequence[int] | Sequence[str]) -> str:
        """Return the detokenized text of one sentence, given as ids or as tokens.

        Ids PAD, BOS and EOS are left out; tokens are taken as they are, because a text may
        contain the spelling of a control token.
        """
        tokens = [
            self.vocabulary.tokens([item])[0] if isinstance(item, int) else item
            for item in sentence
            if item not in CONTROL_IDS
        ]
        return self.tokenizer.detokenize(tokens)

    def state(self) -> dict[str, Any]:
        """Return a description for JSON, without the bytes of a SentencePiece model."""
        return {"tokenizer": self.tokenizer.state(), "vocabulary": self.vocabulary.token_list}


def codec_from_state(state: dict[str, Any], model: bytes | None) -> Codec:
    """Build the codec that ``Codec.state`` described; ``model`` is its SentencePiece model."""
    return Codec(tokenizer_from_state(state["tokenizer"], model), Vocabulary(state["vocabulary"]))
