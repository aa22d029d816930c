"""Repeat a training run from its manifest.json, and report whether the results are identical.

    python scripts/reproduce.py run=runs/sample/<run>
    python scripts/reproduce.py run=... root=/data/corpus     if the corpus files have moved

The script makes as many updates as the original run, in a new folder,
runs/reproduced/<date>_<time>/. The log first lists what has changed since: machine, versions, code,
threads, and settings changed by a resume. A changed corpus is refused before training. At the end
the script prints "equal" (exit status 0) if all losses and scores in the journal and all bits of
the final parameters agree, or the first difference (exit status 3).

A run that was ended by trainer.max_minutes or by a signal is repeated up to the last update of its
last checkpoint. If its learning rate depended on the clock, it cannot be repeated exactly, and the
log says so.
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
