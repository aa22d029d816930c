"""Files of a named corpus are on disk with the right content, or one line says what to do."""

import gzip
import hashlib
import os
import re
import shutil
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import ROOT

from seq2seq.data.download import CORPORA, NamedCorpus, NamedFile, ensure_files
from seq2seq.data.reading import file_digest, read_lines

BIG = "train.de.gz"  # several blocks, so that a transfer can break off in the middle
CONTENTS = {
    BIG: gzip.compress(b"".join(b"Satz %d\n" % n for n in range(20_000)), mtime=0),
    "train.en": b"one\ntwo\nthree\n",
}
DIGESTS = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}


class Handler(BaseHTTPRequestHandler):
    """Serves ``CONTENTS``; ``server.failure`` is what goes wrong with the next requests."""

    def do_GET(self):
        failure, content = self.server.failure, CONTENTS[Path(self.path).name]
        self.server.requests.append(self.path)
        if isinstance(failure, int):
            self.send_error(failure)
            return
        if failure == "other content":
            content = b"<html>Please log in</html>"
        self.send_response(200)
        if failure != "no length":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        broken = failure in ("truncated", "no length", "stalled")
        self.wfile.write(content[: len(content) // 2] if broken else content)
        if failure == "stalled":
            self.server.released.wait(10)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    """A server of the corpus ``tiny``, reached directly even if a proxy is configured."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads = True
    running.failure, running.requests, running.released = None, [], threading.Event()
    running.url = f"http://127.0.0.1:{running.server_port}/corpus"
    files = {name: NamedFile(digest, 3) for name, digest in DIGESTS.items()}
    monkeypatch.setitem(CORPORA, "tiny", NamedCorpus(running.url, "free", files))
    thread = threading.Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    yield running
    running.released.set()
    running.shutdown()
    thread.join()
    running.server_close()


def contents(root):
    """Content of every file in a folder, including hidden and temporary ones."""
    return {path.name: path.read_bytes() for path in root.iterdir()}


def refusal(root, file_names=tuple(CONTENTS), error=OSError, **options):
    """The message of the error that is raised, which must be one line."""
    with pytest.raises(error) as caught:
        ensure_files("tiny", root, file_names, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.guarantee("Files can be downloaded from a mirror, a folder, or through a proxy.")
@pytest.mark.parametrize("with_slash", ["", "/"])
def test_missing_files_are_downloaded_once_from_home_or_mirror(tmp_path, server, with_slash):
    root = tmp_path / "new" / "folder"
    url = server.url + with_slash if with_slash else None
    for _ in range(2):
        assert ensure_files("tiny", root, CONTENTS, url) == DIGESTS
    assert contents(root) == CONTENTS
    assert server.requests == [f"/corpus/{name}" for name in CONTENTS]
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in root.iterdir())  # for a team


@pytest.mark.guarantee("Files on disk need no network; otherwise one line says what to do.")
def test_files_on_disk_need_no_server(tmp_path, server):
    for name, content in (CONTENTS | {"own.align": b"0-0\n"}).items():
        (tmp_path / name).write_bytes(content)
    server.failure = 500
    digests = ensure_files("tiny", tmp_path, [*CONTENTS, "own.align"])
    assert digests == DIGESTS | {"own.align": hashlib.sha256(b"0-0\n").hexdigest()}
    assert server.requests == []


@pytest.mark.guarantee("Files can be downloaded from a mirror, a folder, or through a proxy.")
def test_mirror_may_be_a_folder(tmp_path, server):
    mirror = tmp_path / "a mirror"
    mirror.mkdir()
    (mirror / "train.en").write_bytes(CONTENTS["train.en"])
    ensure_files("tiny", tmp_path / "root", ["train.en"], mirror.as_uri())
    assert contents(tmp_path / "root") == {"train.en": CONTENTS["train.en"]}
    assert f"{mirror.as_uri()}/{BIG} does not exist" in refusal(
        tmp_path / "root", [BIG], url=mirror.as_uri()
    )
    assert server.requests == []


def test_several_processes_may_download_at_once(tmp_path, server):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(ensure_files("tiny", tmp_path, CONTENTS)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [DIGESTS] * 8
    assert contents(tmp_path) == CONTENTS


@pytest.mark.guarantee("Files can be downloaded from a mirror, a folder, or through a proxy.")
def test_proxy_is_read_from_the_environment(tmp_path, server, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.server_port}")
    ensure_files("tiny", tmp_path, CONTENTS, "http://corpus.invalid/folder")
    assert contents(tmp_path) == CONTENTS
    assert server.requests == [f"http://corpus.invalid/folder/{name}" for name in CONTENTS]


@pytest.mark.guarantee(
    "A downloaded file has the stated SHA-256 or does not exist; local files are never replaced."
)
@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (404, "answers HTTP 404"),
        (500, "answers HTTP 500"),
        ("truncated", "broke off"),
        ("no length", "has other content"),  # truncated too, but only the digest shows it
        ("other content", f"has other content .*{DIGESTS[BIG]}"),
        ("stalled", "sent no data for 0.2 s"),
    ],
)
def test_failed_download_leaves_no_file_and_can_be_repeated(tmp_path, server, failure, reason):
    ensure_files("tiny", tmp_path, ["train.en"])
    server.failure = failure
    message = refusal(tmp_path, timeout=0.2)
    assert re.search(f"{BIG} is missing .*{server.url}/{BIG} .*{reason}", message)
    assert "data.root=" in message
    assert "data.url=" in message
    assert set(contents(tmp_path)) == {"train.en"}  # downloaded before, and kept
    server.failure = None
    ensure_files("tiny", tmp_path, CONTENTS)
    assert contents(tmp_path) == CONTENTS


@pytest.mark.guarantee("Files on disk need no network; otherwise one line says what to do.")
def test_unreachable_server_is_reported_in_one_line(tmp_path, server, capfd):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert "cannot be reached" in refusal(tmp_path, url=f"http://127.0.0.1:{port}/")
    assert contents(tmp_path) == {}
    assert capfd.readouterr() == ("", "")  # nothing from the libraries


@pytest.mark.guarantee(
    "A downloaded file has the stated SHA-256 or does not exist; local files are never replaced."
)
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_interrupted_download_leaves_no_file(tmp_path, server, monkeypatch, stop):
    def interrupt(*arguments):
        raise stop

    with monkeypatch.context() as patch:
        patch.setattr(os, "chmod", interrupt)  # when the content is complete
        with pytest.raises(stop):
            ensure_files("tiny", tmp_path, CONTENTS)
    assert contents(tmp_path) == {}


@pytest.mark.guarantee(
    "A downloaded file has the stated SHA-256 or does not exist; local files are never replaced."
)
def test_wrong_local_file_is_refused_and_not_changed(tmp_path, server):
    (tmp_path / "train.en").write_bytes(b"mine\n")
    message = refusal(tmp_path, ["train.en"], ValueError)
    for part in (str(tmp_path / "train.en"), DIGESTS["train.en"], "move it away"):
        assert part in message
    assert hashlib.sha256(b"mine\n").hexdigest() in message
    assert contents(tmp_path) == {"train.en": b"mine\n"}
    assert server.requests == []


def test_folder_that_cannot_be_created_is_reported(tmp_path, server):
    (tmp_path / "file").touch()
    message = refusal(tmp_path / "file" / "root")
    assert f"{tmp_path / 'file' / 'root' / BIG} is missing and cannot be written" in message
    assert "data.root=" in message


@pytest.mark.guarantee(
    "A downloaded file has the stated SHA-256 or does not exist; local files are never replaced."
)
def test_full_disk_leaves_no_file(tmp_path, server, monkeypatch):
    def fail(source, target):
        Path(target).write_bytes(CONTENTS[BIG][:1000])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", fail)
    message = refusal(tmp_path, url="file:///mirror")
    assert "cannot be written (No space left on device): free some space" in message
    assert contents(tmp_path) == {}


def test_unknown_file_is_answered_with_known_ones(tmp_path, server):
    message = refusal(tmp_path, ["train.fr"], ValueError)
    assert "tiny has no file train.fr; it has train.de.gz, train.en" in message


@pytest.mark.parametrize("url", ["corpus/mirror", "ftp://127.0.0.1/corpus", "/srv/corpus"])
def test_url_of_another_kind_is_refused(tmp_path, server, url):
    message = refusal(tmp_path, error=ValueError, url=url)
    assert f"data.url={url}" in message
    assert "https://" in message


def test_multi30k_lists_parallel_files_as_they_are():
    folder, num_lines = ROOT.parent / "shared" / "data" / "multi30k", {}
    for name, file in CORPORA["multi30k"].files.items():
        split, language, suffix = name.split(".")
        assert (suffix, len(bytes.fromhex(file.sha256))) == ("gz", 32)
        num_lines.setdefault(split, {})[language] = file.num_lines
        if (folder / name).exists():  # not everywhere
            assert file_digest(folder / name) == file.sha256
            assert sum(1 for _ in read_lines(folder / name)) == file.num_lines
    for by_language in num_lines.values():
        assert {"de", "en"} <= by_language.keys()
        assert len(set(by_language.values())) == 1
