"""What to tell the owner of a file that is not the text it should be, or not in step."""

import codecs
import math
from collections.abc import Iterable

import numpy as np

GZIP_MAGIC = b"\x1f\x8b"
OTHER_PACKERS = {
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
}


def way_to_utf_8(content: bytes, number: int) -> str:
    """What to do about a line that is no UTF-8, by what it looks like."""
    packers = [name for magic, name in OTHER_PACKERS.items() if content.startswith(magic)]
    if number == 1 and packers:
        return f"it looks like {packers[0]}, so unpack it; only gzip is read as it is."
    if number == 1 and content.startswith(GZIP_MAGIC):
        return "it is packed twice, so unpack it once with gunzip."
    if b"\0" in content or content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "it looks like UTF-16, so convert it with iconv -f UTF-16 -t UTF-8."
    return "convert it, from Latin-1 for example with iconv -f LATIN1 -t UTF-8."


def place_of_change(log_ratios: Iterable[float]) -> str:
    """Advice on where to look, from the log-ratio of the two lengths of each line.

    It strays little from its median while lines translate each other, and much afterwards. The
    place is the cut between "little" and "much" with the highest two-sample z-score (the CUSUM
    estimate of a change, with weights for its place).
    """
    unknown = "The lengths of the lines do not show where; compare the ends of both files."
    # 8 bytes a line: memory that grows with the files, but only on the way to an error.
    ratios = np.fromiter(log_ratios, dtype=np.float64)
    if not ratios.size:
        return unknown
    deviations = np.abs(ratios - np.median(ratios))
    # Clipped, because some lines of every corpus stray: each would look like a place.
    clipped = np.minimum(deviations, np.quantile(deviations, 0.9))
    before = np.arange(1, len(clipped))
    dips = -np.cumsum(clipped - clipped.mean())[:-1]
    z_scores = dips / np.sqrt(before * (1 - before / len(clipped))) / (clipped.std() + 1e-9)
    # Above 3.5 by accident in less than one of twenty corpora.
    if z_scores.max(initial=0) > 3.5:
        line = int(z_scores.argmax()) + 2
        return f"Look near line {line}: from there on the lengths of the two sides do not match."
    # Where all lines are of one length, a blank line opposite a full one is the only trace.
    wild = np.flatnonzero(deviations > max(4 * deviations.mean(), math.log(3)))
    if not len(wild):
        return unknown
    return f"Look near line {wild[0] + 1}, the first with one side much longer than the other."
