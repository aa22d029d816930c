"""What a notebook or another program calls; ``seq2seq`` offers these functions by name."""

from collections.abc import Sequence
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from seq2seq.config.plugins import import_plugins
from seq2seq.config.registry import did_you_mean
from seq2seq.config.schema import check_values, from_json
from seq2seq.config.training import DecodingConfig
from seq2seq.device import select_device
from seq2seq.figures.heatmap import alignment_figure
from seq2seq.run_folder import RunFolder
from seq2seq.search.loading import load_translator
from seq2seq.search.translator import Translation, Translator


def load(
    checkpoint: str | PathLike[str],
    device: str = "auto",
    plugins: Sequence[str] = (),
    **decoding: Any,
) -> Translator:
    """Load a translator.

    Args:
        checkpoint: a checkpoint file, or a run folder, which stands for its best checkpoint.
        device: where to compute; ``auto`` prefers a GPU.
        plugins: modules to import first, as the setting ``plugins=`` names them; a checkpoint that
            was trained with plug-ins is refused without them.
        **decoding: settings of the search, as in ``decoding.*`` on the command line, such as
            ``beam_size=1`` for greedy search.

    Raises:
        ValueError, OSError: the file is missing, damaged or not a checkpoint, or an argument is not
            allowed; names the file or the setting.
    """
    import_plugins(plugins)
    path = Path(checkpoint)
    if path.is_dir():
        path = RunFolder(path).checkpoint("best")
    return load_translator(path, _decoding_config(decoding), select_device(device))[0]


def _decoding_config(values: dict[str, Any]) -> DecodingConfig:
    """Check settings of the search as the command line does.

    Raises:
        ValueError: a setting does not exist, or a value is not allowed.
    """
    names = [field.name for field in fields(DecodingConfig)]
    for name in values:
        if name not in names:
            raise ValueError(
                f"there is no setting decoding.{name}{did_you_mean(name, names)}; choose from "
                f"{', '.join(names)}."
            )
    config = from_json(DecodingConfig, values, "decoding")
    check_values(config, "decoding.")
    return config


def draw_alignment(translation: Translation, title: str | None = None) -> Figure:
    """Draw the attention weights of a translation as a heatmap.

    Args:
        translation: the result of ``Translator.translate`` or ``Translator.score``.
        title: stands above the picture; by default the text of the translation.

    Returns:
        A figure: columns are source tokens, rows are target tokens. A notebook shows it;
        ``figure.savefig("alignment.png")`` writes it.
    """
    return alignment_figure(
        translation.alignment,
        translation.source_tokens,
        translation.tokens,
        translation.text if title is None else title,
    )
