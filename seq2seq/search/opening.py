"""From the settings of a script that translates to a translator that is ready."""

from pathlib import Path

from seq2seq.checkpoint import Checkpoint
from seq2seq.config.scripts import TranslatorConfig
from seq2seq.device import select_device, set_threads
from seq2seq.search.translator import Translator, load_translator


def open_translator(config: TranslatorConfig) -> tuple[Translator, Checkpoint]:
    """The translator of a checkpoint on the device and threads that were asked for.

    Raises:
        ValueError, OSError: there is no such device or file; see ``load_translator``.
    """
    set_threads(config.threads)
    device = select_device(config.device)
    return load_translator(Path(config.checkpoint), config.decoding, device)
