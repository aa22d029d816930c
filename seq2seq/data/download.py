"""Named corpora: each of their files is on disk with the right bytes, or comes from the web.

What a corpus consists of is stated here, with SHA-256 and line counts; nothing switches the
check off. A folder that already holds the files is all that is needed: no request is made.

Archives are not used: a file is fetched under its name in the table, and gzip is read as it lies.
So nothing is ever unpacked, and no member of anything can land outside its folder.
"""

import logging
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, build_opener

from seq2seq.data.corpus import count_lines, file_digest

logger = logging.getLogger(__name__)

BLOCK_SIZE = 1 << 16  # bytes
STALL_SECONDS = 30.0  # silence of a server after which it is given up
# A living download writes at least every STALL_SECONDS; an older partial file is a leftover.
STALE_SECONDS = 4 * STALL_SECONDS


class DownloadError(OSError):
    """A file that no server delivered."""


class NamedFile(NamedTuple):
    name: str
    sha256: str  # of the file as it is downloaded
    num_lines: int  # of its content, decompressed


class NamedCorpus(NamedTuple):
    url: str  # of the folder with the files
    terms: str  # of use
    files: dict[str, NamedFile]


def parse_table(table: str) -> dict[str, NamedFile]:
    """Rows of SHA-256, number of lines and name."""
    rows = (row.split() for row in table.splitlines() if row)
    return {name: NamedFile(name, sha256, int(lines)) for sha256, lines, name in rows}


MULTI30K_FILES = """
200a4a74cc9560f051924abb9803be008d1908d77f747e9141aeb86dfd2797f1  1000 test_2016_flickr.cs.gz
9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8  1000 test_2016_flickr.de.gz
611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9  1000 test_2016_flickr.en.gz
6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90  1000 test_2016_flickr.fr.gz
a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee  1000 test_2017_flickr.de.gz
76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074  1000 test_2017_flickr.en.gz
3ba671ceb2299f3304ffafefea7a833d08632fbaf0ba18546f8a2ec2391af496  1000 test_2017_flickr.fr.gz
799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338   461 test_2017_mscoco.de.gz
aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58   461 test_2017_mscoco.en.gz
754f3072ba9f124569ba5258b32730fc1d214bbf8e0c6dfb2b74401676220db0   461 test_2017_mscoco.fr.gz
7d0a9db904f94c554a8c58049a9f3a5357c27f46cc3d710d70cb0b4a2585b8c2  1071 test_2018_flickr.cs.gz
ddd0130c7d97482dc5197a02141dae8dd79f20f03586c480d675c09a32daf608  1071 test_2018_flickr.de.gz
ef4f4844037d4c5dea75c9a8ed5fd78905967a26f67c255e230cc9780032654d  1071 test_2018_flickr.en.gz
fb2b83fcceb937a4f7e3e93c1c51c22aba92f1e342391e6b5ba392b16a920501  1071 test_2018_flickr.fr.gz
a65adb8b32e3bc664f21ecba7a6e7f6950fd1f405e135f7c312faabdb6255077 29000 train.cs.gz
726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6 29000 train.de.gz
d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f 29000 train.en.gz
622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c 29000 train.fr.gz
b63226e05c4bd5dd6a42897d74b86a1b9d2c31498252c572b1ea7f7996927fcc  1014 val.cs.gz
f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a  1014 val.de.gz
14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28  1014 val.en.gz
ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9  1014 val.fr.gz
"""

CORPORA = {
    # Elliott et al. 2016, arXiv:1605.00459: image captions in English, German, French, Czech.
    "multi30k": NamedCorpus(
        url="https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/",
        terms="CC BY-NC-SA, for research",
        files=parse_table(MULTI30K_FILES),
    ),
}


def ensure_corpus(
    name: str,
    root: Path,
    files: Iterable[str] | None = None,
    url: str | None = None,
    stall_seconds: float = STALL_SECONDS,
) -> None:
    """Make sure that files of a named corpus lie in ``root`` with exactly the bytes they must.

    Args:
        name: a key of ``CORPORA``.
        root: folder of the files; made if it is missing.
        files: names of the files that are needed; None means all of the corpus.
        url: another folder that holds the files, http(s) or file; proxies are taken from the
            environment.
        stall_seconds: silence of the server after which a download is given up.

    Raises:
        ValueError: no such corpus or file, an address of another kind, or a file with other
            bytes than it must have. One that lies in ``root`` is left as it is.
        OSError: a file is missing and cannot be fetched or written.
    """
    corpus = _corpus(name)
    address = _checked_url(url or corpus.url)
    for file in _needed(name, corpus, files):
        path = root / file.name
        if path.exists():
            digest = file_digest(path)
            if digest != file.sha256:
                raise ValueError(
                    f"{path} is not the {file.name} of {name}: its SHA-256 is {digest}, but must "
                    f"be {file.sha256}. It was left as it is: move it away to have the right one "
                    f"fetched, or point data.root= at another folder."
                )
            continue
        logger.info("fetching %s of %s (%s)", file.name, name, corpus.terms)
        try:
            _download(address + file.name, file, root, stall_seconds)
        except DownloadError as error:
            raise DownloadError(
                f"{path} is missing and cannot be fetched: {error}. Point data.root= at a folder "
                f"that holds the files of {name} (no network is needed then), or data.url= at a "
                f"mirror of {corpus.url}"
            ) from error


def _corpus(name: str) -> NamedCorpus:
    if name not in CORPORA:
        raise ValueError(
            f"data.name={name} is not a corpus that can be fetched; those are: "
            f"{', '.join(CORPORA)}. Anything else is only read, from data.root=."
        )
    return CORPORA[name]


def _needed(name: str, corpus: NamedCorpus, files: Iterable[str] | None) -> list[NamedFile]:
    wanted = corpus.files if files is None else dict.fromkeys(files)
    for file in wanted:
        if file not in corpus.files:
            raise ValueError(
                f"{file} is no file of data.name={name}; choose among: {', '.join(corpus.files)}."
            )
    return [corpus.files[file] for file in wanted]


def _checked_url(url: str) -> str:
    if urlsplit(url).scheme not in ("http", "https", "file"):
        raise ValueError(
            f"data.url={url} must start with http://, https:// or file://; a folder on this "
            f"machine is better given as data.root=."
        )
    return url.rstrip("/") + "/"


def _download(url: str, file: NamedFile, root: Path, stall_seconds: float) -> None:
    """Fetch one file under a temporary name; only when it is right does it get its own.

    The temporary name belongs to this call alone, so that several processes may fetch the same
    file: each renames the same bytes into place. The next call goes on with what an interruption
    leaves, and with what a killed process leaves once nobody can be writing it any more.
    """
    partial = root / f".{file.name}.{uuid.uuid4().hex}.partial"
    try:
        root.mkdir(parents=True, exist_ok=True)
        _adopt_leftover(root, file, partial)
        continued = partial.exists()
        _fetch(url, partial, stall_seconds)
        if continued and file_digest(partial) != file.sha256:
            # Halves of two versions, perhaps: what is served now comes in one piece.
            partial.unlink()
            _fetch(url, partial, stall_seconds)
        _check(partial, file, url)
        partial.replace(root / file.name)
    except DownloadError:
        raise
    except OSError as error:
        raise OSError(
            f"{root / file.name} is missing and cannot be written ({error.strerror or error}): "
            f"make room for it and allow writing, or point data.root= at a folder that holds it."
        ) from error
    finally:
        with suppress(OSError):  # there is none, after a success above all
            if partial.stat().st_size:
                partial.replace(_leftover(root, file))
            else:
                partial.unlink()


def _leftover(root: Path, file: NamedFile) -> Path:
    """Where an interrupted download lies until somebody goes on with it."""
    return root / f".{file.name}.partial"


def _adopt_leftover(root: Path, file: NamedFile, partial: Path) -> None:
    """Give the largest leftover the name ``partial``; the others go."""
    sizes = {}
    for path in root.glob(f".{file.name}.*partial"):
        with suppress(OSError):  # another process was quicker
            facts = path.stat()
            if path == _leftover(root, file) or time.time() - facts.st_mtime > STALE_SECONDS:
                sizes[path] = facts.st_size
    for path in sorted(sizes, key=lambda path: sizes[path]):
        with suppress(OSError):
            path.replace(partial)  # over the one before


def _fetch(url: str, partial: Path, stall_seconds: float) -> None:
    """Fetch what ``partial`` lacks; all of it where the server knows no parts of a file."""
    with partial.open("ab") as output:
        for position, block in _blocks(url, output.tell(), stall_seconds):
            if position != output.tell():
                output.seek(position)
                output.truncate()
            output.write(block)
        output.flush()
        os.fsync(output.fileno())


def _check(partial: Path, file: NamedFile, url: str) -> None:
    digest = file_digest(partial)
    if digest != file.sha256:
        fault = f"another file, whose SHA-256 is {digest} instead of {file.sha256}"
    elif (num_lines := count_lines(partial)) != file.num_lines:
        fault = (
            f"{num_lines:,} lines instead of {file.num_lines:,}, although its SHA-256 is right: "
            f"correct the table of seq2seq.data.download"
        )
    else:
        return
    partial.unlink()  # nobody shall go on with it
    raise DownloadError(f"{url} delivers {fault}")


def _blocks(url: str, offset: int, stall_seconds: float) -> Iterator[tuple[int, bytes]]:
    """The bytes behind ``url`` from ``offset`` on, or from 0, each block with its position.

    Any fault on the way to them is a ``DownloadError``. Not ``torch.hub.download_url_to_file``:
    it waits for a silent server for ever, and it cannot tell a transfer that broke off from a
    file that was changed.
    """
    request = Request(url, headers={"Range": f"bytes={offset}-"} if offset else {})
    try:
        # Built now, so that http_proxy, https_proxy and no_proxy are those of this moment.
        with build_opener().open(request, timeout=stall_seconds) as response:
            part = response.headers.get("Content-Range") or ""
            start = position = offset if part.startswith(f"bytes {offset}-") else 0
            expected = response.headers.get("Content-Length")
            while block := response.read1(BLOCK_SIZE):  # what there is: it may be all that comes
                yield position, block
                position += len(block)
    except HTTPError as error:
        if error.code == 416 and offset:  # nothing from there on; the check says what that means
            return
        raise DownloadError(f"{url} answers HTTP {error.code} {error.reason}") from error
    except TimeoutError as error:
        raise DownloadError(f"{url} was silent for {stall_seconds:g} s") from error
    except URLError as error:
        raise DownloadError(f"{url} cannot be reached ({error.reason})") from error
    except (OSError, HTTPException) as error:
        raise DownloadError(f"{url} broke off after {position:,} bytes ({error})") from error
    # http.client itself takes the end of a connection for the end of the file.
    if expected is not None and position != start + int(expected):
        raise DownloadError(
            f"{url} broke off after {position:,} of {start + int(expected):,} bytes; the next "
            f"start goes on from there"
        )
