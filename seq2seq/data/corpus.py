"""A corpus on disk: the paths of its files, and the SHA-256 of each."""

from dataclasses import dataclass
from pathlib import Path

from seq2seq.config.data import DataConfig
from seq2seq.data.download import CORPORA, ensure_files
from seq2seq.data.reading import ParallelFiles, file_digest

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Corpus:
    """Files of a corpus, all of which exist; made by ``open_corpus``.

    Args:
        splits: files of each of ``SPLITS``.
        digests: SHA-256 of every file, alignments included, by its name below ``data.root``.
    """

    splits: dict[str, ParallelFiles]
    digests: dict[str, str]

    def files(self, split: str) -> ParallelFiles:
        """Return the files of the ``train``, ``valid`` or ``test`` split."""
        return self.splits[split]


def open_corpus(config: DataConfig) -> Corpus:
    """Find the files of a corpus, download missing ones of a named corpus, and hash each once.

    Raises:
        ValueError, OSError: a file is missing, unreadable, or not what the named corpus lists.
    """
    root = Path(config.root)
    splits = (config.train, config.valid, config.test)
    names = {name for split in splits for name in (split.source, split.target, split.alignment)}
    file_names = sorted(name for name in names if name)
    if config.name in CORPORA:
        digests = ensure_files(config.name, root, file_names, config.url)
    else:
        digests = {name: file_digest(root / name) for name in file_names}
    return Corpus({split: locate(config, split) for split in SPLITS}, digests)


def locate(config: DataConfig, split: str) -> ParallelFiles:
    """Return the paths of the ``train``, ``valid`` or ``test`` split; they may not exist."""
    names = getattr(config, split)
    root = Path(config.root)
    return ParallelFiles(
        root / names.source,
        root / names.target,
        root / names.alignment if names.alignment else None,
        config.source_column,
        config.target_column,
    )
