"""Score a checkpoint: BLEU, chrF, perplexity, and AER if true alignments are known.

    python scripts/evaluate.py checkpoint=runs/.../checkpoints/best.safetensors
    python scripts/evaluate.py checkpoint=... split=valid decoding.beam_size=1
    python scripts/evaluate.py checkpoint=... source=test.de target=test.en

Scores are printed as JSON on stdout, everything else on stderr. Hypotheses, references and
alignments are written to a folder next to the checkpoint; `sacrebleu references.txt -i
hypotheses.txt` computes the same BLEU.
"""

if __name__ == "__main__":  # before the imports, which take seconds
    from seq2seq.cli.exit import begin

    begin()


import json
import logging
from pathlib import Path

from seq2seq.cli.command import command
from seq2seq.cli.exit import write
from seq2seq.config.data import DataConfig
from seq2seq.config.scripts import EvaluateConfig
from seq2seq.data.corpus import locate
from seq2seq.data.reading import ParallelFiles
from seq2seq.evaluation.metrics import format_scores
from seq2seq.files import ensure_writable
from seq2seq.run_folder import evaluation_folder
from seq2seq.scoring.evaluate import evaluate, read_evaluation_set
from seq2seq.scoring.output import write_evaluation
from seq2seq.search.loading import open_translator


@command("evaluate", EvaluateConfig)
def main(config: EvaluateConfig) -> None:
    translator, checkpoint = open_translator(config)
    if config.source is not None and config.target is not None:
        alignment = Path(config.alignment) if config.alignment else None
        files, name = ParallelFiles(Path(config.source), Path(config.target), alignment), "files"
    else:
        data = checkpoint.read("config.data", DataConfig)
        files, name = locate(data, config.split), config.split
    examples = read_evaluation_set(files)
    folder = (
        Path(config.output) if config.output else evaluation_folder(Path(config.checkpoint), name)
    )
    ensure_writable(folder, "output")  # now, not after all sentences are translated
    result = evaluate(translator, examples, config.metric_tokenizer)
    write_evaluation(folder, examples, result)
    logging.info(format_scores(result.scores))
    logging.info("translations, references and alignments are in %s", folder)
    write(json.dumps(result.scores, indent=2))


if __name__ == "__main__":
    main()
