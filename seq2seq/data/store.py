"""Token ids on disk: sequences written one after another, read through a memory map."""

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

ID = np.dtype("<i4")
OFFSET = np.dtype("<i8")


class IdStore:
    """Sequences of ids; only those that are asked for come into memory.

    ``<stem>.ids`` holds all ids one after another, ``<stem>.offsets`` where each sequence
    begins and the last one ends.
    """

    def __init__(self, stem: Path):
        self.offsets = _mapped(stem.with_suffix(".offsets"), OFFSET)
        self.ids = _mapped(stem.with_suffix(".ids"), ID)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Ids in each sequence."""
        return np.diff(self.offsets)


def _mapped(path: Path, dtype: np.dtype) -> NDArray:
    # An empty file cannot be mapped.
    return np.memmap(path, dtype, mode="r") if path.stat().st_size else np.empty(0, dtype)


class IdWriter:
    """Writes an ``IdStore``, sequence by sequence; memory does not grow with their number."""

    def __init__(self, stem: Path):
        self.ids = stem.with_suffix(".ids").open("wb")
        self.offsets = stem.with_suffix(".offsets").open("wb")
        self.position = 0
        self.offsets.write(np.array([0], OFFSET).tobytes())

    def write(self, sequences: Iterable[list[int]]) -> None:
        """Append sequences."""
        sequences = list(sequences)
        ends = self.position + np.cumsum([len(ids) for ids in sequences], dtype=OFFSET)
        self.ids.write(np.array([i for ids in sequences for i in ids], ID).tobytes())
        self.offsets.write(ends.astype(OFFSET).tobytes())
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
    """Replace every id ``i`` of a store, in place, by ``new_ids[i]``."""
    path = stem.with_suffix(".ids")
    if path.stat().st_size == 0:
        return
    ids = np.memmap(path, ID, mode="r+")
    for start in range(0, len(ids), chunk):
        ids[start : start + chunk] = new_ids[ids[start : start + chunk]]
    ids.flush()
