"""A corpus prepared for training: text becomes token ids on disk, once.

What is kept is named after a hash of all that made it, so nothing stale is ever used: the
bytes of the files, and every setting that has a say.
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

from seq2seq.config.data import DataConfig
from seq2seq.config.schema import values_that_decide
from seq2seq.data.codec import Codec, codec_from_state
from seq2seq.data.corpus import (
    CorpusReport,
    DropReason,
    ParallelFiles,
    SentencePair,
    blank_side,
    file_digest,
    read_parallel,
)
from seq2seq.data.download import CORPORA, ensure_corpus
from seq2seq.data.store import IdStore, IdWriter, renumber
from seq2seq.data.tokenizer import Tokenizer, build_tokenizer, train_sentencepiece
from seq2seq.data.vocabulary import Numbering, build_vocabulary, unknown_rate

FORMAT = 2  # of the prepared folder; a new one makes old folders unused
CHUNK = 10_000  # pairs tokenised at a time
LINE = np.dtype("<i8")

log = logging.getLogger(__name__)


class PreparedCorpus(NamedTuple):
    """Ids to train on, and what turned text into them."""

    source: Codec
    target: Codec
    source_ids: IdStore
    target_ids: IdStore
    lines: NDArray[np.int64]  # of the training files, of each pair; mapped, hardly ever read
    report: dict[str, Any]
    folder: Path  # that all this is kept in, named after what made it


def locate(config: DataConfig, part: str) -> ParallelFiles:
    """Where the ``train``, ``valid`` or ``test`` part lies."""
    split = getattr(config, part)
    root = Path(config.root)
    return ParallelFiles(
        root / split.source,
        root / split.target,
        root / split.alignment if split.alignment else None,
        config.source_column,
        config.target_column,
    )


def ensure_files(config: DataConfig) -> None:
    """Download what a named corpus lacks, and check what is there."""
    if config.name in CORPORA:
        known = CORPORA[config.name].files
        splits = (config.train, config.valid, config.test)
        wanted = {name for split in splits for name in (split.source, split.target)}
        for name in sorted(wanted - set(known)):
            if not (Path(config.root) / name).exists():
                raise ValueError(
                    f"{config.name} has no file {name}; it has {', '.join(sorted(known))}. Choose "
                    f"other languages or another data.test_set, or put the file into data.root."
                )
        ensure_corpus(config.name, Path(config.root), sorted(wanted & set(known)), config.url)


def prepare(config: DataConfig) -> PreparedCorpus:
    """The prepared corpus: from disk where the same was prepared before, else made now.

    Raises:
        ValueError, OSError: something is wrong with the files; names file and line.
    """
    ensure_files(config)
    folder = Path(config.prepared) / f"{config.name}-{_key(config)}"
    if not folder.is_dir():
        log.info("preparing %s from %s", config.name, config.root)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_unfinished(folder.parent)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unfinished-") as unfinished:
            made = Path(unfinished) / "made"
            made.mkdir()
            _make(config, made)
            try:
                # At once or not at all: nobody finds a half-made folder, and of two runs that
                # prepare the same at a time the slower one uses the other's.
                made.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
    return _load(folder)


def _remove_unfinished(folder: Path) -> None:
    """What preparations left that were killed; one that began today may be at work."""
    for unfinished in folder.glob(".unfinished-*"):
        if time.time() - unfinished.stat().st_mtime > 24 * 60 * 60:
            shutil.rmtree(unfinished, ignore_errors=True)


def _key(config: DataConfig) -> str:
    """A hash of everything that decides what is prepared."""
    train, valid = locate(config, "train"), locate(config, "valid")
    settings = values_that_decide("text", config)
    digests = [
        file_digest(path) for files in (train, valid) for path in (files.source, files.target)
    ]
    made_of = json.dumps([FORMAT, settings, digests], sort_keys=True)
    return hashlib.sha256(made_of.encode()).hexdigest()[:16]


def _load(folder: Path) -> PreparedCorpus:
    sides = json.loads((folder / "sides.json").read_text(encoding="utf-8"))
    source, target = (
        codec_from_state(
            sides[name],
            path.read_bytes() if (path := folder / f"{name}.model").exists() else None,
        )
        for name in ("source", "target")
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


def _make(config: DataConfig, folder: Path) -> None:
    """Write a prepared folder: one pass over the text (two for SentencePiece), one over ids."""
    tokenizers = _build_tokenizers(config)
    report = CorpusReport()
    counts = _write_provisional(config, tokenizers, folder, report)
    if report.kept == 0:
        files = locate(config, "train")
        raise ValueError(
            f"{files.source} and {files.target} leave no training pair: "
            f"{'; '.join(report.lines())}."
        )
    sides = _number(config, tokenizers, counts, folder)
    report_all = {
        "train": report.to_dict() | _text_report(sides, counts),
        "valid": _part_report(config, sides, "valid"),
    }
    for name, side in zip(("source", "target"), sides, strict=True):
        if side.tokenizer.model is not None:
            (folder / f"{name}.model").write_bytes(side.tokenizer.model)
    states = {name: side.state() for name, side in zip(("source", "target"), sides, strict=True)}
    (folder / "sides.json").write_text(json.dumps(states, ensure_ascii=False), encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(report_all, indent=2), encoding="utf-8")


def _build_tokenizers(config: DataConfig) -> list[Tokenizer]:
    """The tokenizers of both sides, SentencePiece trained on the training part."""
    settings, files = config.tokenizer, locate(config, "train")
    models: list[bytes | None] = [None, None]

    def train(*sides: int) -> bytes:
        text = (pair[side] for pair in read_parallel(files) for side in sides)
        return train_sentencepiece(
            text, settings.vocabulary_size, settings.model_type, settings.lowercase
        )

    if settings.name == "sentencepiece":
        models = [train(0, 1)] * 2 if settings.joint else [train(0), train(1)]
    languages = (config.source_language, config.target_language)
    return [
        build_tokenizer(settings.name, language, settings.lowercase, model)
        for language, model in zip(languages, models, strict=True)
    ]


def _write_provisional(
    config: DataConfig, tokenizers: list[Tokenizer], folder: Path, report: CorpusReport
) -> list[Counter[str]]:
    """Tokenise once, numbering tokens as they come; the real numbers need the whole count."""
    numberings, files = (Numbering(), Numbering()), locate(config, "train")
    with (
        IdWriter(folder / "source") as source_ids,
        IdWriter(folder / "target") as target_ids,
        (folder / "lines").open("wb") as lines,
    ):
        for start, pairs in _chunks(read_parallel(files), files.first_line):
            sides = _tokenize(pairs, tokenizers)
            kept = [
                (number, tokens)
                for number, (pair, *tokens) in enumerate(zip(pairs, *sides, strict=True), start)
                if _keep(pair, tokens, config.max_tokens, report, number)
            ]
            lines.write(np.array([number for number, _ in kept], LINE).tobytes())
            for side, writer in enumerate((source_ids, target_ids)):
                sentences = [tokens[side] for _, tokens in kept]
                lengths = [len(tokens) for tokens in sentences]
                writer.write(numberings[side].number(sentences), lengths)
    return [numbering.counts() for numbering in numberings]


def _chunks(
    pairs: Iterable[SentencePair], first_line: int
) -> Iterator[tuple[int, list[SentencePair]]]:
    """Pairs in lists of ``CHUNK``, each with the line number of its first."""
    iterator = iter(pairs)
    while chunk := list(islice(iterator, CHUNK)):
        yield first_line, chunk
        first_line += len(chunk)


def _tokenize(pairs: list[SentencePair], tokenizers: list[Tokenizer]) -> list[list[list[str]]]:
    return [
        tokenizer.tokenize_many([pair[side] for pair in pairs])
        for side, tokenizer in enumerate(tokenizers)
    ]


def _keep(
    pair: SentencePair, tokens: list[list[str]], max_tokens: int, report: CorpusReport, number: int
) -> bool:
    """Whether a training pair stays; counted either way."""
    reason = blank_side(pair)
    if reason is None and len(tokens[0]) > max_tokens:
        reason = DropReason.SOURCE_TOO_LONG
    elif reason is None and len(tokens[1]) > max_tokens:
        reason = DropReason.TARGET_TOO_LONG
    if reason is None:
        report.keep()
        return True
    report.drop(reason, number)
    return False


def _number(
    config: DataConfig, tokenizers: list[Tokenizer], counts: list[Counter[str]], folder: Path
) -> list[Codec]:
    """Build the vocabularies and give the written ids their real numbers."""
    settings = config.vocabulary
    counted = [counts[0] + counts[1]] * 2 if settings.joint else counts
    sides = []
    for name, tokenizer, own, all_counts in zip(
        ("source", "target"), tokenizers, counts, counted, strict=True
    ):
        vocabulary = build_vocabulary(all_counts, settings.max_size, settings.min_frequency)
        # The counts are in the order of the provisional numbers.
        renumber(folder / name, np.array(vocabulary.ids(own), dtype=np.int32))
        sides.append(Codec(tokenizer, vocabulary))
    return sides


def _text_report(sides: list[Codec], counts: list[Counter[str]]) -> dict[str, Any]:
    return {
        name: {
            "tokens": count.total(),
            "vocabulary": len(side.vocabulary),
            "unknown": unknown_rate(count, side.vocabulary),
        }
        for name, side, count in zip(("source", "target"), sides, counts, strict=True)
    }


def _part_report(config: DataConfig, sides: list[Codec], part: str) -> dict[str, Any]:
    """Counts of a part that is scored: every line of it is kept."""
    report, counts = CorpusReport(), [Counter[str](), Counter[str]()]
    for _, pairs in _chunks(read_parallel(locate(config, part)), 1):
        for side, tokens in enumerate(_tokenize(pairs, [side.tokenizer for side in sides])):
            counts[side].update(chain.from_iterable(tokens))
        report.kept += len(pairs)
    return report.to_dict() | _text_report(sides, counts)


def report_lines(report: dict[str, Any]) -> list[str]:
    """The report of ``prepare`` for human readers."""
    lines = []
    for part, facts in report.items():
        lines += [f"{part}: {line}" for line in CorpusReport.from_dict(facts).lines()]
        for side in ("source", "target"):
            text = facts[side]
            lines.append(
                f"{part} {side}: {text['tokens']:,} tokens, vocabulary of "
                f"{text['vocabulary']:,}, {text['unknown']:.2%} unknown"
            )
    return lines
