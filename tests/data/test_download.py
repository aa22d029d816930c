"""A named corpus is on disk with exactly the right bytes, or one line says what to do."""

import gzip
import hashlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import ROOT

from seq2seq.data import download
from seq2seq.data.corpus import count_lines, file_digest
from seq2seq.data.download import CORPORA, NamedCorpus, NamedFile, ensure_corpus

CONTENTS = {
    "train.de.gz": gzip.compress(b"".join(b"Satz %d\n" % n for n in range(20_000))),
    "train.en": b"one\ntwo\nthree\n",
}
NUM_LINES = {"train.de.gz": 20_000, "train.en": 3}
BIG = "train.de.gz"  # several blocks, so that a transfer can break off in the middle


class Server(ThreadingHTTPServer):
    """Delivers ``CONTENTS``; ``fault`` is what it does wrong with the next requests."""

    daemon_threads = True
    fault: str | int | None = None
    knows_ranges = True
    requests: list[str]
    ranges: list[str | None]  # what each request asked for
    released: threading.Event  # ends a stall when the test is over

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/corpus"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.server.requests.append(self.path)
        self.server.ranges.append(self.headers["Range"])
        fault, content = self.server.fault, CONTENTS[Path(self.path).name]
        if isinstance(fault, int):
            self.send_error(fault)
            return
        if fault == "other content":
            content = b"<html>Please log in</html>"
        if self.headers["Range"] and self.server.knows_ranges:
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            sent = 0 if fault == "other part" else start
            self.send_header("Content-Range", f"bytes {sent}-{len(content) - 1}/{len(content)}")
            content = content[sent:]
        else:
            self.send_response(200)
        if fault != "no length":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if fault == "stalled":
            self.wfile.write(content[: len(content) // 2])
            self.server.released.wait(10)
        elif fault in ("truncated", "no length"):
            self.wfile.write(content[: len(content) // 2])
        else:
            self.wfile.write(content)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    running = Server(("127.0.0.1", 0), Handler)
    running.requests, running.ranges, running.released = [], [], threading.Event()
    thread = threading.Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    yield running
    running.released.set()
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture(autouse=True)
def tiny(monkeypatch, server):
    """A corpus named ``tiny`` whose home is the test's own server, whatever proxy is set."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    files = {
        name: NamedFile(name, hashlib.sha256(content).hexdigest(), NUM_LINES[name])
        for name, content in CONTENTS.items()
    }
    corpus = NamedCorpus(server.url, "free", files)
    monkeypatch.setitem(CORPORA, "tiny", corpus)
    return corpus


def contents(root: Path) -> dict[str, bytes]:
    """All that lies in a folder, hidden and temporary files included."""
    return {path.name: path.read_bytes() for path in root.iterdir()}


def refusal(*arguments, error: type[Exception] = OSError, **keywords) -> str:
    """The message with which the corpus is refused, which must be one line."""
    with pytest.raises(error) as caught:
        ensure_corpus(*arguments, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def leftover(root: Path, name: str = BIG) -> Path:
    """Where the first part of an interrupted download waits."""
    return root / f".{name}.partial"


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# What works


def test_all_files_are_fetched_once(tmp_path, server):
    root = tmp_path / "new" / "folder"
    ensure_corpus("tiny", root)
    assert contents(root) == CONTENTS
    assert server.requests == [f"/corpus/{name}" for name in CONTENTS]
    ensure_corpus("tiny", root)
    assert len(server.requests) == 2


def test_files_that_are_there_need_no_server(tmp_path, server):
    for name, content in CONTENTS.items():
        (tmp_path / name).write_bytes(content)
    server.fault = 500
    ensure_corpus("tiny", tmp_path)
    assert server.requests == []


def test_only_needed_files_are_fetched(tmp_path):
    ensure_corpus("tiny", tmp_path, ["train.en", "train.en"])
    assert contents(tmp_path) == {"train.en": CONTENTS["train.en"]}


@pytest.mark.parametrize("ending", ["", "/"])
def test_a_mirror_replaces_the_home(tmp_path, server, monkeypatch, tiny, ending):
    monkeypatch.setitem(CORPORA, "tiny", tiny._replace(url="http://127.0.0.1:9/"))
    ensure_corpus("tiny", tmp_path, url=server.url + ending)
    assert contents(tmp_path) == CONTENTS


def test_a_mirror_may_be_a_folder(tmp_path, server):
    mirror = tmp_path / "a mirror"
    mirror.mkdir()
    for name, content in CONTENTS.items():
        (mirror / name).write_bytes(content)
    ensure_corpus("tiny", tmp_path / "root", url=mirror.as_uri())
    assert contents(tmp_path / "root") == CONTENTS
    assert server.requests == []
    (mirror / "train.en").unlink()
    message = refusal("tiny", tmp_path / "other", ["train.en"], mirror.as_uri())
    assert "cannot be reached" in message


def test_others_may_read_what_was_fetched(tmp_path):
    """As readable as any file that the user makes: a shared folder serves a whole team."""
    ensure_corpus("tiny", tmp_path)
    (tmp_path / "made").touch()
    assert (tmp_path / "train.en").stat().st_mode == (tmp_path / "made").stat().st_mode


def test_several_may_fetch_at_once(tmp_path):
    failures = []

    def fetch():
        try:
            ensure_corpus("tiny", tmp_path)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert contents(tmp_path) == CONTENTS


# What goes wrong on the way


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (404, "HTTP 404"),
        (500, "HTTP 500"),
        ("truncated", "broke off after"),
        ("no length", "SHA-256"),  # truncated as well, but only the sum can tell
        ("other content", "SHA-256"),
        ("stalled", "silent for 0.2 s"),
    ],
)
def test_a_faulty_transfer_leaves_no_file_and_can_be_repeated(tmp_path, server, fault, reason):
    server.fault = fault
    start = time.monotonic()
    message = refusal("tiny", tmp_path, [BIG], stall_seconds=0.2)
    assert time.monotonic() - start < 5
    assert reason in message
    assert f"{server.url}/{BIG}" in message
    assert "data.root=" in message
    assert "data.url=" in message
    broke_off = fault in ("truncated", "stalled")  # what came is gone on with, what is wrong is not
    assert set(contents(tmp_path)) == ({leftover(tmp_path).name} if broke_off else set())

    server.fault = None
    ensure_corpus("tiny", tmp_path, [BIG])
    assert contents(tmp_path) == {BIG: CONTENTS[BIG]}


def test_an_unreachable_server_is_told_in_one_line(tmp_path):
    message = refusal("tiny", tmp_path, url=f"http://127.0.0.1:{closed_port()}/")
    assert "cannot be reached" in message
    assert "data.root=" in message
    assert contents(tmp_path) == {}


def test_files_fetched_before_the_fault_stay(tmp_path, server):
    ensure_corpus("tiny", tmp_path, [BIG])
    server.fault = 404
    refusal("tiny", tmp_path)
    assert contents(tmp_path) == {BIG: CONTENTS[BIG]}


def test_a_wrong_number_of_lines_is_refused(tmp_path, monkeypatch, tiny):
    file = tiny.files["train.en"]._replace(num_lines=4)
    monkeypatch.setitem(CORPORA, "tiny", tiny._replace(files={"train.en": file}))
    message = refusal("tiny", tmp_path)
    assert "3 lines instead of 4" in message
    assert contents(tmp_path) == {}


# What was interrupted


def half(root: Path) -> bytes:
    """The first half of the big file, as an interrupted download leaves it."""
    part = CONTENTS[BIG][: len(CONTENTS[BIG]) // 2]
    leftover(root).write_bytes(part)
    return part


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interruption_leaves_no_file_but_what_came(tmp_path, monkeypatch, server, stop):
    """In the middle of the body, and again just before the file gets its name."""

    def interrupt(*arguments):
        raise stop

    def interrupted_blocks(*arguments):
        yield 0, CONTENTS[BIG][:1000]
        interrupt()

    for name, replacement, size in (
        ("_blocks", interrupted_blocks, 1000),
        ("count_lines", interrupt, len(CONTENTS[BIG])),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(download, name, replacement)
            with pytest.raises(stop):
                ensure_corpus("tiny", tmp_path, [BIG])
        assert contents(tmp_path) == {leftover(tmp_path).name: CONTENTS[BIG][:size]}
    ensure_corpus("tiny", tmp_path, [BIG])
    assert contents(tmp_path) == {BIG: CONTENTS[BIG]}


def test_only_the_rest_is_fetched(tmp_path, server):
    server.fault = "truncated"
    assert "broke off" in refusal("tiny", tmp_path, [BIG])
    came = leftover(tmp_path).stat().st_size
    assert 0 < came < len(CONTENTS[BIG])
    server.fault = None
    ensure_corpus("tiny", tmp_path, [BIG])
    assert contents(tmp_path) == {BIG: CONTENTS[BIG]}
    assert server.ranges == [None, f"bytes={came}-"]


def test_a_server_without_ranges_sends_all_again(tmp_path, server):
    half(tmp_path)
    server.knows_ranges = False
    ensure_corpus("tiny", tmp_path, [BIG])
    assert contents(tmp_path) == {BIG: CONTENTS[BIG]}
    assert len(server.ranges) == 1


def test_halves_of_two_versions_are_not_glued(tmp_path, server):
    """The file was another one when its first half was fetched."""
    leftover(tmp_path).write_bytes(b"x" * (len(CONTENTS[BIG]) // 2))
    ensure_corpus("tiny", tmp_path, [BIG])
    assert contents(tmp_path) == {BIG: CONTENTS[BIG]}
    assert server.ranges == [f"bytes={len(CONTENTS[BIG]) // 2}-", None]


def test_a_part_that_was_not_asked_for_is_not_glued(tmp_path, server):
    half(tmp_path)
    server.fault = "other part"
    ensure_corpus("tiny", tmp_path, [BIG])
    assert contents(tmp_path) == {BIG: CONTENTS[BIG]}


def test_a_server_that_now_has_another_file_is_refused_as_before(tmp_path, server):
    half(tmp_path)
    server.fault, server.knows_ranges = "other content", False
    assert "SHA-256" in refusal("tiny", tmp_path, [BIG])
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("extra", [b"", b"and more"])
def test_a_leftover_that_is_whole_or_too_long(tmp_path, server, extra):
    leftover(tmp_path).write_bytes(CONTENTS[BIG] + extra)
    ensure_corpus("tiny", tmp_path, [BIG])
    assert contents(tmp_path) == {BIG: CONTENTS[BIG]}


def test_what_a_killed_process_left_is_used_later(tmp_path, server):
    killed, living = (tmp_path / f".{BIG}.{name}.partial" for name in ("killed", "living"))
    killed.write_bytes(CONTENTS[BIG][:5000])
    living.write_bytes(CONTENTS[BIG][:7000])
    long_ago = time.time() - 2 * download.STALE_SECONDS
    os.utime(killed, (long_ago, long_ago))
    ensure_corpus("tiny", tmp_path, [BIG])
    assert contents(tmp_path) == {BIG: CONTENTS[BIG], living.name: CONTENTS[BIG][:7000]}
    assert server.ranges == ["bytes=5000-"]


# What is wrong on this side


def test_a_wrong_file_is_refused_and_left_alone(tmp_path, server, tiny):
    (tmp_path / "train.en").write_bytes(b"mine\n")
    message = refusal("tiny", tmp_path, error=ValueError, files=["train.en"])
    assert str(tmp_path / "train.en") in message
    assert hashlib.sha256(b"mine\n").hexdigest() in message
    assert tiny.files["train.en"].sha256 in message
    assert "move it away" in message
    assert contents(tmp_path) == {"train.en": b"mine\n"}
    assert server.requests == []


def test_a_folder_that_cannot_be_made_is_told_in_one_line(tmp_path, server):
    (tmp_path / "file").touch()
    message = refusal("tiny", tmp_path / "file" / "root")
    assert str(tmp_path / "file" / "root") in message
    assert "data.root=" in message
    assert server.requests == []


def test_a_folder_that_cannot_be_written_is_told_in_one_line(tmp_path, monkeypatch):
    """Read-only folders and full disks; simulated, because the superuser may write anywhere."""

    def refuse(self, *arguments, **keywords):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    message = refusal("tiny", tmp_path)
    assert "cannot be written (Permission denied)" in message
    assert "data.root=" in message


def test_a_full_disk_leaves_nothing_broken(tmp_path, server, tiny):
    """The limit on the size of a file fails writes as a full disk does, in a process of its own."""
    limit = len(CONTENTS[BIG]) // 2
    code = f"""
import resource, signal, sys
from pathlib import Path
from seq2seq.data.download import CORPORA, NamedCorpus, NamedFile, ensure_corpus
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
files = {{ {BIG!r}: NamedFile(*{tuple(tiny.files[BIG])!r}) }}
CORPORA["tiny"] = NamedCorpus({server.url!r}, "free", files)
try:
    ensure_corpus("tiny", Path(sys.argv[1]))
except OSError as error:
    sys.exit(str(error))
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    assert "cannot be written (File too large): make room" in done.stderr
    assert done.stderr.count("\n") == 1
    assert contents(tmp_path) == {leftover(tmp_path).name: CONTENTS[BIG][:limit]}
    ensure_corpus("tiny", tmp_path, [BIG])  # once there is room
    assert contents(tmp_path) == {BIG: CONTENTS[BIG]}


def test_a_proxy_is_taken_from_the_environment(tmp_path, server, monkeypatch):
    """The address is one that no machine has; the request reaches the proxy all the same."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.server_port}")
    ensure_corpus("tiny", tmp_path, url="http://corpus.invalid/folder")
    assert contents(tmp_path) == CONTENTS
    assert server.requests == [f"http://corpus.invalid/folder/{name}" for name in CONTENTS]


def test_nothing_is_ever_unpacked():
    """No member of an archive can leave its folder where no archive is opened."""
    for path in [*ROOT.glob("seq2seq/**/*.py"), *ROOT.glob("scripts/*.py")]:
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"\b(tarfile|zipfile|unpack_archive|extractall)\b", source), path
    for corpus in CORPORA.values():
        for name, file in corpus.files.items():
            assert name == file.name == Path(name).name


def test_unknown_names_are_answered_with_known_ones(tmp_path):
    message = refusal("multi30", tmp_path, error=ValueError)
    assert "data.name=multi30" in message
    assert "multi30k" in message
    message = refusal("tiny", tmp_path, ["train.fr"], error=ValueError)
    assert "train.fr" in message
    assert "train.de.gz, train.en" in message


@pytest.mark.parametrize("url", ["corpus/mirror", "ftp://127.0.0.1/corpus", "/srv/corpus"])
def test_an_address_of_another_kind_is_refused(tmp_path, url):
    message = refusal("tiny", tmp_path, url=url, error=ValueError)
    assert f"data.url={url}" in message
    assert "https://" in message


# The registry


def test_every_part_of_multi30k_comes_in_two_languages_at_least():
    files = CORPORA["multi30k"].files
    parts = {}
    for file in files.values():
        part, language, ending = file.name.split(".")
        assert ending == "gz"
        assert len(bytes.fromhex(file.sha256)) == 32
        parts.setdefault(part, {})[language] = file.num_lines
    assert len({file.sha256 for file in files.values()}) == len(files)
    for lines in parts.values():
        assert {"de", "en"} <= lines.keys()
        assert len(set(lines.values())) == 1


def test_the_registry_fits_the_real_files():
    folder = Path(__file__).parents[3] / "shared" / "data" / "multi30k"
    files = [file for file in CORPORA["multi30k"].files.values() if (folder / file.name).exists()]
    if not files:
        pytest.skip("no copy of Multi30k beside the repository")
    for file in files:
        assert file_digest(folder / file.name) == file.sha256
        assert count_lines(folder / file.name) == file.num_lines
