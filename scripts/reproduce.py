"""Train a run once more from its manifest.json, and say whether the same comes out.

    python scripts/reproduce.py run=runs/sample/<run>
    python scripts/reproduce.py run=... root=/data/corpus     where the files lie elsewhere now

As many updates as the run made go into a new folder, runs/reproduced/<date>_<time>/. First the log
names what is not as it was: machine, versions, code, threads, settings changed by a resume; with
other text than before nothing begins. Then stdout says "equal", every loss and score in the journal
and every bit of the last parameters (exit status 0), or where the two part first (exit status 3).

A run that trainer.max_minutes or a signal ended is repeated up to the last update of its last
checkpoint. Where its learning rate fell with the clock, the log says that this cannot be repeated.
"""

if __name__ == "__main__":  # before the imports, which take seconds
    from seq2seq.cli.exit import begin

    begin()


import sys
from pathlib import Path

from seq2seq.cli.command import command, output_dir
from seq2seq.cli.exit import write
from seq2seq.config.scripts import ReproduceConfig
from seq2seq.run_folder import RunFolder
from seq2seq.runs.reproduction import compare_runs, train_again
from seq2seq.signals import continued_by

NOT_EQUAL = 3


@command("reproduce", ReproduceConfig)
def main(config: ReproduceConfig) -> None:
    folder = RunFolder(output_dir())
    with continued_by("nothing was compared"):
        train_again(config, folder)
    difference = compare_runs(RunFolder(Path(config.run)), folder)
    write("equal" if difference is None else f"not equal: {difference}")
    if difference is not None:
        sys.exit(NOT_EQUAL)


if __name__ == "__main__":
    main()
