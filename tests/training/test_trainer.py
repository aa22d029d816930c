"""A run is a function of its settings: not of batches, interruptions or what it validates on."""

import json
import math
import os
import random
import re
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seq2seq.checkpoint import load_checkpoint
from seq2seq.config.data import DataConfig, SplitConfig, TokenizerConfig
from seq2seq.config.model import AttentionConfig, ModelConfig, OutputConfig
from seq2seq.config.training import (
    DecodingConfig,
    OptimConfig,
    ScheduleConfig,
    TrainConfig,
    TrainerConfig,
)
from seq2seq.data.corpus import open_corpus
from seq2seq.data.preparation import prepare
from seq2seq.data.reading import SentencePair
from seq2seq.fast.accelerate import accelerate
from seq2seq.model.build import build_model
from seq2seq.precision import Precision
from seq2seq.randomness import seed_everything
from seq2seq.runs.run import check_resumable
from seq2seq.scoring.evaluate import TestSet as Examples  # pytest would collect a Test...
from seq2seq.scoring.evaluate import evaluate
from seq2seq.search.loading import load_translator
from seq2seq.search.translator import Translator
from seq2seq.signals import Interrupted
from seq2seq.training import trainer as trainer_module
from seq2seq.training import update as update_module
from seq2seq.training.checkpoints import newest_checkpoint, saved_steps
from seq2seq.training.trainer import PATIENCE_WITH_NONSENSE, Trainer

ALPHABET = "abcdefghij"


def reversals(count, longest, seed):
    """Pairs of a sequence of letters and the same backwards."""
    rng = random.Random(seed)
    for _ in range(count):
        letters = rng.choices(ALPHABET, k=rng.randint(1, longest))
        yield SentencePair(" ".join(letters), " ".join(reversed(letters)))


def data_config(folder, train, valid):
    """Files of these pairs, split at blanks."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, pairs in (("train", train), ("valid", valid), ("test", valid)):
        for side in ("source", "target"):
            lines = [getattr(pair, side) for pair in pairs]
            (folder / f"{part}.{side}").write_text("\n".join(lines) + "\n")
    splits = {p: SplitConfig(f"{p}.source", f"{p}.target") for p in ("train", "valid", "test")}
    return DataConfig(
        name="reverse", root=str(folder), prepared=str(folder / "prepared"),
        source_language="en", target_language="en", tokenizer=TokenizerConfig("whitespace"),
        **splits,
    )  # fmt: skip


TRAIN, VALID = list(reversals(64, 6, seed=1)), list(reversals(10, 6, seed=2))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return data_config(tmp_path_factory.mktemp("reverse"), TRAIN, VALID)


@pytest.fixture
def config(data):
    """A tiny model, trained 6 steps of a few sentences."""
    return TrainConfig(
        device="cpu",
        name="reverse",
        data=data,
        model=ModelConfig(
            embedding_size=8, encoder_size=8, decoder_size=12, dropout=0.3,
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


def trainer_of(config, run_dir, resumed=None, valid=None):
    """As a new process would build it."""
    run_dir.mkdir(exist_ok=True)
    seed_everything(config.seed)
    corpus = prepare(open_corpus(config.data), config.data)
    model = accelerate(
        build_model(config.model, len(corpus.source.vocabulary), len(corpus.target.vocabulary))
    )
    return Trainer(model, corpus, Examples(valid or VALID), config, run_dir, resumed)


def last(run_dir, name="last"):
    return load_checkpoint(run_dir / "checkpoints" / f"{name}.safetensors")


def journal(run_dir, kind):
    lines = [json.loads(line) for line in (run_dir / "journal.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == kind]


def same_parameters(one, other):
    a, b = one.model.state_dict(), other.model.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def same_curves(one, other):
    """Whether two journals tell the same, but for the speed."""

    def curves(run_dir):
        events = journal(run_dir, "train") + journal(run_dir, "valid")
        return [{k: v for k, v in event.items() if k != "tokens_per_second"} for event in events]

    return curves(one) == curves(other)


def with_trainer(config, **changes):
    return replace(config, trainer=replace(config.trainer, **changes))


def without_dropout(config):
    return replace(config, model=replace(config.model, dropout=0.0))


# --- one update -----------------------------------------------------------------------------


def test_four_small_batches_make_the_update_of_a_large_one(config, tmp_path):
    """M7: every token weighs the same, whatever batch it came in."""
    config = without_dropout(config)
    # An epsilon above the rounding of sums: below it Adam turns noise into whole steps.
    config = replace(config, optim=replace(config.optim, epsilon=1e-3, max_gradient_norm=0.5))
    trainers = []
    for sentences, accumulated in ((64, 1), (16, 4)):
        changed = with_trainer(
            config, batch_sentences=sentences, accumulate_batches=accumulated, max_steps=4
        )
        trainers.append(trainer_of(changed, tmp_path / str(sentences)))
        trainers[-1].fit()
    whole, parts = trainers
    assert whole.progress.step == parts.progress.step == 4  # of one epoch each
    assert whole.progress.tokens == parts.progress.tokens
    for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    losses = [
        [event["loss"] for event in journal(tmp_path / name, "train")] for name in ("64", "16")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_the_last_batches_of_an_epoch_are_trained_on_too(config, tmp_path):
    """64 sentences in batches of 12, two a step: 3 steps, and no token is left out."""
    trainer = trainer_of(
        with_trainer(config, accumulate_batches=2, max_steps=None, max_epochs=2), tmp_path
    )
    trainer.fit()
    assert trainer.progress.step == 2 * 3
    assert trainer.progress.tokens == 2 * sum(len(pair.target.split()) + 1 for pair in TRAIN)


@pytest.fixture
def any_precision(monkeypatch):
    """As if the processor had every precision; without the instructions it is merely slow."""
    monkeypatch.setattr(trainer_module, "select_precision", Precision)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_learns_what_single_precision_does(
    config, tmp_path, any_precision, precision
):
    losses = {}
    for name in ("fp32", precision):
        changed = replace(without_dropout(config), precision=name)
        trainer = trainer_of(changed, tmp_path / name)
        trainer.fit()
        losses[name] = [event["loss"] for event in journal(tmp_path / name, "train")]
        assert trainer.progress.skipped == 0
        assert all(parameter.dtype == torch.float32 for parameter in trainer.model.parameters())
    assert losses["fp32"] == pytest.approx(losses[precision], rel=0.01)
    assert losses["fp32"] != losses[precision]  # or nothing was in half precision


def test_a_gradient_too_large_for_fp16_is_scaled_down_and_is_no_nonsense(
    config, tmp_path, any_precision
):
    trainer = trainer_of(replace(config, precision="fp16"), tmp_path)
    trainer.precision.scaler._init_scale = 2.0**60
    before = [parameter.clone() for parameter in trainer.model.parameters()]
    trainer.fit()
    assert trainer.progress.step == 6
    assert trainer.progress.skipped == trainer.progress.nonsense == 0
    assert all(map(torch.equal, before, trainer.model.parameters()))
    assert trainer.precision.scaler.get_scale() == 2.0**54
    again = trainer_of(with_trainer(trainer.config, max_steps=7), tmp_path, last(tmp_path))
    assert again.precision.scaler.get_scale() == 2.0**54


def test_the_same_seed_is_the_same_run_and_another_is_another(config, tmp_path):
    runs = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        runs.append(trainer_of(replace(config, seed=seed), tmp_path / name))
        runs[-1].fit()
    assert same_parameters(runs[0], runs[1])
    assert same_curves(tmp_path / "a", tmp_path / "b")
    assert not same_parameters(runs[0], runs[2])


def test_validating_changes_nothing(config, tmp_path):
    runs = []
    for every in (1, 6):
        runs.append(
            trainer_of(with_trainer(config, validate_every_steps=every), tmp_path / f"{every}")
        )
        runs[-1].fit()
    assert same_parameters(*runs)


# --- validation -----------------------------------------------------------------------------


@pytest.fixture
def translator(config, tmp_path):
    """A model that has learned a little, so that its hypotheses are no accident."""
    trainer = trainer_of(
        with_trainer(without_dropout(config), max_steps=150, validate_every_steps=150), tmp_path
    )
    trainer.fit()
    return trainer.translator


def with_batch_size(translator, size):
    changed = replace(translator.config, batch_size=size)
    return Translator(translator.model, translator.source, translator.target, changed)


def test_validation_scores_do_not_depend_on_the_batch(translator):
    results = [evaluate(with_batch_size(translator, n), Examples(VALID)) for n in (1, 7, 64)]
    for result in results[1:]:
        assert result.scores["loss"] == pytest.approx(results[0].scores["loss"], rel=1e-6)
        assert result.scores["bleu"] == results[0].scores["bleu"]


def test_the_validation_loss_is_the_mean_over_all_target_tokens(translator):
    """Not a mean of means: by hand, from each sentence alone."""
    totals, tokens = 0.0, 0
    for pair in VALID:
        (forced,) = with_batch_size(translator, 1).score([pair])
        totals, tokens = totals - forced.log_prob, tokens + len(pair.target.split()) + 1
    scores = evaluate(translator, Examples(VALID)).scores
    assert scores["loss"] == pytest.approx(totals / tokens)
    assert scores["perplexity"] == pytest.approx(math.exp(totals / tokens))
    assert scores["target_tokens"] == tokens


def test_hypotheses_do_not_see_the_references(translator):
    """M6: other references give other scores for the same translations."""
    true = evaluate(translator, Examples(VALID))
    texts = [translation.text for translation in true.translations]
    assert any(len(text.split()) >= 4 for text in texts)  # BLEU needs four words in a row
    own = [SentencePair(pair.source, text) for pair, text in zip(VALID, texts, strict=True)]
    wrong = [SentencePair(pair.source, "x y z x y") for pair in VALID]
    for pairs, bleu in ((own, 100), (wrong, 0)):
        result = evaluate(translator, Examples(pairs))
        assert [translation.text for translation in result.translations] == texts
        assert result.scores["bleu"]["score"] == pytest.approx(bleu)
        assert result.scores["loss"] != true.scores["loss"]


class Fake:
    """Validations with the scores that a test wants."""

    def __init__(self, monkeypatch, name, scores):
        self.name, self.scores = name, iter(scores)
        monkeypatch.setattr(trainer_module, "evaluate", self.evaluate)

    def evaluate(self, translator, test_set, metric_tokenizer):
        scores = {"loss": 1.0, "bleu": {"score": 0.0}, "chrf": {"score": 0.0}, "perplexity": 1.0}
        new = next(self.scores)
        scores[self.name] = {"score": new} if isinstance(scores[self.name], dict) else new
        return type("Result", (), {"translations": [], "scores": scores})


NAN = math.nan


@pytest.mark.parametrize(
    ("select", "scores", "best"),
    [
        ("bleu", [1, 5, 3], 2),
        ("loss", [1, 5, 3], 1),
        ("loss", [5, 1, 3], 2),
        ("bleu", [NAN, 2, 1], 2),
        ("loss", [NAN, 5, 3], 3),
        ("loss", [2, NAN, NAN], 1),
        ("bleu", [4, 4, 4], 1),
        ("loss", [math.inf, 4, math.inf], 2),
        ("bleu", [0.0, 0.0, 0.5], 3),
    ],
)
def test_best_is_best(config, tmp_path, monkeypatch, select, scores, best):
    Fake(monkeypatch, select, scores)
    trainer = trainer_of(
        with_trainer(config, select=select, max_steps=3, validate_every_steps=1), tmp_path
    )
    trainer.fit()
    assert trainer.progress.best_step == best
    assert trainer.progress.best_score == scores[best - 1]
    stored = last(tmp_path, "best")
    assert stored.header["progress"]["step"] == best
    assert last(tmp_path).header["progress"]["best_step"] == best


def test_a_model_without_a_finite_loss_is_never_the_best(config, tmp_path, monkeypatch):
    """Its BLEU is 0, which is better than nothing only by the letter."""
    Fake(monkeypatch, "loss", [NAN, math.inf])
    trainer = trainer_of(with_trainer(config, max_steps=2, validate_every_steps=1), tmp_path)
    trainer.fit()
    assert trainer.progress.best_score is None
    assert not (tmp_path / "checkpoints" / "best.safetensors").exists()


def test_patience_counts_validations_since_the_best_one_across_a_restart(
    config, tmp_path, monkeypatch
):
    Fake(monkeypatch, "bleu", [1, 3, 2, 2, 9])
    config = with_trainer(config, max_steps=3, validate_every_steps=1, patience=2)
    trainer_of(config, tmp_path).fit()
    assert last(tmp_path).header["progress"]["stale"] == 1
    resumed = trainer_of(with_trainer(config, max_steps=99), tmp_path, last(tmp_path))
    assert resumed.fit().step == 4


# --- interruptions --------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adam", "adadelta"])
@pytest.mark.parametrize("stop", [1, 3, 6, 7])
def test_a_resumed_run_is_the_run(config, tmp_path, stop, optimizer):
    """Within an epoch, at its end (6 batches), behind it; with and without a log line pending."""
    config = with_trainer(config, max_steps=9)
    config = replace(config, optim=replace(config.optim, name=optimizer))
    whole = trainer_of(config, tmp_path / "whole")
    whole.fit()
    # Stopped as by kill -9 after a save: what came later is in the journal, and is taken back.
    killed = trainer_of(with_trainer(config, validate_every_steps=1), tmp_path / "parts")

    def die(save=killed._save):
        save()
        if killed.progress.step == stop:
            raise MemoryError

    killed._save = die
    with pytest.raises(MemoryError):
        killed.fit()
    random.random(), np.random.rand(), torch.rand(3)
    resumed = trainer_of(config, tmp_path / "parts", last(tmp_path / "parts"))
    resumed.fit()
    assert same_parameters(whole, resumed)
    a, b = whole.progress, resumed.progress
    assert (a.step, a.epoch, a.position, a.tokens) == (b.step, b.epoch, b.position, b.tokens)
    assert [event["loss"] for event in journal(tmp_path / "whole", "train")] == [
        event["loss"] for event in journal(tmp_path / "parts", "train")
    ]


def test_three_steps_and_three_more_are_six(config, tmp_path):
    whole = trainer_of(config, tmp_path / "whole")
    whole.fit()
    trainer_of(with_trainer(config, max_steps=3), tmp_path / "parts").fit()
    parts = trainer_of(config, tmp_path / "parts", last(tmp_path / "parts"))
    parts.fit()
    assert same_parameters(whole, parts)
    assert same_curves(tmp_path / "whole", tmp_path / "parts")


def test_a_finished_run_stays_as_it_is(config, tmp_path):
    trainer_of(config, tmp_path).fit()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")}
    again = trainer_of(config, tmp_path, last(tmp_path))
    assert again.finished()
    assert again.fit().step == 6
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")} == before


def test_a_run_whose_newest_checkpoint_is_damaged_goes_on_from_the_one_before(config, tmp_path):
    """T2: and ends as if nothing had happened."""
    config = with_trainer(config, validate_every_steps=2)
    whole = trainer_of(config, tmp_path / "whole")
    whole.fit()
    trainer_of(with_trainer(config, max_steps=4), tmp_path / "parts").fit()
    path = tmp_path / "parts" / "checkpoints" / "last.safetensors"
    path.write_bytes(path.read_bytes()[:-100])  # under its other names too
    found = newest_checkpoint(tmp_path / "parts")
    assert found.header["progress"]["step"] == 2
    resumed = trainer_of(config, tmp_path / "parts", found)
    resumed.fit()
    assert same_parameters(whole, resumed)
    assert same_curves(tmp_path / "whole", tmp_path / "parts")
    assert whole.progress.best_step == resumed.progress.best_step


@pytest.mark.parametrize("select", ["bleu", "loss"])
def test_the_best_are_kept_by_the_score_that_selects(config, tmp_path, monkeypatch, select):
    """T4: of validations that are no number, none."""
    Fake(monkeypatch, select, [NAN, 5, 1, 3, 4, 2])
    config = with_trainer(config, select=select, validate_every_steps=1, keep_best=2, keep_last=1)
    trainer_of(config, tmp_path).fit()
    best = (2, 5) if select == "bleu" else (3, 6)
    assert set(saved_steps(tmp_path)) == {*best, 6}
    assert last(tmp_path, "best").header["progress"]["step"] == best[0]


@pytest.fixture
def stop_in(monkeypatch):
    """Sends a signal to this process when a method of a trainer is first called."""

    def install(trainer, method, number, at_step):
        original = getattr(trainer, method)

        def stopped(*arguments):
            if trainer.progress.step == at_step:
                os.kill(os.getpid(), number)
            return original(*arguments)

        monkeypatch.setattr(trainer, method, stopped)

    return install


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("method", "step"), [("_update", 1), ("_log", 4), ("_save", 3)])
def test_a_signal_saves_the_run_and_the_rest_is_the_same(
    config, tmp_path, stop_in, number, method, step
):
    handler = signal.getsignal(number)
    whole = trainer_of(config, tmp_path / "whole")
    whole.fit()
    stopped = trainer_of(config, tmp_path / "parts")
    stop_in(stopped, method, number, step)
    with pytest.raises(Interrupted) as caught:
        stopped.fit()
    assert caught.value.exit_status == 128 + number  # as a shell would say
    assert signal.getsignal(number) is handler
    saved = last(tmp_path / "parts")
    assert saved.header["progress"]["step"] == stopped.progress.step < 6
    resumed = trainer_of(config, tmp_path / "parts", saved)
    resumed.fit()
    assert same_parameters(whole, resumed)
    assert same_curves(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize("step", [3, 6])
def test_a_signal_does_not_wait_for_a_validation_which_is_made_up_for(
    config, tmp_path, monkeypatch, step
):
    """T3: a validation can take minutes. The one at step 6 is the last thing of the run."""
    whole = trainer_of(config, tmp_path / "whole")
    whole.fit()
    stopped = trainer_of(config, tmp_path / "parts")

    def slow(*arguments):
        if stopped.progress.step == step:
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("went on")
        return evaluate(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module, "evaluate", slow)
        with pytest.raises(Interrupted):
            stopped.fit()
    resumed = trainer_of(config, tmp_path / "parts", last(tmp_path / "parts"))
    resumed.fit()
    assert same_parameters(whole, resumed)
    assert same_curves(tmp_path / "whole", tmp_path / "parts")
    assert whole.progress.best_step == resumed.progress.best_step


def test_a_signal_that_comes_when_all_is_saved_is_not_lost(config, tmp_path):
    trainer = trainer_of(config, tmp_path)

    def close(original=trainer.journal.close):
        original()
        os.kill(os.getpid(), signal.SIGTERM)

    trainer.journal.close = close
    with pytest.raises(Interrupted):
        trainer.fit()
    assert last(tmp_path).header["progress"]["step"] == 6


# --- what goes wrong ------------------------------------------------------------------------


def break_updates(trainer, monkeypatch, steps):
    """Make the loss of these updates no number."""
    loss = update_module.chunked_cross_entropy

    def broken(*arguments):
        made = loss(*arguments)
        return made._replace(objective=made.objective * NAN, nll=made.nll * NAN) if (
            trainer.progress.step + 1 in steps
        ) else made  # fmt: skip

    monkeypatch.setattr(update_module, "chunked_cross_entropy", broken)


def test_an_update_without_a_finite_gradient_is_skipped_and_counted(config, tmp_path, monkeypatch):
    # Saved between the broken update and the next line of the log.
    config = with_trainer(config, log_every_steps=6, validate_every_steps=2)
    trainer = trainer_of(config, tmp_path)
    break_updates(trainer, monkeypatch, {1, 2, 5})
    start = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    trainer._save = lambda save=trainer._save: (save(), kept.append(trainer.progress.step))
    kept = []
    trainer.fit()
    assert trainer.progress.skipped == 3
    assert trainer.progress.step == 6
    assert len(kept) >= 3
    (line,) = journal(tmp_path, "train")
    assert math.isfinite(line["loss"])  # of the updates that were made
    assert any(
        not torch.equal(a, b) for a, b in zip(start, trainer.model.parameters(), strict=True)
    )
    assert all(parameter.isfinite().all() for parameter in trainer.model.parameters())


def test_a_run_that_only_makes_nonsense_stops_and_says_where(config, tmp_path, monkeypatch):
    config = with_trainer(config, max_steps=50, validate_every_steps=2)
    trainer = trainer_of(config, tmp_path)
    break_updates(trainer, monkeypatch, set(range(4, 50)))
    with pytest.raises(ValueError, match=rf"step {3 + PATIENCE_WITH_NONSENSE}\b") as caught:
        trainer.fit()
    assert "optim.learning_rate" in str(caught.value)
    assert "\n" not in str(caught.value)
    for name in ("best", "last"):
        assert all(
            tensor.isfinite().all() for tensor in last(tmp_path, name).part("model").values()
        )
    assert last(tmp_path, "best").header["progress"]["step"] <= 3


@pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory. Tried"), MemoryError()])
def test_a_batch_without_memory_is_named_and_nothing_is_lost(config, tmp_path, monkeypatch, error):
    trainer, calls = trainer_of(with_trainer(config, accumulate_batches=2), tmp_path), []

    def fail_in_the_third(*args, made=trainer_module.accumulate):
        calls.append(None)
        if len(calls) == 3:
            raise error
        return made(*args)

    monkeypatch.setattr(trainer_module, "accumulate", fail_in_the_third)
    with pytest.raises(ValueError, match=r"step 3: out of memory for 16 pairs ") as caught:
        trainer.fit()
    assert str(caught.value).endswith("with a smaller trainer.batch_sentences=12.")
    assert ", lines " in str(caught.value)
    assert "\n" not in str(caught.value)
    saved = last(tmp_path)
    assert saved.header["progress"]["step"] == 2
    resumed = trainer_of(with_trainer(config, batch_sentences=6), tmp_path, saved)
    assert resumed.progress.position == 2 * 24
    assert same_parameters(trainer, resumed)
    assert resumed.fit().step == 6


def test_another_fault_in_an_update_is_no_lack_of_memory(config, tmp_path, monkeypatch):
    def fail(*args):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(trainer_module, "accumulate", fail)
    with pytest.raises(RuntimeError, match="shapes"):
        trainer_of(config, tmp_path).fit()


def trained_on(monkeypatch):
    """The sources of each update, as text, noted while it is made."""
    noted = []

    def update(trainer, batches, made=Trainer._update):
        vocabulary = trainer.corpus.source.vocabulary
        rows = [row[row >= 4].tolist() for batch in batches for row in batch.source]
        noted.append(sorted(" ".join(vocabulary.tokens(row)) for row in rows))
        made(trainer, batches)

    monkeypatch.setattr(Trainer, "_update", update)
    return noted


@pytest.mark.parametrize("accumulate_batches", [1, 2])
def test_a_skipped_update_is_reported_with_its_lines(
    config, tmp_path, monkeypatch, caplog, accumulate_batches
):
    """Blank lines before and between: numbers are those of the file, not of the pairs kept."""
    blank = SentencePair("", "a")
    pairs = [blank, *TRAIN[:30], blank, blank, *TRAIN[30:]]
    config = replace(config, data=data_config(tmp_path / "text", pairs, VALID))
    config = with_trainer(config, max_steps=8, accumulate_batches=accumulate_batches)
    noted = trained_on(monkeypatch)
    trainer = trainer_of(config, tmp_path / "run")
    break_updates(trainer, monkeypatch, {2, 4, 7})
    trainer.fit()
    told = [message for message in caplog.messages if "; skipped: " in message]
    assert len(told) == 3
    for step, message in zip((2, 4, 7), told, strict=True):
        assert message.startswith(f"step {step}: loss nan, gradient norm nan; skipped: ")
        assert f"of {tmp_path}/text/train.source and {tmp_path}/text/train.target" in message
        numbers = re.search(r"lines ([\d, ]+) \(", message)[1].split(", ")
        assert sorted(pairs[int(number) - 1].source for number in numbers) == noted[step - 1]
        assert f"skipped: {len(numbers)} pairs" in message
        length = len(pairs[int(numbers[0]) - 1].source.split())
        assert f"(tokens of the first: {length} and {length}, " in message


def test_nonsense_is_counted_across_a_restart_and_the_end_names_the_lines(
    config, tmp_path, monkeypatch
):
    config = with_trainer(config, max_steps=50)
    trainer = trainer_of(config, tmp_path)
    break_updates(trainer, monkeypatch, set(range(2, 50)))
    trainer.fit(until=PATIENCE_WITH_NONSENSE - 1)
    monkeypatch.undo()
    again = trainer_of(config, tmp_path, last(tmp_path))
    assert again.progress.nonsense == PATIENCE_WITH_NONSENSE - 2
    break_updates(again, monkeypatch, set(range(2, 50)))
    with pytest.raises(ValueError, match=rf"step {1 + PATIENCE_WITH_NONSENSE}: .* lines \d+, \d+"):
        again.fit()
    assert again.progress.skipped == PATIENCE_WITH_NONSENSE


@pytest.mark.parametrize("value", [NAN, math.inf])
def test_a_model_with_a_parameter_that_is_no_number_is_never_the_best(
    config, tmp_path, monkeypatch, value
):
    """Though its losses are: the word of that embedding does not occur in the validation part."""
    Fake(monkeypatch, "loss", [3.0, 2.0])
    config = with_trainer(config, select="loss", max_steps=2, validate_every_steps=1)
    trainer = trainer_of(config, tmp_path)

    def update(batches, made=trainer._update):
        made(batches)
        if trainer.progress.step == 2:
            with torch.no_grad():
                next(trainer.model.parameters())[0, 0] = value

    trainer._update = update
    trainer.fit()
    assert trainer.progress.best_step == 1
    assert all(t.isfinite().all() for t in last(tmp_path, "best").part("model").values())


def test_a_run_of_a_given_length_is_the_beginning_of_the_whole(config, tmp_path):
    """With a schedule too, which still counts on all the steps there were to be."""
    config = replace(config, optim=replace(config.optim, schedule=ScheduleConfig("linear")))
    for name, until in (("short", 3), ("whole", None)):
        trainer_of(config, tmp_path / name).fit(until)
    short, whole = (
        [e for e in journal(tmp_path / name, "train") if e.pop("tokens_per_second")]
        for name in ("short", "whole")
    )
    assert short == whole[: len(short)]
    assert last(tmp_path / "short").header["progress"]["step"] == 3


def test_an_absurd_learning_rate_leaves_finite_checkpoints(config, tmp_path):
    """T7: lr=1e30 ends in logits that are no numbers."""
    config = replace(config, optim=OptimConfig("adam", learning_rate=1e30, max_gradient_norm=None))
    trainer = trainer_of(with_trainer(config, max_steps=99, validate_every_steps=2), tmp_path)
    with pytest.raises(ValueError, match="step"):
        trainer.fit()
    for path in tmp_path.rglob("*.safetensors"):
        for tensor in load_checkpoint(path).part("model").values():
            assert tensor.isfinite().all(), path


# --- pictures and settings ------------------------------------------------------------------


def test_every_validation_draws_the_same_sentences(config, tmp_path):
    """V2, V7: as many pictures in the event file as on the disk, and none of another sentence."""
    config = with_trainer(config, max_steps=4, validate_every_steps=2, sentences=[1, 7, 999])
    trainer_of(config, tmp_path).fit()
    events = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"images": 0})
    events.Reload()
    tags = events.Tags()["images"]
    assert set(tags) == {"alignment/valid_0001", "alignment/valid_0007"}
    files = sorted((tmp_path / "alignments").rglob("*.png"))
    assert len(files) == sum(len(events.Images(tag)) for tag in tags) == 4
    for tag in tags:
        assert [event.step for event in events.Images(tag)] == [2, 4]
    for line in (1, 7):
        for path in (tmp_path / "alignments" / f"valid_{line:04d}").glob("*.json"):
            shown = json.loads(path.read_text())
            assert shown["source_tokens"] == [*VALID[line - 1].source.split(), "</s>"]


def test_a_checkpoint_translates_by_itself(config, tmp_path):
    """D9: vocabularies travel in the file; the training text is not read again."""
    text = tmp_path / "text"
    trainer = trainer_of(replace(config, data=data_config(text, TRAIN, VALID)), tmp_path)
    trainer.fit()
    shutil.rmtree(text)
    path = tmp_path / "checkpoints" / "last.safetensors"
    loaded, _ = load_translator(path, trainer.translator.config, torch.device("cpu"))
    sources = [pair.source for pair in VALID]
    assert not loaded.model.training  # also while another thread translates
    found, expected = loaded.translate(sources), trainer.translator.translate(sources)
    assert [t.text for t in found] == [t.text for t in expected]
    assert [t.score for t in found] == [t.score for t in expected]


@pytest.mark.parametrize(
    "change",
    [
        lambda c: replace(c, seed=2),
        lambda c: replace(c, model=replace(c.model, dropout=0.1)),
        lambda c: replace(c, optim=replace(c.optim, name="adadelta")),
        lambda c: replace(c, data=replace(c.data, max_tokens=5)),
        lambda c: with_trainer(c, batch_sentences=5),
        lambda c: with_trainer(c, batch_tokens=500),
        lambda c: with_trainer(c, bucket_batches=1),
    ],
)
def test_what_decides_parameters_or_order_cannot_change_on_the_way(config, change):
    with pytest.raises(ValueError, match=r"resume=.* -> ") as caught:
        check_resumable(config, change(config))
    assert "\n" not in str(caught.value)


def test_other_changes_are_told(config):
    changed = with_trainer(replace(config, resume="runs/x"), max_steps=12, patience=3)
    changed = replace(changed, data=replace(changed.data, root="elsewhere"))
    assert sorted(map(str, check_resumable(config, changed))) == [
        f"data.root: {config.data.root} -> elsewhere",
        "trainer.max_steps: 6 -> 12",
        "trainer.patience: None -> 3",
    ]


# --- the whole --------------------------------------------------------------------------------


def test_reversing_is_learned(config, tmp_path):
    """The known answer: short sequences backwards, which needs attention that walks backwards."""
    valid = list(reversals(50, 4, seed=4))
    data = data_config(tmp_path / "text", list(reversals(3000, 4, seed=3)), valid)
    config = replace(
        config,
        data=data,
        model=ModelConfig(
            embedding_size=24, encoder_size=24, decoder_size=48, dropout=0.0,
            attention=AttentionConfig(size=24), output=OutputConfig(size=24),
        ),
        trainer=replace(config.trainer, max_steps=400, batch_sentences=64, log_every_steps=100,
                        validate_every_steps=400),
        optim=OptimConfig(learning_rate=0.01),
    )  # fmt: skip
    trainer = trainer_of(config, tmp_path / "run", valid=valid)
    trainer.fit()
    result = evaluate(trainer.translator, Examples(valid))
    right = [t.text == pair.target for t, pair in zip(result.translations, valid, strict=True)]
    assert sum(right) >= 0.95 * len(valid)
    # And it looks where it should: word t of n is made from source word n + 1 - t.
    looked = [
        t.alignment[:-1].argmax(axis=1).tolist() == list(range(len(t.tokens) - 1))[::-1]
        for t in result.translations
        if len(t.tokens) > 2
    ]
    assert sum(looked) >= 0.9 * len(looked)
