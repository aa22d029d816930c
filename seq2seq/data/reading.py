"""Parallel text: files whose lines translate each other, read as sentence pairs.

This module only reads and pairs; ``tokenizer`` splits sentences and ``vocabulary`` numbers tokens.
Files are streamed, so memory does not grow with their size.
"""

import codecs
import gzip
import hashlib
import io
import math
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np

READ_SIZE = 1 << 20  # bytes decompressed at a time
GZIP_MAGIC = b"\x1f\x8b"
OTHER_COMPRESSION = {
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
}


class SentencePair(NamedTuple):
    source: str
    target: str


class ParallelFiles(NamedTuple):
    """Paths of one split of a corpus: two text files, or one table.

    A table is a ``.tsv`` (or ``.tsv.gz``) file, given as both source and target. Its first line
    names its columns, and two of them are read. The column names are not used for text files.
    """

    source: Path
    target: Path
    alignment: Path | None = None  # one line of word alignment links per pair
    source_column: str | None = None
    target_column: str | None = None

    @property
    def is_table(self) -> bool:
        return any(path.name.lower().endswith((".tsv", ".tsv.gz")) for path in self[:2])

    @property
    def first_line(self) -> int:
        """Line number of the first pair in the files."""
        return 2 if self.is_table else 1


def read_lines(path: Path) -> Iterator[str]:
    """Yield the sentences of a UTF-8 file, plain or gzip, independent of the locale.

    A line ends at LF or CRLF and nowhere else; the last line may lack its line end. A byte-order
    mark at the start of the file is not part of the text.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not UTF-8, contains a NUL byte (as UTF-16 does), or is a damaged
            gzip file.
    """
    yield from _decode_lines(_byte_lines(path), path)


def read_stream(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """Yield the sentences of an open stream of lines that end with LF; see ``read_lines``.

    Raises:
        ValueError: as in ``read_lines``; the message gives ``name`` as the file.
    """
    yield from _decode_lines(_without_byte_order_mark(stream), name)


def read_parallel(files: ParallelFiles) -> Iterator[SentencePair]:
    """Yield all pairs in order, including blank ones; no pair is dropped.

    Pair n is line n of both text files, or row n of a table. To number pairs by their lines, use
    ``enumerate(read_parallel(files), start=files.first_line)``.

    Raises:
        ValueError: the files differ in their number of lines (raised at the end of the shorter
            one), a table lacks a column or a field, or a line is invalid (see ``read_lines``).
    """
    return _read_table(files) if files.is_table else _read_two_files(files)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file as stored on disk, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> OSError:
    """Turn the error of opening or reading a file into one that says what to do."""
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(
            f"There is no file {path} (in full: {path.absolute()}); check data.root and the file "
            f"names of the data configuration."
        )
    return OSError(
        f"{path} cannot be read ({error.strerror or error}): it must be a file that you have "
        f"permission to read."
    )


@contextmanager
def _open_bytes(path: Path) -> Iterator[io.BufferedReader]:
    """Open a plain file, or the decompressed content of a gzip file."""
    with path.open("rb") as file:
        # The first bytes decide, not the name: 0x8b never follows 0x1f in UTF-8, so text is never
        # mistaken for gzip. The name is only checked for consistency, because an error page or
        # an empty file saved as .gz would otherwise be read as text.
        if file.peek(2)[:2] == GZIP_MAGIC:
            with gzip.GzipFile(fileobj=file) as content:
                yield io.BufferedReader(content, READ_SIZE)
        elif path.name.lower().endswith(".gz"):
            raise ValueError(
                f"{path} is named .gz but holds no gzip data: if it is plain text, rename it; "
                f"otherwise download it again."
            )
        else:
            yield file


def _byte_lines(path: Path) -> Iterator[bytes]:
    """Yield lines with their line feeds; only LF ends a line.

    ``str.splitlines`` and text mode also break lines at U+2028, U+0085, a lone CR and others,
    which occur inside sentences of web text. One such break in one language would shift every
    later pair.
    """
    number = 0
    try:
        with _open_bytes(path) as file:
            for line in _without_byte_order_mark(file):
                number += 1
                yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path} is damaged or cut short: it cannot be decompressed beyond line {number} "
            f"({error}). Download or compress it again."
        ) from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _without_byte_order_mark(lines: Iterable[bytes]) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        # Peeking at three bytes would not do: in a gzip file the mark may span two members.
        content = line.removeprefix(codecs.BOM_UTF8) if number == 0 else line
        if content:  # a file may consist of the mark alone
            yield content


def _decode_lines(lines: Iterable[bytes], name: Path | str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        content = line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")
        yield _decode(content, name, number)


def _decode(content: bytes, name: Path | str, number: int) -> str:
    """Decode one line as UTF-8, or raise an error that gives line and column."""
    column = content.find(b"\0")
    if column < 0:
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            column = error.start
    raise ValueError(
        f"{name}, line {number}, byte column {column + 1}: 0x{content[column]:02x} is not allowed "
        f"there, as it must be UTF-8 text: {_how_to_convert(content, number)}"
    )


def _how_to_convert(content: bytes, number: int) -> str:
    """Return advice on a line that is not UTF-8, judged by its bytes."""
    compression = [name for magic, name in OTHER_COMPRESSION.items() if content.startswith(magic)]
    if number == 1 and compression:
        return f"it looks like {compression[0]}, so unpack it; only gzip is read directly."
    if number == 1 and content.startswith(GZIP_MAGIC):
        return "it is packed twice, so unpack it once with gunzip."
    if b"\0" in content or content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "it looks like UTF-16, so convert it with iconv -f UTF-16 -t UTF-8."
    return "convert it, from Latin-1 for example with iconv -f LATIN1 -t UTF-8."


def _read_table(files: ParallelFiles) -> Iterator[SentencePair]:
    # The csv module would treat a quotation mark as the start of a quoted field, and a sentence
    # that starts with one would swallow all rows up to the next quotation mark.
    rows = read_lines(files.source)
    source, target, num_fields = _find_columns(files, rows)
    for number, row in enumerate(rows, start=2):
        fields = row.split("\t")
        if len(fields) != num_fields:
            raise ValueError(
                f"{files.source}, line {number}: {len(fields)} fields between tabs, but the "
                f"header has {num_fields}; correct or remove that line."
            )
        yield SentencePair(fields[source], fields[target])


def _find_columns(files: ParallelFiles, rows: Iterator[str]) -> tuple[int, int, int]:
    """Read the header of a table: positions of source and target, and the number of columns."""
    if files.source != files.target:
        raise ValueError(
            f"A .tsv file holds both languages, but the source is {files.source} and the target "
            f"is {files.target}: give one table for both, or two text files that do not end in "
            f".tsv."
        )
    if files.source_column is None:
        raise ValueError(f"{files.source} is a table: here two text files are needed, not .tsv.")
    header = next(rows, "").split("\t")
    if files.source_column == files.target_column:
        raise ValueError(
            f"data.source_column= and data.target_column= are both {files.source_column}; choose "
            f"two of the columns of {files.source}: {', '.join(map(repr, header))}."
        )
    for column in (files.source_column, files.target_column):
        if column is None or header.count(column) != 1:
            raise ValueError(
                f"{files.source}, line 1: the header must contain the column {column!r} once; it "
                f"contains {', '.join(map(repr, header))}. Choose with data.source_column= and "
                f"data.target_column=."
            )
    source, target = files.source_column, str(files.target_column)
    return header.index(source), header.index(target), len(header)


def _read_two_files(files: ParallelFiles) -> Iterator[SentencePair]:
    sources, targets = read_lines(files.source), read_lines(files.target)
    for index, (source, target) in enumerate(zip_longest(sources, targets)):
        if source is None or target is None:
            # One file has ended; the other one has this line and the rest.
            num_sources = index + (source is not None) + sum(1 for _ in sources)
            num_targets = index + (target is not None) + sum(1 for _ in targets)
            raise ValueError(
                f"{files.source} has {num_sources:,} lines and {files.target} has "
                f"{num_targets:,}, but line n of one must translate line n of the other. "
                f"{_where_to_look(files)} Usually a tool dropped empty lines from one file."
            )
        yield SentencePair(source, target)


def _where_to_look(files: ParallelFiles) -> str:
    """Return advice on where two files of different lengths fall out of step."""
    unknown = "The lengths of the lines do not show where; compare the ends of both files."
    if not (files.source.is_file() and files.target.is_file()):
        return unknown  # a pipe cannot be read a second time
    lines = zip(read_lines(files.source), read_lines(files.target), strict=False)
    # 8 bytes a line: memory that grows with the files, but only on the way to an error.
    log_ratios = np.fromiter(
        (
            math.log((len(target.strip()) + 1) / (len(source.strip()) + 1))
            for source, target in lines
        ),
        dtype=np.float64,
    )
    if not log_ratios.size:
        return unknown
    deviations = np.abs(log_ratios - np.median(log_ratios))
    if change := _find_change(deviations):
        return f"Look near line {change}: from there on the lengths of the two texts do not match."
    # Where all lines are equally long, a blank line opposite a full one is the only trace.
    outliers = np.flatnonzero(deviations > max(4 * deviations.mean(), math.log(3)))
    if not len(outliers):
        return unknown
    return f"Look near line {outliers[0] + 1}, the first where one text is much longer."


def _find_change(deviations: np.ndarray) -> int | None:
    """Find the line at which deviations from the median length ratio begin to be large.

    The ratio of the two lengths stays near its median while lines translate each other, and
    varies much more once the files are out of step. The line is the cut between "little" and
    "much" with the highest two-sample z-score (the CUSUM estimate of a change point, weighted by
    position); None if no cut is significant.
    """
    # Clipped, because every corpus has a few outliers, and each would look like a change.
    clipped = np.minimum(deviations, np.quantile(deviations, 0.9))
    before = np.arange(1, len(clipped))
    dips = -np.cumsum(clipped - clipped.mean())[:-1]
    z_scores = dips / np.sqrt(before * (1 - before / len(clipped))) / (clipped.std() + 1e-9)
    # Exceeds 3.5 by chance in less than one corpus out of twenty.
    return int(z_scores.argmax()) + 2 if z_scores.max(initial=0) > 3.5 else None
