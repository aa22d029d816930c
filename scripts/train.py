"""Train a translation model, watch it learn, and score it.

    python scripts/train.py                                  the sample corpus, in minutes
    python scripts/train.py experiment=multi30k              Multi30k, downloaded once
    python scripts/train.py data=files data.train.source=... your own text
    python scripts/train.py resume=runs/sample/<run>         continue a stopped run

The run folder, runs/<name>/<date>_<time>/, contains checkpoints, TensorBoard events, alignments
and, at the end, summary.json. In a sweep (--multirun), each job returns its best validation score.
"""

if __name__ == "__main__":  # before the imports, which take seconds
    from seq2seq.cli.exit import begin

    begin()


import logging

from seq2seq.cli.command import command, merge_overrides, output_dir, task_overrides
from seq2seq.config.plugins import require_plugins
from seq2seq.config.training import TrainConfig
from seq2seq.device import interpreter
from seq2seq.run_folder import RunFolder
from seq2seq.runs.run import Run, check_resumable
from seq2seq.signals import continued_by
from seq2seq.training.checkpoints import claim, newest_checkpoint

log = logging.getLogger(__name__)


@command("train", TrainConfig)
def main(config: TrainConfig) -> float | None:
    folder = RunFolder(output_dir())
    with claim(folder):
        return train(config, folder)


def train(config: TrainConfig, folder: RunFolder) -> float | None:
    run = Run(config, folder) if config.resume is None else resume(folder)
    before = run.trainer.progress.step
    with continued_by(f"continue with: {interpreter()} scripts/train.py resume={folder.path}"):
        progress = run.trainer.fit()
        if progress.step == before:
            log.info(
                "already at step %d, only scoring is left to do; raise trainer.max_steps, "
                "max_epochs or max_minutes to train on",
                before,
            )
        run.finish()
    return progress.best_score


def resume(folder: RunFolder) -> Run:
    """Continue a run from its newest checkpoint, with the settings given on the command line."""
    checkpoint = newest_checkpoint(folder)
    stored = checkpoint.read("config", TrainConfig)
    require_plugins(stored.plugins, f"resume={folder.path}")
    config = merge_overrides(checkpoint.header["config"], task_overrides(), TrainConfig)
    for change in check_resumable(stored, config):
        log.info("changed  %s", change)
    log.info("resumed at step %s", f"{checkpoint.read('progress.step', int):,}")
    return Run(config, folder, checkpoint)


if __name__ == "__main__":
    main()
