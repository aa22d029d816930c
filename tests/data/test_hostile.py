"""Unusual content: every line keeps its number, or is refused with its number."""

import gzip
import io
import re
import types
from itertools import pairwise

import pytest
from conftest import ROOT
from hypothesis import example, given
from hypothesis import strategies as st

from seq2seq.data.reading import ParallelFiles, read_lines, read_parallel, read_stream
from seq2seq.data.vocabulary import SPECIALS, UnknownTokenCounter, Vocabulary

BOM = b"\xef\xbb\xbf"
BLANKS = "\t\v\f \x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2007\u200a\u2028\u2029\u202f\u205f\u3000"
TEN_MEGABYTES = b"a" * 10_000_000

# Name, bytes, and the lines they contain (None: see ``expected_lines``).
READ = [
    ("U+2028 and U+2029", "a\u2028b\nc\u2029d\n".encode(), ["a\u2028b", "c\u2029d"]),
    ("U+0085", "a\x85b\nc\n".encode(), ["a\x85b", "c"]),
    ("vertical tab, form feed", b"a\vb\nc\fd\n", ["a\vb", "c\fd"]),
    ("file, group, record, unit separator", b"\x1ca\x1d\n\x1e\x1f\n", ["\x1ca\x1d", "\x1e\x1f"]),
    ("CR alone", b"a\rb\rc", ["a\rb\rc"]),
    ("CRLF", b"a\r\nb\r\n", ["a", "b"]),
    ("LF, CRLF and CR mixed", b"a\nb\r\nc\rd\r\r\n\r\n", ["a", "b", "c\rd\r", ""]),
    ("LFCR", b"a\n\rb\n\r", ["a", "\rb", "\r"]),
    ("no final LF", b"a\nb", ["a", "b"]),
    ("no final LF after a CR", b"a\nb\r", ["a", "b\r"]),
    ("empty", b"", []),
    ("only line feeds", b"\n\n\n", ["", "", ""]),
    ("BOM", BOM + b"a\nb\n", ["a", "b"]),
    ("BOM and nothing else", BOM, []),
    ("BOM on a line of its own", BOM + b"\na\n", ["", "a"]),
    ("BOM twice", BOM + BOM + b"a\n", ["\ufeffa"]),
    ("BOM in the middle", b"a\n" + BOM + b"b\n", ["a", "\ufeffb"]),
    ("blanks of every kind", f"{BLANKS}\n{BLANKS}".encode(), [BLANKS, BLANKS]),
    ("zero width", "\u200b\n\u200d\u2060\n".encode(), ["\u200b", "\u200d\u2060"]),
    ("right-to-left marks", "\u200f\u202eא\u202c\n\u2067ب\u2069\n".encode(), None),
    ("combining marks", ("a" + "\u0301" * 500 + "\n\u0301\n").encode(), None),
    ("beyond the first plane", "😀👩‍👩‍👧\U0010ffff\n𝔞\n".encode(), None),
    ("control characters", bytes(sorted({*range(1, 32)} - {10})) + b"\n\x7f\n", None),
    ("quotation marks", b"\"a\nb\"\n'\n\"\"\n", ['"a', 'b"', "'", '""']),
    ("tabs", b"a\tb\n\t\n", ["a\tb", "\t"]),
    ("escapes", b"\\n\\0&#10;%0A\n<s></s>\n", ["\\n\\0&#10;%0A", "<s></s>"]),
    ("5,000 tokens", b"wort " * 5000 + b"\nb\n", ["wort " * 5000, "b"]),
    ("one line of 10 MB", TEN_MEGABYTES + b"\nb\n", [TEN_MEGABYTES.decode(), "b"]),
]  # fmt: skip
# Name, bytes, number of the invalid line, and what else the message says.
REFUSED = [
    ("NUL", b"a\nb\0c\n", 2, "byte column 2: 0x00"),
    ("surrogates as in CESU-8", b"a\n\xed\xa0\xbd\xed\xb8\x80\n", 2, "byte column 1: 0xed"),
    ("lone surrogate", b"a\nb\n\xed\xb0\x80", 3, "byte column 1: 0xed"),
    ("overlong", b"a\xc0\xafb\n", 1, "byte column 2: 0xc0"),
    ("overlong NUL", b"\xc0\x80\n", 1, "byte column 1: 0xc0"),
    ("beyond Unicode", b"a\n\xf4\x90\x80\x80\n", 2, "byte column 1: 0xf4"),
    ("truncated at the end", "a\nä".encode()[:-1], 2, "byte column 1: 0xc3"),
    ("truncated by a line feed", b"a\xe2\x80\nb\n", 1, "byte column 2: 0xe2"),
    ("continuation alone", b"a\n\n\x80\n", 3, "byte column 1: 0x80"),
    ("Latin-1", "viele Häuser\n".encode("latin-1"), 1, "LATIN1"),
    ("Windows-1252", "„so“\n".encode("cp1252"), 1, "byte column 1: 0x84"),
    ("UTF-16", "ein Haus\n".encode("utf-16"), 1, "UTF-16"),
    ("UTF-16 without BOM", "ein Haus\n".encode("utf-16-be"), 1, "UTF-16"),
    ("UTF-32", "ein Haus\n".encode("utf-32"), 1, "UTF-16"),
    ("Shift JIS", "日本\n".encode("shift_jis"), 1, "byte column 1: 0x93"),
    ("bzip2", b"BZh91AY&SY\xff\xff", 1, "bzip2"),
    ("xz", b"\xfd7zXZ\x00\x00\x04", 1, "xz"),
    ("zip", b"PK\x03\x04\x14\x00\x00", 1, "zip"),
    ("zstd", b"\x28\xb5\x2f\xfd\x04\x00", 1, "zstd"),
    ("gzip within gzip", gzip.compress(gzip.compress(b"a\n")), 1, "packed twice"),
]  # fmt: skip


def expected_lines(content):
    """Split at LF, by definition."""
    content = content.removeprefix(BOM)
    *ended, rest = content.split(b"\n")
    return [line.removesuffix(b"\r").decode() for line in ended] + [rest.decode()] * bool(rest)


@pytest.mark.guarantee("Only a line feed ends a line, so a file has as many lines as line feeds.")
@pytest.mark.parametrize(("name", "content", "lines"), READ, ids=[name for name, *_ in READ])
def test_text_is_read_line_by_line(tmp_path, name, content, lines):
    plain, packed = tmp_path / "text", tmp_path / "text.gz"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content, 1))
    lines = expected_lines(content) if lines is None else lines
    assert lines == expected_lines(content)
    assert list(read_stream(io.BytesIO(content), "stdin")) == lines
    for path in (plain, packed):
        assert list(read_lines(path)) == lines
        pairs = list(read_parallel(ParallelFiles(path, path)))
        assert pairs == [(line, line) for line in lines]


@pytest.mark.guarantee("Text that is not UTF-8 is refused, with file, line and column.")
@pytest.mark.parametrize(
    ("name", "content", "number", "says"), REFUSED, ids=[name for name, *_ in REFUSED]
)
def test_invalid_text_is_refused_by_file_and_line(tmp_path, name, content, number, says):
    path = tmp_path / "text"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(f"{path}, line {number}, ")) as error:
        list(read_lines(path))
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    if "gzip" not in name:  # which is only detected in files
        with pytest.raises(ValueError, match=rf"^stdin, line {number}, "):
            list(read_stream(io.BytesIO(content), "stdin"))


LINE_TEXTS = st.lists(
    st.text(
        st.sampled_from("\"' \ufeff\u2028\u2029\x85\v\f\x1c\x1d\x1e\r")
        | st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\t"),
        max_size=9,
    ),
    max_size=9,
)


def gzip_members(content, cuts):
    """A gzip file of several members, cut anywhere, even within a character or a BOM."""
    ends = sorted({0, *(cut % (len(content) + 1) for cut in cuts), len(content)})
    members = [gzip.compress(content[a:b], 1) for a, b in pairwise(ends)]
    return b"".join(members) or gzip.compress(b"")


@pytest.mark.guarantee(
    "Pairs never shift: a pair is kept or dropped as a whole, and its lines have the same number."
)
@given(LINE_TEXTS, LINE_TEXTS, st.lists(st.integers(0, 999), max_size=4), st.booleans())
@example(["a"], ["b"], [1], False)  # the byte-order mark spans two members
def test_lines_of_a_pair_have_the_same_number(tmp_path_factory, some, others, cuts, crlf):
    """Source and target have different text, line ends and compression."""
    folder = tmp_path_factory.getbasetemp()
    count = min(len(some), len(others))
    texts = []
    for lines, end in ((some, "\r\n" if crlf else "\n"), (others, "\n")):
        text = "".join(f"{i}|{line}|{end}" for i, line in enumerate(lines[:count]))
        texts.append(BOM + text.encode())
    source, target = folder / "hostile.source", folder / "hostile.target.gz"
    source.write_bytes(texts[0])
    target.write_bytes(gzip_members(texts[1], cuts))
    pairs = list(read_parallel(ParallelFiles(source, target)))
    assert pairs == [(f"{i}|{some[i]}|", f"{i}|{others[i]}|") for i in range(count)]
    table = folder / "hostile.tsv"
    rows = "".join(f"{a}\tx\t{b}\n" for a, b in pairs)
    table.write_bytes(BOM + b"de\tother\ten\n" + rows.encode())
    assert list(read_parallel(ParallelFiles(table, table, None, "de", "en"))) == pairs


@pytest.mark.guarantee("Only a line feed ends a line, so a file has as many lines as line feeds.")
@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_give_all_lines_or_a_refusal(tmp_path_factory, some, more):
    path = tmp_path_factory.getbasetemp() / "any bytes"
    content = some + b"\n" + more
    path.write_bytes(content)
    try:
        content.replace(b"\0", b"\xff").decode()
    except UnicodeDecodeError:
        with pytest.raises(ValueError, match=re.escape(str(path))) as error:
            list(read_lines(path))
        assert "\n" not in str(error.value)
    else:
        assert list(read_lines(path)) == expected_lines(content)


@pytest.mark.guarantee("A gzip file is read completely or refused.")
@pytest.mark.parametrize("damage", ["truncated", "header only", "flipped", "trailing", "padded"])
def test_damaged_gzip_is_refused(tmp_path, damage):
    lines = [f"Satz {n}" for n in range(200)]
    packed = gzip.compress("\n".join(lines).encode())
    middle = len(packed) // 2
    content = {
        "truncated": packed[:middle],
        "header only": packed[:5],
        "flipped": packed[:middle] + bytes([packed[middle] ^ 0xFF]) + packed[middle + 1 :],
        "trailing": packed + b"garbage",
        "padded": packed + b"\0" * 100,  # padding, as tapes add it; the format allows it
    }[damage]
    path = tmp_path / "text"  # the content decides, not the name
    path.write_bytes(content)
    if damage == "padded":
        assert list(read_lines(path)) == lines
        return
    with pytest.raises(ValueError, match=r"text is damaged or cut short"):
        list(read_lines(path))


@pytest.mark.parametrize("content", [b"", b"<html>404</html>\n"])
@pytest.mark.parametrize("name", ["text.gz", "TEXT.GZ"])
def test_other_content_named_gz_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name} is named \.gz but holds no gzip data"):
        list(read_lines(tmp_path / name))


@pytest.mark.guarantee(
    "Files with different numbers of lines are refused with both numbers and a place to look."
)
@given(LINE_TEXTS, LINE_TEXTS)
def test_different_numbers_of_lines_are_refused(tmp_path_factory, some, more):
    folder = tmp_path_factory.getbasetemp()
    longer = [*some, *more, "x"]
    files = ParallelFiles(folder / "shorter", folder / "longer")
    for path, lines in zip(files[:2], (some, longer), strict=True):
        path.write_bytes("".join(f"|{line}\n" for line in lines).encode())
    with pytest.raises(ValueError, match="must translate line n") as error:
        list(read_parallel(files))
    assert f"{files.source} has {len(some)} lines" in str(error.value)
    assert f"{files.target} has {len(longer)}," in str(error.value)


# --- lines of translate.py


@pytest.fixture(scope="module")
def translate():
    """``scripts/translate.py``, with chunks of three lines."""
    module = types.ModuleType("translate")
    source = (ROOT / "scripts" / "translate.py").read_text(encoding="utf-8")
    exec(compile(source, "translate.py", "exec"), module.__dict__)
    module.CHUNK = 3
    return module


class Echo:
    """Translates a sentence to its number, itself, and characters that would shift lines."""

    def __init__(self):
        self.count = 0

    def translate_num_best(self, sentences, num_best):
        found = []
        for sentence in sentences:
            self.count += 1
            text = f"{self.count}|{sentence}|\n\r\t"
            best = types.SimpleNamespace(text=text, score=-1.0, source_tokens=[sentence, "</s>"])
            found.append([best] * num_best)
        return found


def outputs(translate, content, num_best=1):
    unknown = UnknownTokenCounter("source", Vocabulary(SPECIALS))
    texts = translate.translated(Echo(), io.BytesIO(content), num_best, unknown)
    return "".join(text + "\n" for text in texts).removesuffix("\n").split("\n")


@pytest.mark.guarantee("Line n of the output translates line n of the input.")
@pytest.mark.parametrize(("name", "content", "lines"), READ, ids=[name for name, *_ in READ])
def test_output_line_i_belongs_to_input_line_i(translate, name, content, lines):
    lines = content.decode("utf-8-sig").split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    written = outputs(translate, content)
    if not lines:
        assert written == [""]
        return
    assert [int(line.split("|")[0]) for line in written] == list(range(1, len(lines) + 1))
    for line, text in zip(written, lines, strict=True):
        assert text.strip("\r\ufeff").replace("\r", " ") in line


@pytest.mark.guarantee("Line n of the output translates line n of the input.")
@given(LINE_TEXTS)
def test_any_input_keeps_its_line_numbers(translate, lines):
    content = "".join(f"{line}|\n" for line in lines).encode()
    for num_best in (1, 2):
        written = outputs(translate, content, num_best)
        assert len(written) == max(1, len(lines) * num_best)
        if lines and num_best > 1:
            rows = [line.split("\t") for line in written]
            numbers = [i for i in range(1, len(lines) + 1) for _ in range(num_best)]
            assert [int(number) for number, _, _ in rows] == numbers
            assert [int(text.split("|")[0]) for _, text, _ in rows] == numbers
