"""What scripts that translate share: a translator that is ready, and a word on what it did not
know."""

import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from seq2seq import runtime
from seq2seq.checkpoint import Checkpoint
from seq2seq.config import TranslatorConfig
from seq2seq.decoding.translator import Translation, Translator, load_translator

SHOWN = 5  # unknown tokens named

log = logging.getLogger(__name__)


def open_translator(config: TranslatorConfig) -> tuple[Translator, Checkpoint]:
    """The translator of a checkpoint on the device and threads that were asked for.

    Raises:
        ValueError, OSError: there is no such device or file; see ``load_translator``.
    """
    runtime.set_threads(config.threads)
    device = runtime.select_device(config.device)
    return load_translator(Path(config.checkpoint), config.decoding, device)


def unknown_tokens(translator: Translator, translations: Iterable[Translation]) -> Counter[str]:
    """Source tokens that the model has no word for, which it read as ``<unk>``."""
    vocabulary = translator.source.vocabulary
    tokens = (token for translation in translations for token in translation.source_tokens[:-1])
    return Counter(token for token in tokens if token not in vocabulary)


def report_unknown(unknown: Counter[str]) -> None:
    """Log how many there were, and the commonest of them."""
    if unknown:
        shown = [repr(token) for token, _ in unknown.most_common(SHOWN)]
        more = ", ..." if len(unknown) > SHOWN else ""
        count = runtime.counted(unknown.total(), "source token")
        log.warning("%s unknown to the model, read as <unk>: %s%s", count, ", ".join(shown), more)
