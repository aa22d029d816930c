"""Sentence pairs are read from text files and tables; test_hostile.py covers unusual content."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.data.reading import ParallelFiles, SentencePair, read_lines, read_parallel
from seq2seq.data.report import CorpusReport, DropReason, find_drop_reason


def written(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def two_files(folder, source, target):
    return ParallelFiles(
        *(
            written(folder / name, "".join(line + "\n" for line in lines))
            for name, lines in (("text.source", source), ("text.target", target))
        )
    )


def table(folder, content, source="de", target="en"):
    path = written(folder / "text.tsv", content)
    return ParallelFiles(path, path, source_column=source, target_column=target)


def refusal(files):
    """The message with which the files are refused, which must be one line."""
    with pytest.raises((ValueError, OSError)) as caught:
        list(read_parallel(files))
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- files


@pytest.mark.guarantee("Text is read as UTF-8 in every locale.")
def test_locale_does_not_matter(tmp_path):
    path = written(tmp_path / "text", "Größe, příliš, 我\n")
    code = "import sys; from pathlib import Path; from seq2seq.data.reading import read_lines; "
    code += "print(ascii(list(read_lines(Path(sys.argv[1])))))"
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    output = subprocess.run(
        [sys.executable, "-c", code, path], env=environment, capture_output=True, check=True
    )
    assert output.stdout.decode().strip() == ascii(["Größe, příliš, 我"])


@pytest.mark.guarantee("Memory for reading a corpus does not grow with its size.")
def test_memory_does_not_grow_with_the_file(tmp_path):
    path = written(tmp_path / "long", b"ein Satz von vielen\n" * 50_000)  # 1 MB
    tracemalloc.start()
    assert sum(1 for _ in read_parallel(ParallelFiles(path, path))) == 50_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300_000


def test_missing_file_and_folder_are_named(tmp_path):
    missing = tmp_path / "train.de"
    message = refusal(ParallelFiles(missing, missing))
    assert str(missing) in message
    assert "data.root" in message
    with pytest.raises(OSError, match=rf"{tmp_path} cannot be read \(Is a directory\)"):
        list(read_lines(tmp_path))


# --- pairs


@pytest.mark.guarantee(
    "Pairs never shift: a pair is kept or dropped as a whole, and its lines have the same number."
)
def test_blank_lines_and_unicode_separators_do_not_shift_pairs(tmp_path):
    """A reader that splits at U+2028 would find equal counts here, but wrong pairs."""
    source = [f"Satz {number}" for number in range(20)]
    target = list(source)
    source[1] += "\u2028und"
    target[4] += "\u2028und"
    source[6] = ""
    pairs = list(read_parallel(two_files(tmp_path, source, target)))
    assert pairs == [SentencePair(*pair) for pair in zip(source, target, strict=True)]


@pytest.mark.guarantee(
    "Files with different numbers of lines are refused with both numbers and a place to look."
)
@pytest.mark.parametrize("longer", ["source", "target"])
def test_extra_line_is_located(tmp_path, longer):
    lines = [f"Satz {number}" for number in range(100)]
    texts = {"source": lines, "target": lines, longer: [*lines[:50], "", *lines[50:]]}
    files = two_files(tmp_path, **texts)
    message = refusal(files)
    for name, path in (("source", files.source), ("target", files.target)):
        assert f"{path} has {len(texts[name])}" in message
    assert "Look near line 51" in message


@pytest.mark.guarantee(
    "Files with different numbers of lines are refused with both numbers and a place to look."
)
@pytest.mark.parametrize("lost", [100, 250, 400])
def test_lost_line_is_located_by_lengths(tmp_path, lost):
    lengths = [int(hashlib.sha256(b"%d" % number).hexdigest(), 16) % 90 for number in range(500)]
    source = ["a" * (5 + length) for length in lengths]
    target = ["b" * (7 + length + length % 3) for length in lengths]
    del target[lost - 1]
    message = refusal(two_files(tmp_path, source, target))
    near = int(message.split("Look near line ")[1].split(":")[0])
    assert abs(near - lost) <= 3


@pytest.mark.parametrize("num_sources", [0, 30])
def test_extra_lines_at_the_end_are_counted(tmp_path, num_sources):
    source = ["ein Satz"] * num_sources
    message = refusal(two_files(tmp_path, source, [*source, *["noch einer"] * 12]))
    assert f"{num_sources} lines" in message
    assert f"has {num_sources + 12}," in message
    assert "compare the ends" in message


# --- tables


@pytest.mark.guarantee("In tab-separated text, quotation marks are ordinary characters.")
def test_quotation_marks_are_ordinary_characters(tmp_path):
    files = table(tmp_path, 'de\ten\neins\tone\n"zwei\t"two\ndrei"\tthree\n')
    assert list(read_parallel(files)) == [("eins", "one"), ('"zwei', '"two'), ('drei"', "three")]
    assert files.first_line == 2
    assert ParallelFiles(tmp_path / "a", tmp_path / "b").first_line == 1


def test_columns_are_chosen_by_name(tmp_path):
    content = "\ufeffid\ten\tde\r\n1\tone\teins\r\n2\t\tzwei\r\n"
    assert list(read_parallel(table(tmp_path, content))) == [("eins", "one"), ("zwei", "")]
    assert list(read_parallel(table(tmp_path, content, "en", "id"))) == [("one", "1"), ("", "2")]
    path = written(tmp_path / "text.tsv.gz", gzip.compress(content.encode()))
    assert len(list(read_parallel(ParallelFiles(path, path, None, "de", "en")))) == 2


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("de\ten\n", ("de", "fr"), r"'fr' once.*'de', 'en'.*data\.target_column="),
        ("de\ten\n", ("de", None), r"line 1.*None once"),
        ("de\ten\n", ("de", "de"), r"are both de"),
        ("de\tde\ten\n", ("de", "en"), r"'de' once.*'de', 'de', 'en'"),
        ("", ("de", "en"), r"line 1"),
        ("de\ten\n", (None, None), r"two text files are needed"),
        *(
            (f"de\ten\neins\tone\n{row}\n", ("de", "en"), rf"line 3: {count} fields.*header has 2")
            for row, count in (("zwei", 1), ("zwei\ttwo\tdeux", 3), ("", 1))
        ),
    ],
)
def test_unusable_table_is_refused(tmp_path, content, columns, message):
    with pytest.raises(ValueError, match=message):
        list(read_parallel(table(tmp_path, content, *columns)))


def test_two_tables_are_refused(tmp_path):
    files = ParallelFiles(tmp_path / "a.tsv", tmp_path / "b.tsv", None, "de", "en")
    assert "one table for both" in refusal(files)


# --- report


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("a", "b c", None),
        ("\u200b", ".", None),  # zero width, but not white space
        (" \t", "b", DropReason.BLANK_SOURCE),
        ("a", "\u3000\xa0", DropReason.BLANK_TARGET),
        ("", "\u2028\x85", DropReason.BOTH_BLANK),
        ("a b c", "a", DropReason.SOURCE_TOO_LONG),
        ("a", "a b c", DropReason.TARGET_TOO_LONG),
    ],
)
def test_blank_and_long_pairs_have_a_drop_reason(source, target, reason):
    tokens = [source.split(), target.split()]
    assert find_drop_reason(SentencePair(source, target), tokens, 2) is reason


@pytest.mark.guarantee(
    "Blank and overlong training pairs are dropped, counted, and reported with their line numbers."
)
@given(st.lists(st.none() | st.sampled_from(DropReason)))
def test_report_accounts_for_every_pair(decisions):
    report = CorpusReport()
    for number, reason in enumerate(decisions, start=1):
        report.add(reason, number)
    counts = report.to_dict()
    assert counts["read"] == len(decisions)
    assert counts["kept"] == decisions.count(None)
    for reason, entry in counts["dropped"].items():
        numbers = [n for n, decision in enumerate(decisions, start=1) if decision == reason]
        assert entry == {"count": len(numbers), "first_lines": numbers[:5]}
    restored = CorpusReport.from_dict(json.loads(json.dumps(counts)))
    assert restored.lines() == report.lines()
    assert len(report.lines()) == 1 + len(counts["dropped"])


def test_report_is_readable():
    report = CorpusReport(kept=1234)
    for number in range(10, 17):
        report.add(DropReason.SOURCE_TOO_LONG, number)
    assert report.lines() == [
        "read 1,241 pairs, kept 1,234",
        "dropped 7: source too long (line 10, 11, 12, 13, 14, ...)",
    ]
