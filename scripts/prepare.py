"""Read a corpus, report on it, and prepare it for training.

    python scripts/prepare.py                    the sample corpus
    python scripts/prepare.py data=multi30k      downloaded once and verified
    python scripts/prepare.py data=files ...     your own text; see conf/data/files.yaml

The report counts the pairs that were read, and those that were dropped and why. Errors name the
file and line. Training prepares the corpus itself; use this script to check the data first.
"""

if __name__ == "__main__":  # before the imports, which take seconds
    from seq2seq.cli.exit import begin

    begin()


from seq2seq.cli.command import command
from seq2seq.cli.exit import write
from seq2seq.config.scripts import PrepareConfig
from seq2seq.data.corpus import open_corpus
from seq2seq.data.preparation import prepare
from seq2seq.data.report import report_lines
from seq2seq.scoring.evaluate import read_evaluation_set


@command("prepare", PrepareConfig)
def main(config: PrepareConfig) -> None:
    corpus = open_corpus(config.data)
    for line in report_lines(prepare(corpus, config.data).report):
        write(line)
    examples = read_evaluation_set(corpus.files("test"))
    write(f"test: read {len(examples.pairs):,} pairs, kept all")


if __name__ == "__main__":
    main()
