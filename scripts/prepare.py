"""Read a corpus, report on it, and prepare it for training.

    python scripts/prepare.py                    the sample corpus
    python scripts/prepare.py data=multi30k      downloaded once and checked
    python scripts/prepare.py data=files ...     your own text; see conf/data/files.yaml

Says what was read, what was dropped and why, and names file and line of anything wrong.
Training prepares by itself; this only looks first.
"""

from seq2seq.cli.command import command
from seq2seq.cli.exit import write
from seq2seq.config.scripts import PrepareConfig
from seq2seq.data.preparation import locate, prepare, report_lines
from seq2seq.scoring.evaluate import read_test_set


@command("prepare", PrepareConfig)
def main(config: PrepareConfig) -> None:
    for line in report_lines(prepare(config.data).report):
        write(line)
    test_set = read_test_set(locate(config.data, "test"))
    write(f"test: read {len(test_set.pairs):,} pairs, kept all")


if __name__ == "__main__":
    main()
