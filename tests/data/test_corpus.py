"""Line n stays line n, whatever the lines hold; and what is not text is refused where it lies."""

import codecs
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.data.corpus import (
    CorpusReport,
    DropReason,
    ParallelFiles,
    SentencePair,
    blank_side,
    count_lines,
    file_digest,
    read_lines,
    read_parallel,
    read_stream,
)

# What str.splitlines or text mode take for the end of a line, and LF ends none the less.
FALSE_ENDINGS = "\u2028\u2029\x85\v\f\x1c\x1d\x1e\r"

any_text = st.text(
    st.sampled_from("\n\n\ufeff" + FALSE_ENDINGS) | st.characters(exclude_categories=["Cs"])
).map(lambda text: text.replace("\0", " "))
sentences = st.lists(
    st.text(
        st.sampled_from(" \"'" + FALSE_ENDINGS.replace("\r", ""))
        | st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r\t\ufeff"),
        max_size=12,
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("corpus")


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def two_files(folder: Path, source: list[str], target: list[str]) -> ParallelFiles:
    return ParallelFiles(
        *(
            written(folder / name, "".join(line + "\n" for line in lines))
            for name, lines in (("text.source", source), ("text.target", target))
        )
    )


def table(folder: Path, content: str | bytes, source="de", target="en") -> ParallelFiles:
    path = written(folder / "text.tsv", content)
    return ParallelFiles(path, path, source_column=source, target_column=target)


def refusal(function, *arguments) -> str:
    """The message with which the input is refused, which must be one line."""
    with pytest.raises((ValueError, OSError)) as caught:
        list(function(*arguments))
    assert "\n" not in str(caught.value)
    return str(caught.value)


# What a line is


@settings(deadline=None)  # a busy disk is no fault
@given(any_text)
def test_only_line_feeds_count(folder, text):
    path = written(folder / "any", text)
    content = text.encode().removeprefix(b"\xef\xbb\xbf")
    expected = content.count(b"\n") + (content != b"" and not content.endswith(b"\n"))
    assert len(list(read_lines(path))) == count_lines(path) == expected


@settings(deadline=None)  # a busy disk is no fault
@given(any_text)
def test_lines_hold_all_the_text(folder, text):
    path = written(folder / "any", text)
    lines = text.removeprefix("\ufeff").split("\n")
    if not lines[-1]:
        lines.pop()
    *ended, last = [*lines, ""] if text.endswith("\n") else lines or [""]
    # A CR counts as part of the ending only where a LF follows it.
    expected = [line.removesuffix("\r") for line in ended] + [last] * (last != "")
    assert list(read_lines(path)) == expected


@settings(deadline=None)  # a busy disk is no fault
@given(any_text)
def test_compressing_changes_nothing(folder, text):
    plain = written(folder / "plain", text)
    packed = written(folder / "packed.gz", gzip.compress(text.encode()))
    assert list(read_lines(packed)) == list(read_lines(plain))
    assert count_lines(packed) == count_lines(plain)


def test_unicode_separators_end_no_line(tmp_path):
    path = written(tmp_path / "text", "a\u2028b\nc\x85d\ne\n")
    assert list(read_lines(path)) == ["a\u2028b", "c\x85d", "e"]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbfein Wort\n", ["ein Wort"]),
        (b"a\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\n\n", ["", ""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\nb\rc", ["a\r", "b\rc"]),
        (b"a\nb", ["a", "b"]),
    ],
)
def test_endings_and_marks(tmp_path, content, lines):
    path = written(tmp_path / "text", content)
    assert list(read_lines(path)) == lines
    assert count_lines(path) == len(lines)


def test_the_name_does_not_make_it_gzip(tmp_path):
    """Gzip is known by its first bytes; a false name is refused, not read as text."""
    assert list(read_lines(written(tmp_path / "packed", gzip.compress(b"a\nb\n")))) == ["a", "b"]
    for content in (b"", b"<html>404</html>\n"):
        message = refusal(read_lines, written(tmp_path / "false.gz", content))
        assert "false.gz" in message
        assert "no gzip data" in message


def test_parts_of_a_gzip_file_are_joined(tmp_path):
    path = written(tmp_path / "parts.gz", gzip.compress(b"a\nb") + gzip.compress(b"c\nd\n"))
    assert list(read_lines(path)) == ["a", "bc", "d"]


def test_the_locale_does_not_matter(tmp_path):
    path = written(tmp_path / "text", "Größe, příliš, 我\n")
    code = "import sys; from pathlib import Path; from seq2seq.data.corpus import read_lines; "
    code += "print(ascii(list(read_lines(Path(sys.argv[1])))))"
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    output = subprocess.run(
        [sys.executable, "-c", code, path], env=environment, capture_output=True, check=True
    )
    assert output.stdout.decode().strip() == ascii(["Größe, příliš, 我"])


def test_memory_does_not_grow_with_the_file(tmp_path):
    path = written(tmp_path / "long", b"ein Satz von vielen\n" * 50_000)  # 1 MB
    files = ParallelFiles(path, path)
    tracemalloc.start()
    assert sum(1 for _ in read_parallel(files)) == 50_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300_000


# What is not text


def test_a_latin_1_file_is_refused_where_it_lies(tmp_path):
    path = written(tmp_path / "text", "ein Haus\nviele Häuser\n".encode("latin-1"))
    message = refusal(read_lines, path)
    assert f"{path}, line 2, byte column 8: 0xe4" in message
    assert "iconv -f LATIN1" in message


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_utf_16_file_is_recognised(tmp_path, encoding):
    path = written(tmp_path / "text", "ein Haus\nviele Leute\n".encode(encoding))
    message = refusal(read_lines, path)
    assert f"{path}, line 1, byte column" in message
    assert "iconv -f UTF-16" in message


def test_a_truncated_gzip_file_is_refused(tmp_path):
    packed = gzip.compress(b"".join(b"Satz %d\n" % number for number in range(1000)))
    whole = written(tmp_path / "whole.gz", packed)
    assert count_lines(whole) == 1000
    for size in (2, 5, 10, len(packed) // 2, len(packed) - 1):
        path = written(tmp_path / "cut.gz", packed[:size])
        assert f"{path} is damaged or cut short" in refusal(read_lines, path)


def test_a_damaged_gzip_file_is_refused(tmp_path):
    packed = bytearray(gzip.compress(bytes(range(10, 100)) * 20))
    packed[-6] ^= 0xFF  # in the check sum
    path = written(tmp_path / "damaged.gz", bytes(packed))
    assert f"{path} is damaged or cut short" in refusal(read_lines, path)


def test_a_missing_file_is_named(tmp_path):
    missing = tmp_path / "train.de"
    for reader in (read_lines, lambda path: [count_lines(path)]):
        message = refusal(reader, missing)
        assert str(missing) in message
        assert "data.root" in message


# Pairs


@settings(deadline=None)  # a busy disk is no fault
@given(sentences, st.sampled_from(["plain", "gzip", "table"]))
def test_pairs_never_shift(folder, lines, kind):
    """Each target is a copy of its source, blank lines and odd characters included."""
    content = "".join(line + "\n" for line in lines).encode()
    if kind == "table":
        rows = "".join(f"{line}\t{line}\n" for line in lines)
        files = table(folder, "de\ten\n" + rows)
    else:
        pack = gzip.compress if kind == "gzip" else bytes
        files = ParallelFiles(written(folder / "a", content), written(folder / "b", pack(content)))
    assert list(read_parallel(files)) == [SentencePair(line, line) for line in lines]


def test_one_separator_on_each_side_shifts_nothing(tmp_path):
    """Counts would agree even for a reader that breaks lines at U+2028; the pairs would not."""
    source = [f"Satz {number}" for number in range(10)]
    target = list(source)
    source[1] += "\u2028und"
    target[4] += "\u2028und"
    pairs = list(read_parallel(two_files(tmp_path, source, target)))
    assert pairs == [SentencePair(*pair) for pair in zip(source, target, strict=True)]


def test_a_blank_line_stays_in_its_pair(tmp_path):
    sentences = [f"Satz {number}" for number in range(20)]
    source = [*sentences[:6], "", *sentences[7:]]
    pairs = list(read_parallel(two_files(tmp_path, source, sentences)))
    assert len(pairs) == 20
    assert pairs.pop(6) == ("", "Satz 6")
    assert all(pair.source == pair.target for pair in pairs)


@pytest.mark.parametrize("longer", ["source", "target"])
def test_an_extra_line_is_found(tmp_path, longer):
    lines = [f"Satz {number}" for number in range(100)]
    sides = {"source": lines, "target": lines, longer: [*lines[:50], "", *lines[50:]]}
    files = two_files(tmp_path, **sides)
    message = refusal(read_parallel, files)
    for side, path in (("source", files.source), ("target", files.target)):
        assert f"{path} has {len(sides[side])}" in message
    assert "Look near line 51" in message


@pytest.mark.parametrize("lost", [100, 250, 400])
def test_a_lost_line_is_found_by_lengths_alone(tmp_path, lost):
    lengths = [int(hashlib.sha256(b"%d" % number).hexdigest(), 16) % 90 for number in range(500)]
    source = ["a" * (5 + length) for length in lengths]
    target = ["b" * (7 + length + length % 3) for length in lengths]
    del target[lost - 1]
    message = refusal(read_parallel, two_files(tmp_path, source, target))
    near = int(message.split("Look near line ")[1].split(":")[0])
    assert abs(near - lost) <= 3


def test_extra_lines_at_the_end_are_counted_and_not_sought_elsewhere(tmp_path):
    source = ["ein Satz"] * 30
    message = refusal(read_parallel, two_files(tmp_path, source, [*source, *["noch einer"] * 12]))
    assert "30 lines" in message
    assert "42" in message
    assert "compare the ends" in message


def test_an_empty_side_is_a_difference(tmp_path):
    message = refusal(read_parallel, two_files(tmp_path, [], ["ein Satz"]))
    assert "0 lines" in message
    assert list(read_parallel(two_files(tmp_path, [], []))) == []


# Tables


def test_a_quotation_mark_opens_nothing(tmp_path):
    files = table(tmp_path, 'de\ten\neins\tone\n"zwei\t"two\ndrei"\tthree\n')
    assert list(read_parallel(files)) == [("eins", "one"), ('"zwei', '"two'), ('drei"', "three")]


def test_columns_are_chosen_by_name(tmp_path):
    content = "\ufeffid\ten\tde\r\n1\tone\teins\r\n2\t\tzwei\r\n"
    assert list(read_parallel(table(tmp_path, content))) == [("eins", "one"), ("zwei", "")]
    assert list(read_parallel(table(tmp_path, content, "en", "id"))) == [("one", "1"), ("", "2")]


def test_a_packed_table_is_a_table(tmp_path):
    path = written(tmp_path / "text.tsv.gz", gzip.compress(b"de\ten\neins\tone\n"))
    files = ParallelFiles(path, path, None, "de", "en")
    assert list(read_parallel(files)) == [("eins", "one")]


def test_pairs_can_be_numbered_by_their_lines(tmp_path):
    assert two_files(tmp_path, [], []).first_line == 1
    assert table(tmp_path, "de\ten\neins\tone\n").first_line == 2


@pytest.mark.parametrize("column", ["fr", "", None])
def test_a_missing_column_is_answered_with_those_that_exist(tmp_path, column):
    message = refusal(read_parallel, table(tmp_path, "de\ten\n", target=column))
    assert f"{column!r}" in message
    assert "'de', 'en'" in message
    assert "data.target_column=" in message


def test_a_doubtful_table_is_refused(tmp_path):
    assert "'de', 'de', 'en'" in refusal(read_parallel, table(tmp_path, "de\tde\ten\n"))
    assert "are both de" in refusal(read_parallel, table(tmp_path, "de\ten\n", "de", "de"))
    assert "line 1" in refusal(read_parallel, table(tmp_path, ""))
    split = ParallelFiles(tmp_path / "a.tsv", tmp_path / "b.tsv", None, "de", "en")
    assert "one table for both" in refusal(read_parallel, split)


@pytest.mark.parametrize("row", ["zwei", "zwei\ttwo\tdeux", ""])
def test_a_row_with_other_fields_is_refused(tmp_path, row):
    files = table(tmp_path, f"de\ten\neins\tone\n{row}\ndrei\tthree\n")
    message = refusal(read_parallel, files)
    assert f"{files.source}, line 3: {row.count(chr(9)) + 1} fields" in message
    assert "header has 2" in message


# The report


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("a", "b", None),
        ("\u200b", ".", None),  # zero width, but no white space
        (" \t", "b", DropReason.BLANK_SOURCE),
        ("a", "\u3000\xa0", DropReason.BLANK_TARGET),
        ("", "\u2028\x85", DropReason.BOTH_BLANK),
    ],
)
def test_blank_is_white_space_only(source, target, reason):
    assert blank_side(SentencePair(source, target)) is reason


@settings(deadline=None)  # a busy disk is no fault
@given(st.lists(st.none() | st.sampled_from(DropReason)))
def test_the_report_accounts_for_every_pair(decisions):
    report = CorpusReport()
    for number, reason in enumerate(decisions, start=1):
        if reason is None:
            report.keep()
        else:
            report.drop(reason, number)
    counts = report.to_dict()
    dropped = counts["dropped"].values()
    assert counts["read"] == len(decisions)
    assert counts["read"] == counts["kept"] + sum(reason["count"] for reason in dropped)
    for reason, part in counts["dropped"].items():
        numbers = [n for n, decision in enumerate(decisions, start=1) if decision == reason]
        assert part == {"count": len(numbers), "first_lines": numbers[:5]}
    assert json.loads(json.dumps(counts)) == counts
    assert len(report.lines()) == 1 + len(dropped)


def test_the_report_reads_well():
    report = CorpusReport(kept=1234)
    for number in range(10, 17):
        report.drop(DropReason.SOURCE_TOO_LONG, number)
    report.drop(DropReason.BLANK_SOURCE, 37)
    assert report.lines() == [
        "read 1,242 pairs, kept 1,234",
        "dropped 1: blank source (line 37)",
        "dropped 7: source too long (line 10, 11, 12, 13, 14, ...)",
    ]


def test_the_digest_is_that_of_the_bytes(tmp_path):
    content = gzip.compress(b"a\r\nb\n")
    assert file_digest(written(tmp_path / "a.gz", content)) == hashlib.sha256(content).hexdigest()


# --- a stream, such as stdin ----------------------------------------------------------------

LINES = st.lists(st.text(st.sampled_from("ab é人" + FALSE_ENDINGS), max_size=5))


def streamed(content):
    return list(read_stream(io.BytesIO(content), "stdin"))


@given(LINES.map(lambda lines: [line.rstrip("\r") for line in lines]))
def test_only_a_line_feed_ends_a_line_of_a_stream(lines):
    content = "".join(f"{line}\n" for line in lines).encode()
    assert streamed(content) == lines
    assert streamed(content.replace(b"\n", b"\r\n")) == lines


def test_a_stream_is_read_as_a_file_is(tmp_path):
    file = tmp_path / "file"
    for content in (b"a\n\nb", b"a\n\nb\n", b"\n", b"", b"a\r", codecs.BOM_UTF8,
                    "\ufeffa\n\ufeffb\n".encode()):  # fmt: skip
        file.write_bytes(content)
        assert streamed(content) == list(read_lines(file))


def test_a_line_of_a_stream_that_is_no_text_is_named():
    with pytest.raises(ValueError, match=r"^stdin, line 3, byte column 2: 0xfc"):
        streamed("eins\nzwei\nfür\nvier\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"^stdin, line 1, byte column 2: 0x00"):
        streamed("eins\n".encode("utf-16-le"))
