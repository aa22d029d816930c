"""Parallel text: files whose lines translate each other, read as sentence pairs.

Reading, pairing and counting only: splitting into tokens is ``tokenizer``'s work, numbering
them ``vocabulary``'s. Everything is read as a stream, so memory does not grow with the files.
"""

import codecs
import gzip
import hashlib
import io
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq.data.advice import GZIP_MAGIC, place_of_change, way_to_utf_8

READ_SIZE = 1 << 20  # bytes decompressed at a time
LINES_TO_NAME = 5  # line numbers that the report keeps for each reason


class SentencePair(NamedTuple):
    source: str
    target: str


class ParallelFiles(NamedTuple):
    """Where one part of a corpus lies: two text files, or one table.

    A table is a ``.tsv`` (or ``.tsv.gz``) file, named as source and as target; its first line
    holds the names of its columns, of which two are read. Columns mean nothing to text files.
    """

    source: Path
    target: Path
    alignment: Path | None = None  # one line a pair; read by ``evaluation``
    source_column: str | None = None
    target_column: str | None = None

    @property
    def is_table(self) -> bool:
        return any(path.name.lower().endswith((".tsv", ".tsv.gz")) for path in self[:2])

    @property
    def first_line(self) -> int:
        """Line number, in the files, of the first pair."""
        return 2 if self.is_table else 1


class DropReason(StrEnum):
    """Why a pair of the training part is left out; always both of its sides."""

    BLANK_SOURCE = "blank source"
    BLANK_TARGET = "blank target"
    BOTH_BLANK = "both sides blank"
    SOURCE_TOO_LONG = "source too long"
    TARGET_TOO_LONG = "target too long"


def blank_side(pair: SentencePair) -> DropReason | None:
    """Which side of a pair holds nothing but Unicode white space, if any."""
    match bool(pair.source.strip()), bool(pair.target.strip()):
        case False, False:
            return DropReason.BOTH_BLANK
        case False, True:
            return DropReason.BLANK_SOURCE
        case True, False:
            return DropReason.BLANK_TARGET
    return None


@dataclass
class CorpusReport:
    """How many pairs were kept, how many dropped and why, and where to look for those."""

    kept: int = 0
    dropped: Counter[DropReason] = field(default_factory=Counter)
    first_lines: dict[DropReason, list[int]] = field(default_factory=lambda: defaultdict(list))

    @property
    def read(self) -> int:
        return self.kept + self.dropped.total()

    def keep(self) -> None:
        self.kept += 1

    def drop(self, reason: DropReason, line_number: int) -> None:
        self.dropped[reason] += 1
        if len(self.first_lines[reason]) < LINES_TO_NAME:
            self.first_lines[reason].append(line_number)

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> "CorpusReport":
        """What ``to_dict`` made."""
        report = cls(facts["kept"])
        for reason, drop in facts["dropped"].items():
            report.dropped[DropReason(reason)] = drop["count"]
            report.first_lines[DropReason(reason)] = drop["first_lines"]
        return report

    def lines(self) -> list[str]:
        """The report for human readers, one statement a line."""
        lines = [f"read {self.read:,} pairs, kept {self.kept:,}"]
        for reason in filter(self.dropped.get, DropReason):
            count, numbers = self.dropped[reason], self.first_lines[reason]
            where = ", ".join(map(str, numbers)) + (", ..." if count > len(numbers) else "")
            lines.append(f"dropped {count:,}: {reason} (line {where})")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The report for JSON."""
        dropped = {
            reason.value: {"count": self.dropped[reason], "first_lines": self.first_lines[reason]}
            for reason in filter(self.dropped.get, DropReason)
        }
        return {"read": self.read, "kept": self.kept, "dropped": dropped}


@contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a plain file, or those inside a gzip file."""
    with path.open("rb") as file:
        # The first bytes decide, not the name: 0x8b never follows 0x1f in UTF-8, so that no
        # text is taken for gzip. The name is only checked against them, because an error
        # page or an empty file saved as .gz would otherwise be read as text.
        if file.peek(2)[:2] == GZIP_MAGIC:
            with gzip.GzipFile(fileobj=file) as content:
                yield io.BufferedReader(content, READ_SIZE)
        elif path.name.lower().endswith(".gz"):
            raise ValueError(
                f"{path} is named .gz but holds no gzip data: if it is plain text, rename it; "
                f"otherwise fetch it again."
            )
        else:
            yield file


def _byte_lines(path: Path) -> Iterator[bytes]:
    """Lines with their line feeds. The only place that says where a line ends: at LF.

    Never ``str.splitlines`` or text mode: they also break at U+2028, U+0085, a lone CR and
    others, which occur inside sentences of web text. One such break on one side shifts every
    later pair.
    """
    number = 0
    try:
        with _opened(path) as file:
            for line in _without_mark(file):
                number += 1
                yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path} is damaged or cut short: it cannot be decompressed beyond line {number} "
            f"({error}). Fetch or compress it again."
        ) from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> OSError:
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(
            f"There is no file {path} (in full: {path.absolute()}); check data.root and the file "
            f"names of the data configuration."
        )
    return OSError(
        f"{path} cannot be read ({error.strerror or error}): it must be a file, and one that you "
        f"may read."
    )


def _without_mark(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The same without a byte-order mark at the start."""
    for number, line in enumerate(lines):
        # Not by a look at the next bytes: of gzip these may be fewer than the mark has.
        content = line.removeprefix(codecs.BOM_UTF8) if number == 0 else line
        if content:  # the mark may be all there is
            yield content


def _decoded(content: bytes, name: Path | str, number: int) -> str:
    """``content`` as UTF-8 text, or an error that says where it is not."""
    column = content.find(b"\0")
    if column < 0:
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            column = error.start
    raise ValueError(
        f"{name}, line {number}, byte column {column + 1}: 0x{content[column]:02x} is not allowed "
        f"there, as it must be UTF-8 text: {way_to_utf_8(content, number)}"
    )


def read_lines(path: Path) -> Iterator[str]:
    """Sentences of a UTF-8 file, plain or gzip, whatever the locale.

    LF ends a line, CRLF too, nothing else does; a last line needs no ending. A byte-order
    mark at the start of the file is not part of its text.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not UTF-8, a NUL byte (as in UTF-16), or a damaged gzip file.
    """
    yield from _sentences(_byte_lines(path), path)


def read_stream(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """Sentences of an open stream of lines that end with LF, under the rules of ``read_lines``.

    Raises:
        ValueError: as there, with ``name`` for the file.
    """
    yield from _sentences(_without_mark(stream), name)


def _sentences(lines: Iterable[bytes], name: Path | str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        content = line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")
        yield _decoded(content, name, number)


def count_lines(path: Path) -> int:
    """Line feeds in the (decompressed) bytes of a file, and a last line without one."""
    return sum(1 for _ in _byte_lines(path))


def file_digest(path: Path) -> str:
    """SHA-256 of the bytes of a file as they lie on disk, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from error


def read_parallel(files: ParallelFiles) -> Iterator[SentencePair]:
    """All pairs in their order, blank ones included; none is ever dropped here.

    Pair n is line n of both text files, or row n of a table: number them with
    ``enumerate(read_parallel(files), start=files.first_line)``.

    Raises:
        ValueError: the two files differ in their number of lines (found at the end of the
            shorter one), a table lacks a column or a field, or see ``read_lines``.
    """
    return _read_table(files) if files.is_table else _read_two_files(files)


def _read_table(files: ParallelFiles) -> Iterator[SentencePair]:
    # Not the csv module: to it a quotation mark opens a field, and a sentence that starts
    # with one swallows all rows up to the next.
    if files.source != files.target:
        raise ValueError(
            f"A .tsv file holds both sides, but the source is {files.source} and the target is "
            f"{files.target}: name one table for both, or two text files that do not end in .tsv."
        )
    if files.source_column is None:
        raise ValueError(f"{files.source} is a table: here two text files are needed, not .tsv.")
    rows = read_lines(files.source)
    header = next(rows, "").split("\t")
    if files.source_column == files.target_column:
        raise ValueError(
            f"data.source_column= and data.target_column= are both {files.source_column}; choose "
            f"two of the columns of {files.source}: {', '.join(map(repr, header))}."
        )
    for column in files[3:]:
        if column is None or header.count(str(column)) != 1:
            raise ValueError(
                f"{files.source}, line 1: the header must name the column {column!r} once; it "
                f"names {', '.join(map(repr, header))}. Choose with data.source_column= and "
                f"data.target_column=."
            )
    source, target = (header.index(str(column)) for column in files[3:])
    for number, row in enumerate(rows, start=2):
        fields = row.split("\t")
        if len(fields) != len(header):
            raise ValueError(
                f"{files.source}, line {number}: {len(fields)} fields between tabs, but the "
                f"header has {len(header)}; correct or remove that line."
            )
        yield SentencePair(fields[source], fields[target])


def _read_two_files(files: ParallelFiles) -> Iterator[SentencePair]:
    sources, targets = read_lines(files.source), read_lines(files.target)
    for index, (source, target) in enumerate(zip_longest(sources, targets)):
        if source is None or target is None:
            # One of them is at its end; the other has this line and the rest.
            num_sources = index + (source is not None) + sum(1 for _ in sources)
            num_targets = index + (target is not None) + sum(1 for _ in targets)
            raise ValueError(
                f"{files.source} has {num_sources:,} lines and {files.target} has "
                f"{num_targets:,}, but line n of one must translate line n of the other. "
                f"{_where_to_look(files)} Usually a tool dropped empty lines from one side."
            )
        yield SentencePair(source, target)


def _where_to_look(files: ParallelFiles) -> str:
    """Advice about the place at which two files of different length fall out of step."""
    if not (files.source.is_file() and files.target.is_file()):
        return place_of_change([])  # a pipe cannot be read a second time
    lines = zip(read_lines(files.source), read_lines(files.target), strict=False)
    return place_of_change(
        math.log((len(target.strip()) + 1) / (len(source.strip()) + 1)) for source, target in lines
    )
