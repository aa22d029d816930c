"""Translation as a task of the training loop."""

import logging
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from seq2seq.config.training import TrainConfig
from seq2seq.data.batching import Batch, BatchLimits, load_batches, plan_batches
from seq2seq.data.corpus import Corpus, open_corpus
from seq2seq.data.preparation import PreparedCorpus, prepare
from seq2seq.data.report import report_lines
from seq2seq.evaluation.bleu import check_tokenizer
from seq2seq.evaluation.metrics import format_scores
from seq2seq.fast.accelerate import accelerate
from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.run_folder import evaluation_folder
from seq2seq.scoring.evaluate import EvaluationSet, evaluate, read_evaluation_set
from seq2seq.scoring.output import draw_sentences, write_evaluation
from seq2seq.search.loading import load_translator
from seq2seq.search.translator import Translator
from seq2seq.training.loss import chunked_cross_entropy, count_tokens
from seq2seq.training.optim import build_objective
from seq2seq.training.task import BatchSize, Loss, Objective, Report, Task, TaskState

PAIRS_IN_DETAIL = 3  # number of pairs of a skipped update whose lengths are reported

log = logging.getLogger(__name__)


class TranslationInputs(NamedTuple):
    """Everything that a run reads before it prepares its corpus."""

    corpus: Corpus
    valid: EvaluationSet
    test: EvaluationSet

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of every file, by its path below ``data.root``."""
        return self.corpus.digests


class TranslationTask(Task[Batch]):
    """Trains an encoder-decoder on sentence pairs with teacher forcing, and validates by
    translating freely.

    Args:
        model: the model, on its device.
        corpus: ids to train on.
        inputs: the corpus that they come from, and the sets to evaluate on.
        config: settings of the run.
    """

    item_name = "tokens"
    model: EncoderDecoder

    def __init__(
        self,
        model: EncoderDecoder,
        corpus: PreparedCorpus,
        inputs: TranslationInputs,
        config: TrainConfig,
    ):
        self.model, self.corpus, self.inputs, self.config = model, corpus, inputs, config
        self.objectives = [build_objective(config.optim, model.parameters())]
        self.num_examples = len(corpus.source_ids)
        decoding = replace(config.decoding, beam_size=config.trainer.validation_beam_size)
        self.translator = Translator(model, corpus.source, corpus.target, decoding)

    @classmethod
    def open(cls, config: TrainConfig) -> TranslationInputs:
        """Find the corpus, download missing files, and read the validation and test sets.

        Raises:
            ValueError, OSError: a file or ``metric_tokenizer`` is invalid.
        """
        warning = check_tokenizer(config.data.target_language, config.metric_tokenizer)
        if warning:
            log.warning(warning)
        corpus = open_corpus(config.data)
        # Read now: an error in the test set must not surface after a night of training.
        valid, test = (read_evaluation_set(corpus.files(split)) for split in ("valid", "test"))
        return TranslationInputs(corpus, valid, test)

    @classmethod
    def build(
        cls, config: TrainConfig, inputs: TranslationInputs, device: torch.device
    ) -> "TranslationTask":
        """Prepare the corpus and initialize the model.

        Raises:
            ValueError, OSError: the corpus is invalid; names file and line.
        """
        corpus = prepare(inputs.corpus, config.data)
        for line in report_lines(corpus.report):
            log.info(line)
        model = build_model(
            config.model, len(corpus.source.vocabulary), len(corpus.target.vocabulary)
        )
        return cls(accelerate(model.to(device)), corpus, inputs, config)

    def _plan(self, epoch: int, position: int) -> Iterator[NDArray[np.int64]]:
        """Yield the pairs of each batch of an epoch, after its first ``position`` pairs."""
        settings = self.config.trainer
        return plan_batches(
            self.corpus.source_ids,
            self.corpus.target_ids,
            BatchLimits(settings.batch_sentences, settings.batch_tokens),
            settings.bucket_batches,
            (self.config.seed, epoch),
            position,
        )

    def batches(self, epoch: int, position: int) -> Iterator[Batch]:
        corpus = self.corpus
        plan = self._plan(epoch, position)
        return load_batches(corpus.source_ids, corpus.target_ids, plan, self.model.device)

    def size(self, batch: Batch) -> BatchSize:
        return BatchSize(len(batch.source), count_tokens(batch.target_out))

    def loss(self, objective: Objective, batch: Batch) -> Loss:
        features = self.model.features(batch.source, batch.source_mask, batch.target_in)
        smoothing = self.config.trainer.label_smoothing
        return chunked_cross_entropy(features, self.model.output_layer, batch.target_out, smoothing)

    def validate(self, step: int) -> Report:
        result = evaluate(self.translator, self.inputs.valid, self.config.metric_tokenizer)
        lines = self.config.trainer.sentences
        drawings, texts = draw_sentences(result, self.inputs.valid, lines, step)
        return Report(result.values, drawings, texts)

    def describe(self, epoch: int, position: int, num_batches: int) -> str:
        # A batch does not know its line numbers; planning it again gives the same pairs.
        corpus, plan = self.corpus, self._plan(epoch, position)
        rows = np.sort(np.concatenate(list(islice(plan, num_batches))))
        first = rows[:PAIRS_IN_DETAIL]
        lengths = zip(
            corpus.source_ids.lengths(first), corpus.target_ids.lengths(first), strict=True
        )
        files = self.inputs.corpus.files("train")
        names = dict.fromkeys(str(path) for path in (files.source, files.target))
        return (
            f"{len(rows)} pairs of {' and '.join(names)}, "
            f"lines {', '.join(map(str, corpus.lines[rows].tolist()))} "
            f"(tokens of the first: {', '.join(f'{a} and {b}' for a, b in lengths)})"
        )

    def batch_settings(self) -> str:
        settings = self.config.trainer
        sizes = {
            "batch_tokens": settings.batch_tokens,
            "batch_sentences": settings.batch_sentences,
        }
        return " or ".join(f"trainer.{name}={size}" for name, size in sizes.items() if size)

    @property
    def prepared(self) -> str:
        return self.corpus.folder.name

    def state(self) -> TaskState:
        """Return tokenizers and vocabularies, so that a checkpoint can translate on its own."""
        codecs = {"source": self.corpus.source, "target": self.corpus.target}
        models = {name: codec.tokenizer.model for name, codec in codecs.items()}
        return TaskState(
            {
                f"tokenizer.{name}": torch.tensor(list(content), dtype=torch.uint8)
                for name, content in models.items()
                if content is not None
            },
            {"sides": {name: codec.state() for name, codec in codecs.items()}},
        )

    def score(self, checkpoint: Path) -> dict[str, Any]:
        """Score a checkpoint on the test and validation sets, and write its translations next to
        it.

        Returns:
            The entries for ``summary.json``.
        """
        decoding = self.config.decoding
        translator = load_translator(checkpoint, decoding, self.model.device)[0]
        scores: dict[str, Any] = {}
        for split, examples in (("test", self.inputs.test), ("valid", self.inputs.valid)):
            result = evaluate(translator, examples, self.config.metric_tokenizer)
            write_evaluation(evaluation_folder(checkpoint, split), examples, result)
            scores[split] = result.scores
        for split in ("valid", "test"):
            log.info("%-5s  %s", split, format_scores(scores[split]))
        return scores | {"decoding": asdict(decoding)}
