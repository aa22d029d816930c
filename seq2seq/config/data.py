"""Settings of a corpus. ``conf/`` only gives values."""

from dataclasses import dataclass

from seq2seq.config.schema import MISSING, Form, group, setting

# A folder name that needs no quotes on the command line and cannot lead to another folder.
NAME = Form(r"\w[\w.-]{0,99}", "a name of up to 100 letters, digits, . _ and -, not a path")
LANGUAGE = Form(r"[A-Za-z][\w-]{0,29}", "the code of a language, such as de or zh-Hans")


@dataclass
class SplitConfig:
    """Files of one split of a corpus, below ``data.root``; ``.gz`` files are read directly."""

    source: str = setting(
        MISSING, "file of source sentences, or a .tsv file with a header", decides="corpus"
    )
    target: str = setting(
        MISSING, "file of target sentences, or the same .tsv file", decides="corpus"
    )
    alignment: str | None = setting(
        None, "file of true word alignments in Pharaoh format", decides="corpus"
    )


@dataclass
class TokenizerConfig:
    name: str = setting(
        "moses",
        "tokenizer that splits sentences into tokens",
        decides="text",
    )
    lowercase: bool = setting(
        False,
        "convert text to lower case; scores are then not comparable to cased ones",
        decides="text",
    )
    model_type: str = setting(
        "bpe", "kind of SentencePiece model", decides="text", choices=("bpe", "unigram")
    )
    vocabulary_size: int = setting(
        8000, "number of SentencePiece pieces", decides="text", at_least=10
    )
    joint: bool = setting(True, "train one SentencePiece model for both languages", decides="text")


@dataclass
class VocabularyConfig:
    max_size: int | None = setting(
        None,
        "maximum number of tokens per language, excluding special tokens",
        decides="text",
        at_least=1,
    )
    min_frequency: int = setting(
        1,
        "minimum count of a token in the training text; rarer tokens are unknown",
        decides="text",
        at_least=1,
    )
    joint: bool = setting(False, "build one vocabulary for both languages", decides="text")


@dataclass
class DataConfig:
    name: str = setting(
        MISSING,
        "name of the corpus and of its run folders; `multi30k` is downloaded if missing",
        decides="corpus",
        form=NAME,
    )
    root: str = setting(MISSING, "folder of the corpus files", decides="nothing")
    url: str | None = setting(
        None, "mirror from which a named corpus is downloaded", decides="nothing"
    )
    prepared: str = setting(
        MISSING, "folder in which token ids are cached for later runs", decides="nothing"
    )
    source_language: str = setting(
        MISSING, "code of the source language", decides="text", form=LANGUAGE
    )
    target_language: str = setting(
        MISSING, "code of the target language", decides="text", form=LANGUAGE
    )
    source_column: str = setting("source", "source column of a .tsv file", decides="text")
    target_column: str = setting("target", "target column of a .tsv file", decides="text")
    train: SplitConfig = group(SplitConfig)
    valid: SplitConfig = group(SplitConfig)
    test: SplitConfig = group(SplitConfig)
    test_set: str = setting("test", "test set to use if the corpus has several", decides="corpus")
    max_tokens: int = setting(
        100,
        "maximum tokens per sentence, in either language; longer training pairs are dropped",
        decides="text",
        comparable=True,
        at_least=1,
    )
    tokenizer: TokenizerConfig = group(TokenizerConfig)
    vocabulary: VocabularyConfig = group(VocabularyConfig)
