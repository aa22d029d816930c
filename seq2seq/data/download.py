"""Named corpora: each file is on disk with the right content, or is downloaded.

The files of each corpus are listed here with SHA-256 and line counts, and every file is checked. If
``data.root`` already holds the files, no request is made.

Files are downloaded one by one and gzip files are read as they are: no archive is ever unpacked, so
no member of an archive can be written outside its folder.
"""

import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from seq2seq.data.reading import file_digest

log = logging.getLogger(__name__)

TIMEOUT = 30.0  # seconds without data after which a download fails


class NamedFile(NamedTuple):
    sha256: str  # of the file as it is downloaded
    num_lines: int  # of its decompressed content


class NamedCorpus(NamedTuple):
    url: str  # of the folder that holds the files
    terms: str  # of use
    files: dict[str, NamedFile]


def parse_table(table: str) -> dict[str, NamedFile]:
    """Parse rows of SHA-256, number of lines and file name."""
    rows = (row.split() for row in table.splitlines() if row)
    return {name: NamedFile(sha256, int(num_lines)) for sha256, num_lines, name in rows}


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


def ensure_files(
    name: str,
    root: Path,
    file_names: Iterable[str],
    url: str | None = None,
    timeout: float = TIMEOUT,
) -> dict[str, str]:
    """Check files of a named corpus in ``root``, and download those that are missing.

    A file that the corpus does not list, such as a word alignment of your own, is only read.

    Args:
        name: a key of ``CORPORA``.
        root: folder of the files; created if needed.
        file_names: files that are needed.
        url: another folder that holds the files, http(s) or file; proxies are taken from the
            environment.
        timeout: seconds without data after which a download fails.

    Returns:
        SHA-256 of each file by name, computed once.

    Raises:
        ValueError: the corpus has no such file, ``url`` is of another kind, or a file in ``root``
            has the wrong content; that file is not changed.
        OSError: a file is missing and cannot be downloaded or written.
    """
    corpus = CORPORA[name]
    address = _check_url(url or corpus.url)
    file_names = list(file_names)
    for file_name in file_names:
        if file_name not in corpus.files and not (root / file_name).exists():
            raise ValueError(
                f"{name} has no file {file_name}; it has {', '.join(corpus.files)}. Choose other "
                f"languages or another data.test_set, or put the file into data.root."
            )
    return {
        file_name: _ensure_file(name, file_name, root, address, timeout) for file_name in file_names
    }


def _check_url(url: str) -> str:
    if urlsplit(url).scheme not in ("http", "https", "file"):
        raise ValueError(
            f"data.url={url} must start with http://, https:// or file://; to use a folder on this "
            f"machine, set data.root= to it."
        )
    return url.rstrip("/") + "/"


def _ensure_file(corpus_name: str, name: str, root: Path, address: str, timeout: float) -> str:
    """Check or download one file, and return its SHA-256."""
    corpus, path = CORPORA[corpus_name], root / name
    file = corpus.files.get(name)
    if file is not None and not path.exists():
        log.info(
            "downloading %s of %s (%s lines; %s)",
            name,
            corpus_name,
            f"{file.num_lines:,}",
            corpus.terms,
        )
        reason = _download(address + name, path, file.sha256, timeout)
        if reason is not None:
            raise OSError(
                f"{path} is missing and cannot be downloaded: {reason}. Set data.root= to a folder "
                f"that holds the files of {corpus_name} (no network is needed then), or data.url= "
                f"to a mirror of {corpus.url}"
            )
        return file.sha256
    digest = file_digest(path)
    if file is not None and digest != file.sha256:
        raise ValueError(
            f"{path} is not the {name} of {corpus_name}: its SHA-256 is {digest}, but must be "
            f"{file.sha256}. It was not changed: move it away to have the right one downloaded, or "
            f"set data.root= to another folder."
        )
    return digest


def _download(url: str, path: Path, sha256: str, timeout: float) -> str | None:
    """Download a file under a temporary name, check it, and rename it to ``path``.

    Several processes may download the same file at once, because each has its own temporary file.

    Returns:
        None, or why the file could not be downloaded.

    Raises:
        OSError: the file cannot be written.
    """
    import pooch  # 0.2 s with requests, needed only by the first run on a corpus
    from requests.exceptions import HTTPError, RequestException

    def transfer(url: str, output_file: str, _: object) -> None:
        if url.startswith("file:"):  # which requests does not support
            shutil.copyfile(url2pathname(urlsplit(url).path), output_file)
        else:
            # Without compression in transit, a .gz file arrives as it is from every server.
            headers = {"Accept-Encoding": "identity"}
            pooch.HTTPDownloader(timeout=timeout, headers=headers)(url, output_file, None)
        os.chmod(output_file, 0o644)  # temporary files are private, but data folders are shared

    pooch.get_logger().setLevel(logging.WARNING)
    try:
        pooch.retrieve(url, f"sha256:{sha256}", path.name, path.parent.absolute(), None, transfer)
    except HTTPError as error:
        return f"{url} answers HTTP {str(error).partition(' for url')[0]}"
    except RequestException as error:
        if "timed out" in str(error):
            return f"{url} sent no data for {timeout:g} s"
        # Without the report on retries that urllib3 wraps around its reason.
        reason = getattr(next(iter(error.args), None), "reason", error)
        return f"{url} cannot be reached, or broke off ({' '.join(str(reason).split())})"
    except FileNotFoundError:  # a missing folder of ``path`` is created
        return f"{url} does not exist"
    except ValueError as error:
        return f"{url} has other content ({error})"
    except OSError as error:
        raise OSError(
            f"{path} is missing and cannot be written ({error.strerror or error}): free some space "
            f"and allow writing, or set data.root= to a folder that holds the file."
        ) from error
    return None
