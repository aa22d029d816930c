"""A corpus prepared for training: text is converted to token ids on disk, once.

The folder is named after a hash of everything that determines its content (the files of the corpus
and the settings), so an outdated folder is never used.
"""

import hashlib
import json
import logging
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.config.data import DataConfig, TokenizerConfig, VocabularyConfig
from seq2seq.config.schema import values_that_decide
from seq2seq.data.codec import Codec, codec_from_state
from seq2seq.data.corpus import Corpus
from seq2seq.data.reading import ParallelFiles, SentencePair, read_parallel
from seq2seq.data.report import CorpusReport, find_drop_reason
from seq2seq.data.store import IdStore, IdWriter, renumber
from seq2seq.data.tokenizer import TOKENIZERS, Tokenizer, build_tokenizer, train_sentencepiece
from seq2seq.data.vocabulary import Numbering, build_vocabulary, unknown_rate

FORMAT = 2  # version of the folder format; folders of other versions are not used
CHUNK = 10_000  # pairs tokenized at a time
LINE = np.dtype("<i8")
LANGUAGES = ("source", "target")

log = logging.getLogger(__name__)


class PreparedCorpus(NamedTuple):
    """Token ids to train on, and the codecs that convert between text and ids."""

    source: Codec
    target: Codec
    source_ids: IdStore
    target_ids: IdStore
    lines: NDArray[np.int64]  # line number of each pair in the training files; memory-mapped
    report: dict[str, Any]  # for ``report_lines``
    folder: Path


def prepare(corpus: Corpus, config: DataConfig) -> PreparedCorpus:
    """Load the prepared corpus from disk, or prepare it first if necessary.

    Raises:
        ValueError, OSError: a training or validation file is invalid; names file and line.
    """
    folder = Path(config.prepared) / f"{config.name}-{_key(corpus, config)}"
    if not folder.is_dir():
        log.info("preparing %s from %s", config.name, config.root)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_unfinished(folder.parent)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unfinished-") as unfinished:
            written = Path(unfinished) / "written"
            written.mkdir()
            _write(corpus, config, written)
            try:
                # Renaming is atomic, so no process sees an incomplete folder. If two runs prepare
                # the same corpus at once, the slower one uses the folder of the other.
                written.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
    return _load(folder)


def _remove_unfinished(folder: Path) -> None:
    """Remove folders left by killed processes; one younger than a day may still be in use."""
    for unfinished in folder.glob(".unfinished-*"):
        if time.time() - unfinished.stat().st_mtime > 24 * 60 * 60:
            shutil.rmtree(unfinished, ignore_errors=True)


def _key(corpus: Corpus, config: DataConfig) -> str:
    """Hash everything that determines the content of the prepared folder."""
    settings = values_that_decide("text", config)
    digests = [
        corpus.digests[name]
        for split in (config.train, config.valid)
        for name in (split.source, split.target)
    ]
    content = json.dumps([FORMAT, settings, digests], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _load(folder: Path) -> PreparedCorpus:
    states = json.loads((folder / "sides.json").read_text(encoding="utf-8"))
    source, target = (
        codec_from_state(
            states[name],
            path.read_bytes() if (path := folder / f"{name}.model").exists() else None,
        )
        for name in LANGUAGES
    )
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return PreparedCorpus(
        source,
        target,
        IdStore(folder / "source"),
        IdStore(folder / "target"),
        np.memmap(folder / "lines", LINE, "r"),
        report,
        folder,
    )


def _write(corpus: Corpus, config: DataConfig, folder: Path) -> None:
    """Write a prepared folder: one pass over the text (two for SentencePiece), one over ids."""
    files, report = corpus.files("train"), CorpusReport()
    languages = (config.source_language, config.target_language)
    tokenizers = _build_tokenizers(config.tokenizer, languages, files)
    counts = _write_provisional(files, tokenizers, config.max_tokens, folder, report)
    if report.kept == 0:
        raise ValueError(
            f"{files.source} and {files.target} leave no training pair: "
            f"{'; '.join(report.lines())}."
        )
    codecs = _number(config.vocabulary, tokenizers, counts, folder)
    reports = {
        "train": report.to_dict() | _count_text(codecs, counts),
        "valid": _report_split(corpus.files("valid"), codecs),
    }
    for name, codec in zip(LANGUAGES, codecs, strict=True):
        if codec.tokenizer.model is not None:
            (folder / f"{name}.model").write_bytes(codec.tokenizer.model)
    states = {name: codec.state() for name, codec in zip(LANGUAGES, codecs, strict=True)}
    (folder / "sides.json").write_text(json.dumps(states, ensure_ascii=False), encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(reports, indent=2), encoding="utf-8")


def _build_tokenizers(
    config: TokenizerConfig, languages: Iterable[str], files: ParallelFiles
) -> list[Tokenizer]:
    """Build both tokenizers; SentencePiece models are trained on the training split."""
    models: list[bytes | None] = [None, None]

    def train(*columns: int) -> bytes:
        text = (pair[column] for pair in read_parallel(files) for column in columns)
        return train_sentencepiece(
            text, config.vocabulary_size, config.model_type, config.lowercase
        )

    if TOKENIZERS.get_entry(config.name).needs_model:
        models = [train(0, 1)] * 2 if config.joint else [train(0), train(1)]
    return [
        build_tokenizer(config.name, language, config.lowercase, model)
        for language, model in zip(languages, models, strict=True)
    ]


def _write_provisional(
    files: ParallelFiles,
    tokenizers: list[Tokenizer],
    max_tokens: int,
    folder: Path,
    report: CorpusReport,
) -> list[Counter[str]]:
    """Write ids in order of first occurrence, and count the tokens of each language.

    The final ids depend on the counts of the whole text: ``_number`` replaces these ids later,
    so that the text is tokenized only once.
    """
    numberings = (Numbering(), Numbering())
    with (
        IdWriter(folder / "source") as source_ids,
        IdWriter(folder / "target") as target_ids,
        (folder / "lines").open("wb") as lines,
    ):
        for start, pairs in _chunks(read_parallel(files), files.first_line):
            kept = []
            for number, (pair, *tokens) in enumerate(
                zip(pairs, *_tokenize(pairs, tokenizers), strict=True), start
            ):
                reason = find_drop_reason(pair, tokens, max_tokens)
                report.add(reason, number)
                if reason is None:
                    kept.append((number, tokens))
            lines.write(np.array([number for number, _ in kept], LINE).tobytes())
            for column, writer in enumerate((source_ids, target_ids)):
                sentences = [tokens[column] for _, tokens in kept]
                lengths = [len(tokens) for tokens in sentences]
                writer.write(numberings[column].number(sentences), lengths)
    return [numbering.counts() for numbering in numberings]


def _chunks(
    pairs: Iterable[SentencePair], first_line: int
) -> Iterator[tuple[int, list[SentencePair]]]:
    """Yield lists of ``CHUNK`` pairs, each with the line number of its first pair."""
    iterator = iter(pairs)
    while chunk := list(islice(iterator, CHUNK)):
        yield first_line, chunk
        first_line += len(chunk)


def _tokenize(pairs: list[SentencePair], tokenizers: list[Tokenizer]) -> list[list[list[str]]]:
    """Return the tokens of all source sentences, and of all target sentences."""
    return [
        tokenizer.tokenize_many([pair[column] for pair in pairs])
        for column, tokenizer in enumerate(tokenizers)
    ]


def _number(
    config: VocabularyConfig,
    tokenizers: list[Tokenizer],
    counts: list[Counter[str]],
    folder: Path,
) -> list[Codec]:
    """Build the vocabularies and replace the provisional ids on disk by the final ones."""
    counted = [counts[0] + counts[1]] * 2 if config.joint else counts
    codecs = []
    for name, tokenizer, own, all_counts in zip(
        LANGUAGES, tokenizers, counts, counted, strict=True
    ):
        vocabulary = build_vocabulary(all_counts, config.max_size, config.min_frequency)
        # The counts are in the order of the provisional ids.
        renumber(folder / name, np.array(vocabulary.ids(own), dtype=np.int32))
        codecs.append(Codec(tokenizer, vocabulary))
    return codecs


def _count_text(codecs: list[Codec], counts: list[Counter[str]]) -> dict[str, Any]:
    return {
        name: {
            "tokens": count.total(),
            "vocabulary": len(codec.vocabulary),
            "unknown": unknown_rate(count, codec.vocabulary),
        }
        for name, codec, count in zip(LANGUAGES, codecs, counts, strict=True)
    }


def _report_split(files: ParallelFiles, codecs: list[Codec]) -> dict[str, Any]:
    """Report on a split used for evaluation, of which every line is kept."""
    report, counts = CorpusReport(), [Counter[str](), Counter[str]()]
    for _, pairs in _chunks(read_parallel(files), files.first_line):
        for count, sentences in zip(
            counts, _tokenize(pairs, [codec.tokenizer for codec in codecs]), strict=True
        ):
            count.update(chain.from_iterable(sentences))
        report.kept += len(pairs)
    return report.to_dict() | _count_text(codecs, counts)
