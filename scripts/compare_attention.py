"""Train several attention mechanisms under equal conditions, and compare them.

    python scripts/compare_attention.py                      all mechanisms, on the sample corpus
    python scripts/compare_attention.py model/attention=additive,dot seed=1,2,3 trainer.max_epochs=5
    python scripts/compare_attention.py ... folder=runs/compare_attention/<date>_<time>
                                     continue, with the same settings

The folder runs/compare_attention/<date>_<time>/ contains a run folder for each mechanism and seed.
After each run the script updates comparison.md (BLEU, perplexity, AER, entropy, seconds,
parameters; mean and standard deviation over seeds) and comparison.png (the same sentence under each
mechanism). At the end it prints the table on stdout.
"""

if __name__ == "__main__":  # before the imports, which take seconds
    from seq2seq.cli.exit import begin

    begin()


import logging

from seq2seq.cli.command import choice, command, output_dir
from seq2seq.config.scripts import CompareConfig
from seq2seq.runs.comparison import train_compared, write_comparison


@command("compare_attention", CompareConfig, sweeps=True)
def main(config: CompareConfig) -> str:
    folder = output_dir()
    train_compared(config, folder, config.label or choice("model/attention"))
    table = write_comparison(folder.parent, config.lines)
    logging.info("compared so far: %s", folder.parent / "comparison.md")
    return table


if __name__ == "__main__":
    main()
