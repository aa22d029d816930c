"""One side of a translation: how its sentences become ids, and ids become text again."""

from typing import Any, NamedTuple

from seq2seq.data.tokenizer import Tokenizer, tokenizer_from_state
from seq2seq.data.vocabulary import Vocabulary


class Codec(NamedTuple):
    """A language's tokenizer and vocabulary; all that translation needs to know of its text."""

    tokenizer: Tokenizer
    vocabulary: Vocabulary

    @property
    def language(self) -> str:
        return self.tokenizer.language

    def state(self) -> dict[str, Any]:
        """For JSON; the model of a SentencePiece tokenizer is kept apart, being bytes."""
        return {"tokenizer": self.tokenizer.state(), "vocabulary": self.vocabulary.token_list}


def codec_from_state(state: dict[str, Any], model: bytes | None) -> Codec:
    """What ``Codec.state`` describes."""
    return Codec(tokenizer_from_state(state["tokenizer"], model), Vocabulary(state["vocabulary"]))
