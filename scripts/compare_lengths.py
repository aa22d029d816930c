"""BLEU by source length, with and without attention: figures 2 and 3 of Bahdanau et al. 2015.

    python scripts/compare_lengths.py                            the sample corpus
    python scripts/compare_lengths.py data=multi30k data.max_tokens=15,50 ...    Multi30k
    python scripts/compare_lengths.py ... folder=runs/compare_lengths/<date>_<time>
                                     with the same settings again: go on

Trains the model with attention and the one without, each on short sentences only and on all, for
the same number of steps. The folder, runs/compare_lengths/<date>_<time>/, gets after each of them
lengths.png (BLEU by source length with its 95% confidence band), lengths.md (the same in figures,
and the gap on long sentences) and alignments.png (four alignments of the model with attention
trained on all). The table of all goes to stdout at the end.
"""

if __name__ == "__main__":  # before the imports, which take seconds
    from seq2seq.cli.exit import begin

    begin()


import logging

from seq2seq.cli.command import choice, command, output_dir
from seq2seq.config.scripts import CompareLengthsConfig
from seq2seq.runs.comparison import train_compared
from seq2seq.runs.lengths import model_label, write_lengths


@command("compare_lengths", CompareLengthsConfig, sweeps=True)
def main(config: CompareLengthsConfig) -> str:
    folder = output_dir()
    train_compared(config, folder, config.label or model_label(choice("model/attention"), config))
    table = write_lengths(folder.parent, config)
    logging.info("compared so far: %s", folder.parent / "lengths.md")
    return table


if __name__ == "__main__":
    main()
