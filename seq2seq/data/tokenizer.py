"""Sentences become tokens, and tokens become text that is fit for scoring.

One sentence at a time, in one language; what number a token has is ``vocabulary``'s work. torchtext
is imported only where one of its own tokenizers is asked for: to translate needs none of it.
"""

import functools
import importlib
import io
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import sentencepiece


def normalize(sentence: str, lowercase: bool = False) -> str:
    """Each run of whitespace as one blank, none at the ends: sacreBLEU does not see this."""
    # No Unicode normal form: "½" as "1⁄2" would no longer match the untouched reference.
    text = " ".join(sentence.split())
    return text.lower() if lowercase else text


class Tokenizer(ABC):
    """Splits sentences of one language and joins them again; a blank one has no tokens.

    Args:
        language: its code, such as "de"; some tokenizers treat all languages alike.
        lowercase: fold the case before splitting. Translations are then in lower case, and
            their scores must not be compared with cased ones.
    """

    name: str  # its key in TOKENIZERS
    model: bytes | None = None  # of SentencePiece only: what training gave

    def __init__(self, language: str, lowercase: bool = False):
        self.language = language
        self.lowercase = lowercase

    def tokenize(self, sentence: str) -> list[str]:
        text = normalize(sentence, self.lowercase)
        return self._split(text) if text else []

    def tokenize_many(self, sentences: Iterable[str]) -> list[list[str]]:
        return [self.tokenize(sentence) for sentence in sentences]

    @abstractmethod
    def _split(self, text: str) -> list[str]:
        """Tokens of a normalised text that is not empty."""

    @abstractmethod
    def detokenize(self, tokens: list[str]) -> str: ...

    def state(self) -> dict[str, Any]:
        """What ``tokenizer_from_state`` needs beside ``model``; JSON can hold it."""
        return {"name": self.name, "language": self.language, "lowercase": self.lowercase}


class WhitespaceTokenizer(Tokenizer):
    name = "whitespace"

    def _split(self, text: str) -> list[str]:
        return text.split()

    def detokenize(self, tokens: list[str]) -> str:
        return " ".join(tokens)


class CharacterTokenizer(Tokenizer):
    """Single code points, every blank among them: joined, they are exactly the sentence."""

    name = "characters"

    def tokenize(self, sentence: str) -> list[str]:
        text = "" if sentence.isspace() else sentence
        return self._split(text.lower() if self.lowercase else text)

    def _split(self, text: str) -> list[str]:
        return list(text)

    def detokenize(self, tokens: list[str]) -> str:
        return "".join(tokens)


class MosesTokenizer(Tokenizer):
    """Words and punctuation by the rules of Moses (Koehn et al. 2007), ported by sacremoses.

    Nothing is escaped: ``'`` and ``&amp;`` stay. Control characters are dropped. Languages
    without rules of their own get the general ones and English abbreviations.
    """

    name = "moses"

    def _split(self, text: str) -> list[str]:
        return _moses(self.language)[0].tokenize(text, escape=False)

    def detokenize(self, tokens: list[str]) -> str:
        return _moses(self.language)[1].detokenize(tokens, unescape=False)


# Cached here, not kept on the tokenizer: Chinese takes 0.8 s to build, and the lambda below
# would bar a tokenizer from going to another process.
@functools.cache
def _moses(language: str) -> tuple[Any, Any]:
    import sacremoses  # 0.4 s, which other tokenizers need not wait for

    tokenizer = sacremoses.MosesTokenizer(language)
    # sacremoses builds these sets of 100,000 letters anew at every inner full stop: 3 ms for a
    # sentence with "U.S." in it, against 0.05 ms for one without.
    letters, lower = frozenset(tokenizer.IsAlpha), frozenset(tokenizer.IsLower)
    tokenizer.isanyalpha = lambda text: not letters.isdisjoint(text)
    tokenizer.islower = lower.issuperset
    return tokenizer, sacremoses.MosesDetokenizer(language)


class SentencePieceTokenizer(Tokenizer):
    """Subwords (Kudo and Richardson 2018, arXiv:1808.06226), from ``train_sentencepiece``.

    A ``▁`` (U+2581) in the text reads as a blank, which is written so inside pieces. Characters
    that the model has never seen become tokens as they are.
    """

    name = "sentencepiece"

    def __init__(self, language: str, lowercase: bool = False, model: bytes | None = None):
        super().__init__(language, lowercase)
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model or b"")
        except RuntimeError as error:
            raise ValueError(
                "data.tokenizer.name='sentencepiece' has no usable model; use a whole checkpoint."
            ) from error

    def _split(self, text: str) -> list[str]:
        return self._processor.encode(text, out_type=str)

    def tokenize_many(self, sentences: Iterable[str]) -> list[list[str]]:
        texts = [normalize(sentence, self.lowercase) for sentence in sentences]
        # By itself it takes every core, also those of the other processes of a distributed run.
        return self._processor.encode(texts, out_type=str, num_threads=1)

    def detokenize(self, tokens: list[str]) -> str:
        # Normalised because a model may write several blanks in a row.
        return normalize(self._processor.decode(tokens))


def train_sentencepiece(
    sentences: Iterable[str],
    vocabulary_size: int,
    model_type: str = "bpe",
    lowercase: bool = False,
    character_coverage: float = 1.0,
) -> bytes:
    """Learn subwords, in memory; the same sentences (of one or both sides) give the same bytes.

    Args:
        vocabulary_size: pieces to learn, SentencePiece's own unknown piece among them.
        model_type: "bpe" (Sennrich et al. 2016, arXiv:1508.07909), "unigram" (arXiv:1804.10959).
        lowercase: as in the tokenizer that will use the model.
        character_coverage: share of the text's characters that become pieces.

    Raises:
        ValueError: there is no text, or it does not allow for this ``vocabulary_size``.
    """
    if model_type not in ("bpe", "unigram"):
        raise ValueError(f"data.tokenizer.{model_type=} must be 'bpe' or 'unigram'.")
    if not 0.98 <= character_coverage <= 1:
        raise ValueError(f"data.tokenizer.{character_coverage=} must lie in [0.98, 1].")
    # Pieces never reach across blanks, so words and their counts say as much as the text, all of
    # which the trainer would keep in memory.
    counts = Counter(word for text in sentences for word in normalize(text, lowercase).split())
    written = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_counted_words(counts),
            input_format="tsv",
            model_writer=written,
            vocab_size=max(vocabulary_size, 1),  # below 1 it would not say what is possible
            model_type=model_type,
            character_coverage=character_coverage,
            # The default folds "…" and "½" into others: detokenised text could not have them.
            normalization_rule_name="identity",
            # Threads decide how the sums of unigram training are rounded, and their number is
            # written into the model: with more than one it would depend on the machine.
            num_threads=1,
            # Begin and end are ids of our vocabulary; "<s>" in a text is a word.
            bos_id=-1,
            eos_id=-1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(_training_error(str(error), vocabulary_size)) from error
    return written.getvalue()


def _counted_words(counts: Counter[str]) -> Iterator[str]:
    """Lines of a word, a tab and a count, which say how often every word occurs."""
    for word, count in counts.items():
        # SentencePiece passes over lines of more than 4,192 bytes without a word, and fails on
        # endless words. 1,000 characters are 4,000 bytes at most.
        for start in range(0, len(word), 1000):
            # In two lines, because a candidate for a unigram piece has to be in two of them.
            for part in (count - 1, 1) if count > 1 else (1,):
                yield f"{word[start : start + 1000]}\t{part}"


def _training_error(message: str, vocabulary_size: int) -> str:
    key = "data.tokenizer.vocabulary_size"
    if largest := re.search(r"too high .*<= (\d+)", message):
        problem = f"is more than the training text has pieces; set {key}={largest[1]} or less"
    elif smallest := re.search(r"required_chars\D*\d+ vs (\d+)", message):
        problem = f"is less than the training text has characters; set {key}={smallest[1]} or more"
    elif "sentences_.empty" in message or "all_chars_count" in message:
        problem = "finds only blank sentences to learn from; check the training files"
    else:
        problem = f"fails with {' '.join(message.split())!r}; set data.tokenizer.name=moses"
    return f"{key}={vocabulary_size} {problem}."


# What these tokenizers of torchtext need beside it.
PACKAGES = {"toktok": "nltk", "spacy": "spacy", "revtok": "revtok", "subword": "revtok"}


class TorchtextTokenizer(Tokenizer):
    """A tokenizer of ``torchtext.data.get_tokenizer``: basic_english or a key of PACKAGES.

    revtok's tokens hold the blanks beside them and give the sentence back; subword is revtok
    with capitals marked. The others only split: joined by Moses' rules their text is close to
    the sentence, but what they drop (basic English: capitals and ``" : ;``) is lost.
    """

    def __init__(self, name: str, language: str, lowercase: bool = False):
        super().__init__(language, lowercase)
        self.name = name
        _torchtext_splitter(name, language)  # so that what is missing is missed now

    def _split(self, text: str) -> list[str]:
        tokens = _torchtext_splitter(self.name, self.language)(text)
        if self.name == "toktok":  # which escapes these two, and nothing else
            return [token.replace("&#124;", "|").replace("&amp;", "&") for token in tokens]
        return tokens

    def detokenize(self, tokens: list[str]) -> str:
        if PACKAGES.get(self.name) == "revtok":
            return importlib.import_module("revtok").detokenize(tokens).strip()
        return _moses(self.language)[1].detokenize(tokens, unescape=False)


@functools.cache
def _torchtext_splitter(name: str, language: str) -> Callable[[str], list[str]]:
    package = PACKAGES.get(name, "torchtext")
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise ValueError(
            f"data.tokenizer.{name=} needs the package {package}, which is not here: run "
            f"`pip install {package}`, or set data.tokenizer.name=moses."
        ) from error
    if name == "basic_english" and language != "en":
        raise ValueError(f"data.tokenizer.{name=} splits only 'en', not {language!r}; use moses.")
    from torchtext.data.utils import get_tokenizer

    if name != "spacy":
        return get_tokenizer(name)
    model = f"{language}_core_{'web' if language in ('en', 'zh') else 'news'}_sm"
    try:
        return get_tokenizer(name, language=model)
    except OSError as error:
        raise ValueError(
            f"data.tokenizer.{name=} needs the model {model}, which is not here: run "
            f"`python -m spacy download {model}`, or set data.tokenizer.name=moses."
        ) from error


TOKENIZERS: dict[str, Callable[..., Tokenizer]] = {
    "moses": MosesTokenizer,
    "sentencepiece": SentencePieceTokenizer,
    "whitespace": WhitespaceTokenizer,
    "characters": CharacterTokenizer,
    **{name: functools.partial(TorchtextTokenizer, name) for name in ("basic_english", *PACKAGES)},
}


def build_tokenizer(
    name: str, language: str, lowercase: bool = False, model: bytes | None = None
) -> Tokenizer:
    """The tokenizer that ``data.tokenizer.name`` asks for; ``model`` is SentencePiece's."""
    if name not in TOKENIZERS:
        raise ValueError(f"data.tokenizer.{name=} is unknown; choose one of {sorted(TOKENIZERS)}.")
    trained = [model] if name == "sentencepiece" else []
    return TOKENIZERS[name](language, lowercase, *trained)


def tokenizer_from_state(state: dict[str, Any], model: bytes | None) -> Tokenizer:
    """The tokenizer whose ``state()`` and ``model`` these are."""
    return build_tokenizer(state["name"], state["language"], state["lowercase"], model)
