"""Average the parameters of several checkpoints of one model, which often improves translations.

    python scripts/average.py 'checkpoints=[a.safetensors,b.safetensors]' output=average.safetensors
    python scripts/average.py run=runs/sample/<run> last=5 output=average.safetensors

The output is a checkpoint for evaluate.py, translate.py and plot_alignment.py. Training cannot be
resumed from it. Its header lists the original checkpoints.
"""

if __name__ == "__main__":  # before the imports, which take seconds
    from seq2seq.cli.exit import begin

    begin()


import logging
from pathlib import Path

from seq2seq.cli.command import command
from seq2seq.config.scripts import AverageConfig
from seq2seq.run_folder import RunFolder
from seq2seq.runs.averaging import average_checkpoints, newest_steps


@command("average", AverageConfig)
def main(config: AverageConfig) -> None:
    if config.run is not None:
        paths = newest_steps(RunFolder(Path(config.run)), config.last)
    else:
        paths = [Path(name) for name in config.checkpoints]
    average_checkpoints(paths, Path(config.output))
    logging.info("%s is the average of %s", config.output, ", ".join(map(str, paths)))


if __name__ == "__main__":
    main()
