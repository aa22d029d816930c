"""Draw where a model looks: one sentence, or a sentence and a given translation, to a PNG.

    python scripts/plot_alignment.py checkpoint=... 'source="Der Hund schläft."'
    python scripts/plot_alignment.py checkpoint=... 'source="..."' 'target="..."' output=a.png

Without target, the model translates first. The weights are written beside the picture.
"""

import logging
from pathlib import Path

from seq2seq import runtime
from seq2seq.command_line import command
from seq2seq.config import PlotAlignmentConfig
from seq2seq.decoding.translator import load_translator
from seq2seq.training.validation import draw


@command("plot_alignment", PlotAlignmentConfig)
def main(config: PlotAlignmentConfig) -> None:
    runtime.set_threads(config.threads)
    device = runtime.select_device(config.device)
    translator, _ = load_translator(Path(config.checkpoint), config.decoding, device)
    if config.target is None:
        translation = translator.translate([config.source])[0]
        title = f"translated: {translation.text}"
    else:
        translation = translator.force([(config.source, config.target)])[0]
        title = f"given: {config.target}"
    output = Path(config.output)
    draw(translation, title, output.with_suffix(""))
    logging.info(
        "%s (score %.3f); picture in %s", title, translation.score, output.with_suffix(".png")
    )


if __name__ == "__main__":
    main()
