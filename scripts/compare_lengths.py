"""BLEU by source length, with and without attention: figures 2 and 3 of Bahdanau et al. 2015.

    python scripts/compare_lengths.py                            the sample corpus
    python scripts/compare_lengths.py data=multi30k data.max_tokens=15,50 ...    Multi30k
    python scripts/compare_lengths.py ... folder=runs/compare_lengths/<date>_<time>
                                     continue, with the same settings

Trains a model with attention and one without, each once on short sentences only and once on all
sentences, for the same number of steps. After each run the script updates these files in
runs/compare_lengths/<date>_<time>/: lengths.png (BLEU by source length with its 95% confidence
band), lengths.md (the same as a table, and the gap on long sentences) and alignments.png (four
alignments of the model with attention that was trained on all sentences). At the end it prints the
table on stdout.
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
