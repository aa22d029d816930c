"""Token ids on disk: sequences are written sequentially and read individually."""

import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import ArrayLike, NDArray

ID = np.dtype("<i4")
OFFSET = np.dtype("<i8")


class IdStore:
    """Sequences of ids on disk, of which only the requested ones are read into memory.

    ``<stem>.ids`` holds all ids one after another; ``<stem>.offsets`` holds the start of each
    sequence and the end of the last one.
    """

    def __init__(self, stem: Path):
        # Not memory-mapped: touched pages of a map count as memory of the process, and a random
        # order touches all of them within an epoch.
        self._ids = _open(self, stem.with_suffix(".ids"))
        self._offsets = _open(self, stem.with_suffix(".offsets"))
        self._count = os.fstat(self._offsets).st_size // OFFSET.itemsize - 1
        self.num_ids = os.fstat(self._ids).st_size // ID.itemsize  # in all sequences

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        if not 0 <= index < self._count:
            raise IndexError(f"Sequence {index} of {self._count}.")
        return self.read([index])[0]

    def read(self, indices: Iterable[int]) -> list[NDArray[np.int32]]:
        """Read the sequences at these indices, in the given order."""
        size = ID.itemsize
        return [
            np.frombuffer(os.pread(self._ids, (end - start) * size, start * size), ID)
            for start, end in self._spans(indices).tolist()
        ]

    def lengths(self, indices: Iterable[int]) -> NDArray[np.int64]:
        """Return the number of ids in each of these sequences."""
        spans = self._spans(indices)
        return spans[:, 1] - spans[:, 0]

    def _spans(self, indices: Iterable[int]) -> NDArray[np.int64]:
        """Return start and end of each of N sequences, (N, 2)."""
        size = OFFSET.itemsize
        # Python integers: with NumPy integers this loop takes three times as long.
        plain = np.fromiter(indices, dtype=np.int64).tolist()
        pairs = [os.pread(self._offsets, 2 * size, index * size) for index in plain]
        return np.frombuffer(b"".join(pairs), OFFSET).reshape(-1, 2)


def _open(owner: object, path: Path) -> int:
    """Open a descriptor that any thread can read from; it is closed with ``owner``."""
    descriptor = os.open(path, os.O_RDONLY)
    weakref.finalize(owner, os.close, descriptor)
    return descriptor


class IdWriter:
    """Writes an ``IdStore`` in chunks; memory does not grow with the number of sequences."""

    def __init__(self, stem: Path):
        self.ids = stem.with_suffix(".ids").open("wb")
        self.offsets = stem.with_suffix(".offsets").open("wb")
        self.position = 0
        self.offsets.write(np.array([0], OFFSET).tobytes())

    def write(self, ids: ArrayLike, lengths: ArrayLike) -> None:
        """Append sequences, given as their concatenated ids and their lengths."""
        ends = self.position + np.cumsum(np.asarray(lengths, OFFSET), dtype=OFFSET)
        self.ids.write(np.asarray(ids, ID).tobytes())
        self.offsets.write(ends.tobytes())
        self.position = int(ends[-1]) if len(ends) else self.position

    def __enter__(self) -> "IdWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.ids.close()
        self.offsets.close()


def renumber(stem: Path, new_ids: NDArray[np.int32], chunk: int = 1 << 20) -> None:
    """Replace every id ``i`` of a store by ``new_ids[i]``, in place."""
    with stem.with_suffix(".ids").open("r+b") as file:
        while content := file.read(chunk * ID.itemsize):
            file.seek(-len(content), os.SEEK_CUR)
            file.write(new_ids[np.frombuffer(content, ID)].astype(ID).tobytes())
