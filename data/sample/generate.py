"""Generate the sample corpus: German and English sentences with their true word alignment.

    python data/sample/generate.py [folder]

writes {train,valid,test}.{de,en,align}, by default to data/sample. The files are always the same.
"""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

from grammar.phrase import AlignedPair
from grammar.sentence import sentence

FOLDER = Path(__file__).parent
SEED = 1
SIZES = {"train": 12_000, "valid": 500, "test": 500}
MIN_WORDS, MAX_WORDS = 3, 45


def generate(num_pairs: int, seed: int) -> Iterator[AlignedPair]:
    """Yield sentence pairs in which no sentence occurs twice; they depend only on the seed."""
    rng = random.Random(seed)
    sources: set[str] = set()
    targets: set[str] = set()
    while len(sources) < num_pairs:
        candidate = sentence(rng)
        words = candidate.source.count(" ") + 1
        if words < MIN_WORDS or words > MAX_WORDS:
            continue
        if candidate.source not in sources and candidate.target not in targets:
            sources.add(candidate.source)
            targets.add(candidate.target)
            yield candidate


def make_splits() -> dict[str, list[AlignedPair]]:
    """Generate the whole corpus and split it at random."""
    pairs = list(generate(sum(SIZES.values()), SEED))
    # Without shuffling, the last sentences would be longer, because short ones run out first.
    random.Random(SEED).shuffle(pairs)
    splits, start = {}, 0
    for split, size in SIZES.items():
        splits[split] = pairs[start : start + size]
        start += size
    return splits


def write_splits(folder: Path) -> None:
    """Write the corpus to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in make_splits().items():
        links = (" ".join(f"{i}-{j}" for i, j in pair.alignment) for pair in pairs)
        columns = {"de": [p.source for p in pairs], "en": [p.target for p in pairs], "align": links}
        for name, lines in columns.items():
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.{name}").write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write_splits(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
