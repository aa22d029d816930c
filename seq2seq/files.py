"""Files that are written whole or not at all."""

import glob
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file to be written, which then becomes ``path`` at once and as a whole.

    Raises:
        OSError: no space, no permission; names the file, which is as it was.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # What a killed write left: a file has one writer, so nobody else is at work on these.
        for stale in path.parent.glob(f"{glob.escape(path.name)}*.partial"):
            stale.unlink(missing_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".partial")
        os.close(handle)
        partial = Path(name)
        try:
            yield partial
            # A process killed while writing must leave the previous file readable: a rename
            # within one folder is atomic, a write of 100 MB is not. What is renamed must be on
            # the disk before its name is, or a power cut leaves a good name on an empty file.
            _flush(partial)
            os.chmod(partial, 0o644)  # mkstemp's files are for the owner alone
            os.replace(partial, path)
            _flush(path.parent)
        finally:
            # Also there after a replacement by another name of the same file, which does nothing.
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(
            f"{path} could not be written ({error}); the previous file is intact. Free some "
            f"space or fix the permissions; a run then goes on with resume=<its folder>."
        ) from error


def _flush(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
