"""Settings of a corpus. ``conf/`` only gives values."""

from dataclasses import dataclass

from seq2seq.config.schema import MISSING, Form, group, setting

# Of a folder, so that it needs no quotes in an override and leads nowhere else.
NAME = Form(r"\w[\w.-]{0,99}", "a name of up to 100 letters, digits, . _ and -, no path")
LANGUAGE = Form(r"[A-Za-z][\w-]{0,29}", "the code of a language, such as de or zh-Hans")


@dataclass
class SplitConfig:
    """Where one part of a corpus lies, below ``data.root``; ``.gz`` is read as it is."""

    source: str = setting(
        MISSING, "file of source sentences, or a .tsv file with a header", decides="corpus"
    )
    target: str = setting(
        MISSING, "file of target sentences, or the same .tsv file", decides="corpus"
    )
    alignment: str | None = setting(
        None, "file of true word alignments, Pharaoh format", decides="corpus"
    )


@dataclass
class TokenizerConfig:
    name: str = setting(
        "moses",
        "how sentences are split",
        decides="text",
        choices=(
            "moses",
            "sentencepiece",
            "whitespace",
            "characters",
            "basic_english",
            "toktok",
            "spacy",
            "revtok",
        ),
    )
    lowercase: bool = setting(
        False, "lowercase first; scores are then not comparable to others", decides="text"
    )
    model_type: str = setting(
        "bpe", "kind of SentencePiece model", decides="text", choices=("bpe", "unigram")
    )
    vocabulary_size: int = setting(8000, "SentencePiece pieces", decides="text", at_least=10)
    joint: bool = setting(True, "one SentencePiece model for both languages", decides="text")


@dataclass
class VocabularyConfig:
    max_size: int | None = setting(
        None, "most tokens kept a side, special ones not counted", decides="text", at_least=1
    )
    min_frequency: int = setting(
        1, "occurrences below which a token is unknown", decides="text", at_least=1
    )
    joint: bool = setting(False, "one vocabulary for both languages", decides="text")


@dataclass
class DataConfig:
    name: str = setting(
        MISSING,
        "names run folders; `multi30k` also says what to download",
        decides="corpus",
        form=NAME,
    )
    root: str = setting(MISSING, "folder of the files", decides="nothing")
    url: str | None = setting(None, "mirror to download a named corpus from", decides="nothing")
    prepared: str = setting(
        MISSING, "folder in which token ids are kept for the next run", decides="nothing"
    )
    source_language: str = setting(
        MISSING, "code of the language translated from", decides="text", form=LANGUAGE
    )
    target_language: str = setting(
        MISSING, "code of the language translated into", decides="text", form=LANGUAGE
    )
    source_column: str = setting("source", "column of a .tsv file", decides="text")
    target_column: str = setting("target", "column of a .tsv file", decides="text")
    train: SplitConfig = group(SplitConfig)
    valid: SplitConfig = group(SplitConfig)
    test: SplitConfig = group(SplitConfig)
    test_set: str = setting("test", "which test part, where a corpus has several", decides="corpus")
    max_tokens: int = setting(
        100,
        "longest training sentence, in tokens of either side; longer "
        "pairs are left out, of the training part only",
        decides="text",
        comparable=True,
        at_least=1,
    )
    tokenizer: TokenizerConfig = group(TokenizerConfig)
    vocabulary: VocabularyConfig = group(VocabularyConfig)
