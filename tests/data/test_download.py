"""A named corpus is on disk with exactly the right bytes, or one line says what to do."""

import gzip
import hashlib
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

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
    requests: list[str]
    released: threading.Event  # ends a stall when the test is over

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/corpus"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.server.requests.append(self.path)
        fault, content = self.server.fault, CONTENTS[Path(self.path).name]
        if isinstance(fault, int):
            self.send_error(fault)
            return
        if fault == "other content":
            content = b"<html>Please log in</html>"
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
    running.requests, running.released = [], threading.Event()
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
def test_a_faulty_transfer_leaves_nothing_and_can_be_repeated(tmp_path, server, fault, reason):
    server.fault = fault
    start = time.monotonic()
    message = refusal("tiny", tmp_path, [BIG], stall_seconds=0.2)
    assert time.monotonic() - start < 5
    assert reason in message
    assert f"{server.url}/{BIG}" in message
    assert "data.root=" in message
    assert "data.url=" in message
    assert contents(tmp_path) == {}

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


def test_an_interruption_leaves_nothing(tmp_path, monkeypatch):
    """Ctrl-C in the middle of the body, and again just before the file gets its name."""

    def interrupt(*arguments):
        raise KeyboardInterrupt

    def interrupted_blocks(*arguments):
        yield CONTENTS[BIG][:1000]
        interrupt()

    for name, replacement in (("_blocks", interrupted_blocks), ("count_lines", interrupt)):
        with monkeypatch.context() as patch:
            patch.setattr(download, name, replacement)
            with pytest.raises(KeyboardInterrupt):
                ensure_corpus("tiny", tmp_path, [BIG])
        assert contents(tmp_path) == {}


def test_what_a_killed_process_left_is_removed_later(tmp_path):
    leftover, living = (tmp_path / f".train.en.{name}.partial" for name in ("killed", "living"))
    leftover.write_bytes(b"o")
    living.write_bytes(b"on")
    hours_ago = time.time() - 2 * download.STALE_SECONDS
    os.utime(leftover, (hours_ago, hours_ago))
    ensure_corpus("tiny", tmp_path, ["train.en"])
    assert contents(tmp_path) == {"train.en": CONTENTS["train.en"], living.name: b"on"}


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
