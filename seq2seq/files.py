"""Files that are written completely or not at all, and folders that can be written into."""

import glob
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write, which then replaces ``path`` atomically.

    Raises:
        OSError: no space or no permission; the message names the file, which is intact.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Left over from a killed write: a file has one writer, so none of these is in use.
        for stale in path.parent.glob(f"{glob.escape(path.name)}*.partial"):
            stale.unlink(missing_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".partial")
        os.close(handle)
        partial = Path(name)
        try:
            yield partial
            # If the process is killed while writing, the previous file must stay readable: a
            # rename within one folder is atomic, a write of 100 MB is not. The content must reach
            # the disk before the new name does, or a power failure leaves an empty file.
            _flush(partial)
            os.chmod(partial, 0o644)  # mkstemp creates files that only the owner can read
            os.replace(partial, path)
            _flush(path.parent)
        finally:
            # os.replace does nothing if both names are links to one file; then this name remains.
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(
            f"{path} could not be written ({error}); the previous file is intact. Free some "
            f"space or fix the permissions; then continue a run with resume=<its folder>."
        ) from error


def _flush(path: Path) -> None:
    """Force the content of a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def ensure_writable(folder: Path, setting: str) -> None:
    """Create a folder if it does not exist, and try to write into it.

    Raises:
        OSError: the folder cannot be created or written; names the setting.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(
            f"{setting}={folder} cannot be written ({error.strerror}); give another folder."
        ) from error
