"""Split sentences into tokens, and join tokens to text that can be scored.

Tokenizers process one sentence at a time, in one language; ``vocabulary`` numbers tokens. torchtext
is only imported for its own tokenizers, so translating needs none of it.
"""

import functools
import importlib
import io
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import sentencepiece

from seq2seq.config.registry import Registry


def normalize(sentence: str, lowercase: bool = False) -> str:
    """Replace runs of white space by one blank and strip the ends, which sacreBLEU ignores."""
    # No Unicode normalization: "½" as "1⁄2" would no longer match the untouched reference.
    text = " ".join(sentence.split())
    return text.lower() if lowercase else text


class Tokenizer(ABC):
    """Splits sentences of one language into tokens and joins them; a blank sentence has none.

    Args:
        language: language code such as "de"; some tokenizers treat all languages alike.
        lowercase: convert to lower case before splitting. Translations are then in lower case,
            and their scores must not be compared with cased ones.
    """

    name: ClassVar[str]  # its key in TOKENIZERS
    needs_model: ClassVar[bool] = False  # whether it takes a ``model`` trained by SentencePiece
    model: bytes | None = None

    def __init__(self, language: str, lowercase: bool = False):
        self.language = language
        self.lowercase = lowercase

    @classmethod  # noqa: B027, most tokenizers have nothing to check
    def check_available(cls, language: str) -> None:
        """Raise ValueError if the tokenizer cannot work for the language on this machine."""

    def tokenize(self, sentence: str) -> list[str]:
        text = normalize(sentence, self.lowercase)
        return self._split(text) if text else []

    def tokenize_many(self, sentences: Iterable[str]) -> list[list[str]]:
        return [self.tokenize(sentence) for sentence in sentences]

    @abstractmethod
    def _split(self, text: str) -> list[str]:
        """Split a normalized text that is not empty."""

    @abstractmethod
    def detokenize(self, tokens: list[str]) -> str: ...

    def state(self) -> dict[str, Any]:
        """Return the arguments of ``build_tokenizer`` for JSON, without ``model``."""
        return {"name": self.name, "language": self.language, "lowercase": self.lowercase}


class WhitespaceTokenizer(Tokenizer):
    name = "whitespace"

    def _split(self, text: str) -> list[str]:
        return text.split()

    def detokenize(self, tokens: list[str]) -> str:
        return " ".join(tokens)


class CharacterTokenizer(Tokenizer):
    """Splits into code points, blanks included, so that joined tokens equal the sentence."""

    name = "characters"

    def tokenize(self, sentence: str) -> list[str]:
        text = "" if sentence.isspace() else sentence
        return self._split(text.lower() if self.lowercase else text)

    def _split(self, text: str) -> list[str]:
        return list(text)

    def detokenize(self, tokens: list[str]) -> str:
        return "".join(tokens)


class MosesTokenizer(Tokenizer):
    """Splits words and punctuation by the rules of Moses (Koehn et al. 2007), as in sacremoses.

    Nothing is escaped: ``'`` and ``&amp;`` stay as they are. Control characters are dropped.
    Languages without rules of their own use the general ones and English abbreviations.
    """

    name = "moses"

    def _split(self, text: str) -> list[str]:
        return _moses(self.language)[0].tokenize(text, escape=False)

    def detokenize(self, tokens: list[str]) -> str:
        return _moses(self.language)[1].detokenize(tokens, unescape=False)


# Cached here instead of on the tokenizer: Chinese takes 0.8 s to build, and with the lambda below a
# tokenizer could not be pickled.
@functools.cache
def _moses(language: str) -> tuple[Any, Any]:
    import sacremoses  # 0.4 s, which other tokenizers need not wait for

    tokenizer = sacremoses.MosesTokenizer(language)
    # At every full stop inside a sentence sacremoses builds these sets of 100,000 letters again:
    # 3 ms for a sentence with "U.S." in it, against 0.05 ms for one without.
    letters, lower = frozenset(tokenizer.IsAlpha), frozenset(tokenizer.IsLower)
    tokenizer.isanyalpha = lambda text: not letters.isdisjoint(text)
    tokenizer.islower = lower.issuperset
    return tokenizer, sacremoses.MosesDetokenizer(language)


class SentencePieceTokenizer(Tokenizer):
    """Splits into subwords (Kudo and Richardson 2018, arXiv:1808.06226).

    ``train_sentencepiece`` makes the model. A ``▁`` (U+2581) in the text is read as a blank,
    because pieces represent blanks by it. Characters that the model has never seen become tokens.
    """

    name = "sentencepiece"
    needs_model = True

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
        # By default it uses every core, including those of other processes of a distributed run.
        return self._processor.encode(texts, out_type=str, num_threads=1)

    def detokenize(self, tokens: list[str]) -> str:
        # Normalized because a model may generate several blanks in a row.
        return normalize(self._processor.decode(tokens))


def train_sentencepiece(
    sentences: Iterable[str],
    vocabulary_size: int,
    model_type: str = "bpe",
    lowercase: bool = False,
) -> bytes:
    """Train a SentencePiece model in memory; the same sentences give the same bytes.

    Args:
        sentences: text of one language, or of both for a joint model.
        vocabulary_size: number of pieces, including SentencePiece's own unknown piece.
        model_type: "bpe" (Sennrich et al. 2016, arXiv:1508.07909), "unigram" (arXiv:1804.10959).
        lowercase: as in the tokenizer that will use the model.

    Raises:
        ValueError: the text is empty, or does not allow this ``vocabulary_size``.
    """
    # Pieces never span blanks, so the words and their counts are all that training needs, and the
    # trainer, which keeps its input in memory, need not be given the whole text.
    counts = Counter(word for text in sentences for word in normalize(text, lowercase).split())
    written = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_counted_words(counts),
            input_format="tsv",
            model_writer=written,
            vocab_size=max(vocabulary_size, 1),  # below 1 its error does not say what is possible
            model_type=model_type,
            character_coverage=1.0,
            # The default maps "…" and "½" to other characters, which could not be restored.
            normalization_rule_name="identity",
            # The number of threads affects the rounding of unigram training and is written into
            # the model: with more than one, the model would depend on the machine.
            num_threads=1,
            # BOS and EOS are ids of our vocabulary; "<s>" in a text is a word.
            bos_id=-1,
            eos_id=-1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(_training_error(str(error), vocabulary_size)) from error
    return written.getvalue()


def _counted_words(counts: Counter[str]) -> Iterator[str]:
    """Yield lines of a word, a tab and the number of its occurrences."""
    for word, count in counts.items():
        # SentencePiece silently ignores lines of more than 4,192 bytes, and fails on very long
        # words. 1,000 characters are at most 4,000 bytes.
        for start in range(0, len(word), 1000):
            # In two lines, because a candidate for a unigram piece must occur in two lines.
            for share in (count - 1, 1) if count > 1 else (1,):
                yield f"{word[start : start + 1000]}\t{share}"


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


class TorchtextTokenizer(Tokenizer):
    """Base of the tokenizers of ``torchtext.data.get_tokenizer``.

    Most of them can only split: their tokens are joined by the rules of Moses, so the text is close
    to the sentence, but what they drop is lost.
    """

    package: ClassVar[str] = "torchtext"  # which must be installed

    def __init__(self, language: str, lowercase: bool = False):
        super().__init__(language, lowercase)
        self.check_available(language)

    @classmethod
    def check_available(cls, language: str) -> None:
        try:
            importlib.import_module(cls.package)
        except ImportError as error:
            raise ValueError(
                f"data.tokenizer.name={cls.name!r} needs the package {cls.package}, which is not "
                f"installed: run `pip install {cls.package}`, or set data.tokenizer.name=moses."
            ) from error

    def _split(self, text: str) -> list[str]:
        return _torchtext_splitter(self.name)(text)

    def detokenize(self, tokens: list[str]) -> str:
        return _moses(self.language)[1].detokenize(tokens, unescape=False)


@functools.cache
def _torchtext_splitter(name: str, **options: str) -> Callable[[str], list[str]]:
    from torchtext.data.utils import get_tokenizer

    return get_tokenizer(name, **options)


class BasicEnglishTokenizer(TorchtextTokenizer):
    """Splits English only, converts to lower case, and drops ``"``, ``:`` and ``;``."""

    name = "basic_english"

    @classmethod
    def check_available(cls, language: str) -> None:
        super().check_available(language)
        if language != "en":
            raise ValueError(
                f"data.tokenizer.name='basic_english' only splits 'en', not {language!r}; set "
                f"data.tokenizer.name=moses."
            )


class ToktokTokenizer(TorchtextTokenizer):
    name = "toktok"
    package = "nltk"

    def _split(self, text: str) -> list[str]:
        # toktok escapes these two characters and no others.
        tokens = super()._split(text)
        return [token.replace("&#124;", "|").replace("&amp;", "&") for token in tokens]


class SpacyTokenizer(TorchtextTokenizer):
    name = "spacy"
    package = "spacy"

    @classmethod
    def check_available(cls, language: str) -> None:
        super().check_available(language)
        try:
            _torchtext_splitter(cls.name, language=cls._model_name(language))
        except OSError as error:
            raise ValueError(
                f"data.tokenizer.name='spacy' needs the model {cls._model_name(language)}, which "
                f"is not installed: run `python -m spacy download {cls._model_name(language)}`, or "
                f"set data.tokenizer.name=moses."
            ) from error

    def _split(self, text: str) -> list[str]:
        return _torchtext_splitter(self.name, language=self._model_name(self.language))(text)

    @staticmethod
    def _model_name(language: str) -> str:
        return f"{language}_core_{'web' if language in ('en', 'zh') else 'news'}_sm"


class RevtokTokenizer(TorchtextTokenizer):
    """Keeps blanks as parts of tokens, so that joined tokens equal the sentence."""

    name = "revtok"
    package = "revtok"

    def detokenize(self, tokens: list[str]) -> str:
        return importlib.import_module("revtok").detokenize(tokens).strip()


TOKENIZERS: Registry[type[Tokenizer]] = Registry(
    "data.tokenizer.name",
    {
        tokenizer.name: tokenizer
        for tokenizer in (
            MosesTokenizer,
            SentencePieceTokenizer,
            WhitespaceTokenizer,
            CharacterTokenizer,
            BasicEnglishTokenizer,
            ToktokTokenizer,
            SpacyTokenizer,
            RevtokTokenizer,
        )
    },
)


def check_tokenizer(name: str, language: str) -> None:
    """Check ``data.tokenizer.name`` before any text is read.

    Raises:
        ValueError: there is no such tokenizer, it does not support the language, or a package
            or model that it needs is not installed.
    """
    TOKENIZERS.get_entry(name).check_available(language)


def build_tokenizer(
    name: str, language: str, lowercase: bool = False, model: bytes | None = None
) -> Tokenizer:
    """Build the tokenizer that ``data.tokenizer.name`` selects; ``model`` is SentencePiece's.

    Raises:
        ValueError: as in ``check_tokenizer``; or the SentencePiece model is missing or damaged.
    """
    tokenizer = TOKENIZERS.get_entry(name)
    arguments = {"model": model} if tokenizer.needs_model else {}
    return tokenizer(language, lowercase, **arguments)


def tokenizer_from_state(state: dict[str, Any], model: bytes | None) -> Tokenizer:
    """Rebuild a tokenizer from its ``state()`` and ``model``."""
    return build_tokenizer(state["name"], state["language"], state["lowercase"], model)
