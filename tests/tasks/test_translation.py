"""Translation as a task of the training loop: updates, validation, messages and files."""

import json
import math
import random
import re
import shutil
from dataclasses import asdict, replace

import pytest
import torch

from seq2seq.checkpoint import load_checkpoint
from seq2seq.config.data import DataConfig, SplitConfig, TokenizerConfig
from seq2seq.config.model import AttentionConfig, ModelConfig, OutputConfig
from seq2seq.config.training import DecodingConfig, OptimConfig, TrainConfig, TrainerConfig
from seq2seq.data.reading import SentencePair
from seq2seq.evaluation.metrics import METRICS
from seq2seq.precision import Precision
from seq2seq.randomness import seed_everything
from seq2seq.run_folder import RunFolder
from seq2seq.scoring.evaluate import EvaluationSet, evaluate
from seq2seq.search.loading import load_translator
from seq2seq.search.translator import Translator
from seq2seq.tasks.translation import TranslationTask
from seq2seq.training.task import Loss
from seq2seq.training.trainer import Trainer

CPU = torch.device("cpu")
ALPHABET = "abcdefghij"


def reversals(count, longest, seed):
    """Pairs of a sequence of letters and its reverse."""
    rng = random.Random(seed)
    for _ in range(count):
        letters = rng.choices(ALPHABET, k=rng.randint(1, longest))
        yield SentencePair(" ".join(letters), " ".join(reversed(letters)))


def data_config(folder, train, valid):
    """Files of these pairs, tokenized at blanks."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in (("train", train), ("valid", valid)):
        for side in ("source", "target"):
            lines = [getattr(pair, side) for pair in pairs]
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n")
    valid_split = SplitConfig("valid.source", "valid.target")
    return DataConfig(
        name="reverse", root=str(folder), prepared=str(folder / "prepared"),
        source_language="en", target_language="en", tokenizer=TokenizerConfig("whitespace"),
        train=SplitConfig("train.source", "train.target"), valid=valid_split, test=valid_split,
    )  # fmt: skip


TRAIN, VALID = list(reversals(64, 6, seed=1)), list(reversals(10, 6, seed=2))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return data_config(tmp_path_factory.mktemp("reverse"), TRAIN, VALID)


@pytest.fixture(scope="module")
def config(data):
    """A tiny model, trained for 6 steps on a few sentences."""
    return TrainConfig(
        device="cpu",
        name="reverse",
        data=data,
        model=ModelConfig(
            embedding_size=8, encoder_size=8, decoder_size=12, dropout=0.0,
            attention=AttentionConfig(size=8), output=OutputConfig(size=8),
        ),
        optim=OptimConfig(learning_rate=0.01),
        trainer=TrainerConfig(
            max_steps=6, batch_sentences=12, bucket_batches=3, log_every_steps=2,
            validate_every_steps=3, sentences=[],
        ),
        decoding=DecodingConfig(
            beam_size=2, batch_size=4, max_length_factor=1.0, max_length_extra=2
        ),
    )  # fmt: skip


def with_trainer(config, **changes):
    return replace(config, trainer=replace(config.trainer, **changes))


def make(config, path, precision="fp32"):
    """A trainer as a new process builds it."""
    path.mkdir(parents=True, exist_ok=True)
    seed_everything(config.seed)
    task = TranslationTask.build(config, TranslationTask.open(config), CPU)
    metric = METRICS[config.trainer.select]
    folder, arguments = RunFolder(path), (Precision(precision, CPU), metric)
    return Trainer(task, config.trainer, folder, *arguments, {"config": asdict(config)})


def losses(path):
    lines = [json.loads(line) for line in (path / "journal.jsonl").read_text().splitlines()]
    return [event["loss"] for event in lines if event["event"] == "train"]


# --- updates ----------------------------------------------------------------------------------


@pytest.mark.guarantee("Accumulated small batches make the same update as a large one.")
def test_every_target_token_has_the_same_weight_whatever_its_batch(config, tmp_path):
    """M7: four accumulated batches of 16 sentences make the update of one of 64."""
    # Epsilon is larger than rounding errors, which Adam would otherwise turn into full steps.
    optim = replace(config.optim, epsilon=1e-3, max_gradient_norm=0.5)
    runs = []
    for sentences, accumulated in ((64, 1), (16, 4)):
        changed = with_trainer(
            replace(config, optim=optim),
            batch_sentences=sentences, accumulate_batches=accumulated, max_steps=4,
        )  # fmt: skip
        runs.append(make(changed, tmp_path / str(sentences)))
        runs[-1].fit()
    large, small = runs
    tokens = 4 * sum(len(pair.target.split()) + 1 for pair in TRAIN)
    assert large.progress.items == small.progress.items == tokens
    for a, b in zip(large.task.model.parameters(), small.task.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert losses(tmp_path / "64") == pytest.approx(losses(tmp_path / "16"), rel=1e-4)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_learns_what_single_precision_does(config, tmp_path, precision):
    for name in ("fp32", precision):
        trainer = make(config, tmp_path / name, name)
        assert trainer.fit().skipped == 0
        assert all(p.dtype == torch.float32 for p in trainer.task.model.parameters())
    single, half = losses(tmp_path / "fp32"), losses(tmp_path / precision)
    assert single == pytest.approx(half, rel=0.01)
    assert single != half  # or nothing was computed in half precision


@pytest.mark.guarantee(
    "Non-finite updates are skipped, counted and named; several in a row stop the run."
)
@pytest.mark.parametrize("accumulate_batches", [1, 2])
def test_a_skipped_update_is_reported_with_its_lines(config, tmp_path, caplog, accumulate_batches):
    """With blank lines before and between: line numbers are those of the file."""
    blank = SentencePair("", "a")
    pairs = [blank, *TRAIN[:30], blank, blank, *TRAIN[30:]]
    config = replace(config, data=data_config(tmp_path / "text", pairs, VALID))
    config = with_trainer(config, max_steps=8, accumulate_batches=accumulate_batches)
    trainer = make(config, tmp_path / "run")
    sources = {2: [], 4: [], 7: []}
    vocabulary = trainer.task.corpus.source.vocabulary

    def loss(objective, batch, original=trainer.task.loss):
        loss, step = original(objective, batch), trainer.progress.step + 1
        if step not in sources:
            return loss
        rows = [row[row >= 4].tolist() for row in batch.source]
        sources[step] += [" ".join(vocabulary.tokens(row)) for row in rows]
        return Loss(loss.objective * math.nan, loss.reported * math.nan)

    trainer.task.loss = loss
    trainer.fit()
    reported = [message for message in caplog.messages if "; skipped: " in message]
    assert len(reported) == 3
    for (step, expected), message in zip(sources.items(), reported, strict=True):
        assert message.startswith(f"step {step}: loss nan, gradient norm nan; skipped: ")
        assert f"of {tmp_path}/text/train.source and {tmp_path}/text/train.target" in message
        numbers = re.search(r"lines ([\d, ]+) \(", message)[1].split(", ")
        assert sorted(pairs[int(n) - 1].source for n in numbers) == sorted(expected)
        assert f"skipped: {len(numbers)} pairs" in message
        length = len(pairs[int(numbers[0]) - 1].source.split())
        assert f"(tokens of the first: {length} and {length}, " in message


@pytest.mark.guarantee("If memory runs out, the batch is named and the run saved.")
def test_out_of_memory_names_the_setting_that_makes_batches_smaller(config, tmp_path):
    trainer = make(config, tmp_path)

    def loss(objective, batch):
        raise MemoryError

    trainer.task.loss = loss
    with pytest.raises(ValueError, match=r"memory for 12 pairs of .*, lines .*") as caught:
        trainer.fit()
    assert str(caught.value).endswith("with a smaller trainer.batch_sentences=12.")


def test_an_absurd_learning_rate_leaves_finite_checkpoints(config, tmp_path):
    """T7: 1e30 ends in logits that are NaN."""
    optim = OptimConfig("adam", learning_rate=1e30, max_gradient_norm=None)
    config = with_trainer(replace(config, optim=optim), max_steps=99, validate_every_steps=2)
    with pytest.raises(ValueError, match="step"):
        make(config, tmp_path).fit()
    for path in tmp_path.rglob("*.safetensors"):
        for tensor in load_checkpoint(path).section("model").values():
            assert tensor.isfinite().all(), path


# --- validation -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(config, tmp_path_factory):
    """A run long enough that hypotheses are not accidental, and its folder."""
    path = tmp_path_factory.mktemp("trained")
    config = with_trainer(config, max_steps=150, validate_every_steps=150, sentences=[1, 7, 999])
    trainer = make(config, path)
    trainer.fit()
    return trainer, path


def with_batch_size(translator, size):
    changed = replace(translator.config, batch_size=size)
    return Translator(translator.model, translator.source, translator.target, changed)


@pytest.mark.guarantee("Batch size and order do not change translations.")
def test_validation_scores_do_not_depend_on_the_batch_size(trained):
    translator = trained[0].task.translator
    results = [evaluate(with_batch_size(translator, n), EvaluationSet(VALID)) for n in (1, 7, 64)]
    for result in results[1:]:
        assert result.scores["loss"] == pytest.approx(results[0].scores["loss"], rel=1e-6)
        assert result.scores["bleu"] == results[0].scores["bleu"]


@pytest.mark.guarantee(
    "Loss and perplexity are means over all target tokens, regardless of batching."
)
def test_validation_loss_is_the_mean_over_all_target_tokens(trained):
    translator = with_batch_size(trained[0].task.translator, 1)
    total = -sum(translator.score([pair])[0].log_prob for pair in VALID)
    tokens = sum(len(pair.target.split()) + 1 for pair in VALID)
    scores = evaluate(translator, EvaluationSet(VALID)).scores
    assert scores["loss"] == pytest.approx(total / tokens)
    assert scores["perplexity"] == pytest.approx(math.exp(total / tokens))
    assert scores["target_tokens"] == tokens


@pytest.mark.guarantee(
    "Validation translates without reading the references, and does not change training."
)
def test_hypotheses_do_not_depend_on_references(trained):
    """M6: other references give other scores for the same translations."""
    translator = trained[0].task.translator
    true = evaluate(translator, EvaluationSet(VALID))
    texts = [translation.text for translation in true.translations]
    assert any(len(text.split()) >= 4 for text in texts)  # BLEU needs four words in a row
    own = [SentencePair(pair.source, text) for pair, text in zip(VALID, texts, strict=True)]
    wrong = [SentencePair(pair.source, "x y z x y") for pair in VALID]
    for pairs, bleu in ((own, 100), (wrong, 0)):
        result = evaluate(translator, EvaluationSet(pairs))
        assert [translation.text for translation in result.translations] == texts
        assert result.scores["bleu"]["score"] == pytest.approx(bleu)
        assert result.scores["loss"] != true.scores["loss"]


@pytest.mark.guarantee(
    "TensorBoard and the run folder hold the pictures of the same sentences, one per validation."
)
def test_the_chosen_sentences_are_drawn_with_their_own_weights(trained):
    """V7: line 999 does not exist."""
    _, path = trained
    found = sorted(p.relative_to(path).as_posix() for p in (path / "alignments").rglob("*.json"))
    assert found == [f"alignments/valid_{line:04d}/step_0000150.json" for line in (1, 7)]
    for line, name in zip((1, 7), found, strict=True):
        shown = json.loads((path / name).read_text())
        assert shown["source_tokens"] == [*VALID[line - 1].source.split(), "</s>"]


@pytest.mark.guarantee(
    "A checkpoint contains vocabularies and settings: translating needs no other file."
)
def test_a_checkpoint_translates_without_the_corpus(config, tmp_path):
    """D9: vocabularies are in the file; the training text is not read again."""
    text = tmp_path / "text"
    trainer = make(replace(config, data=data_config(text, TRAIN, VALID)), tmp_path / "run")
    trainer.fit()
    shutil.rmtree(text)
    path = trainer.folder.checkpoint("last")
    own = trainer.task.translator
    loaded, _ = load_translator(path, own.config, CPU)
    assert not loaded.model.training  # also while another thread translates
    sources = [pair.source for pair in VALID]
    found, expected = loaded.translate(sources), own.translate(sources)
    assert [(t.text, t.score) for t in found] == [(t.text, t.score) for t in expected]


@pytest.mark.guarantee("A model trained on the sample task of reversing words solves it.")
def test_the_reverse_task_is_learned(config, tmp_path):
    """Reversing short sequences needs attention that moves backward."""
    valid = list(reversals(50, 4, seed=4))
    config = replace(
        config,
        data=data_config(tmp_path / "text", list(reversals(3000, 4, seed=3)), valid),
        model=ModelConfig(
            embedding_size=24, encoder_size=24, decoder_size=48, dropout=0.0,
            attention=AttentionConfig(size=24), output=OutputConfig(size=24),
        ),
    )  # fmt: skip
    config = with_trainer(
        config, max_steps=400, batch_sentences=64, log_every_steps=100, validate_every_steps=400
    )
    trainer = make(config, tmp_path / "run")
    trainer.fit()
    translations = trainer.task.translator.translate([pair.source for pair in valid])
    right = [t.text == pair.target for t, pair in zip(translations, valid, strict=True)]
    assert sum(right) >= 0.95 * len(valid)
    # Target word t of n is produced from source word n + 1 - t.
    backward = [
        t.alignment[:-1].argmax(axis=1).tolist() == list(range(len(t.tokens) - 1))[::-1]
        for t in translations
        if len(t.tokens) > 2
    ]
    assert sum(backward) >= 0.9 * len(backward)
