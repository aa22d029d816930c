"""Draw the alignment of a sentence with its translation, generated or given, as a PNG image.

    python scripts/plot_alignment.py checkpoint=... 'source="Der Hund schläft."'
    python scripts/plot_alignment.py checkpoint=... 'source="..."' 'target="..."' output=a.png

Without target=, the model translates the sentence first. The weights are written to a JSON file
next to the image.
"""

if __name__ == "__main__":  # before the imports, which take seconds
    from seq2seq.cli.exit import begin

    begin()


import logging
from pathlib import Path

from seq2seq.cli.command import command
from seq2seq.config.scripts import PlotAlignmentConfig
from seq2seq.data.vocabulary import UnknownTokenCounter
from seq2seq.scoring.output import draw
from seq2seq.search.loading import open_translator


@command("plot_alignment", PlotAlignmentConfig)
def main(config: PlotAlignmentConfig) -> None:
    translator = open_translator(config)[0]
    if config.target is None:
        translation = translator.translate([config.source])[0]
        title = f"translated: {translation.text}"
    else:
        translation = translator.score([(config.source, config.target)])[0]
        title = f"given: {config.target}"
    for side, vocabulary, tokens in (
        ("source", translator.source.vocabulary, translation.source_tokens),
        ("target", translator.target.vocabulary, translation.tokens),
    ):
        unknown = UnknownTokenCounter(side, vocabulary)
        unknown.count(tokens[:-1])
        unknown.report()
    output = Path(config.output)
    draw(translation, title).save(output.with_suffix(""))
    logging.info(
        "%s (score %.3f); picture in %s", title, translation.score, output.with_suffix(".png")
    )


if __name__ == "__main__":
    main()
