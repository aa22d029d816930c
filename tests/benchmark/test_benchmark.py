"""The benchmark compares equal computations and counts correctly; no test depends on speed."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from seq2seq.benchmark import loading, peak, updates
from seq2seq.benchmark.attention import grid
from seq2seq.benchmark.decoding import build_endless_model, numbered_codec
from seq2seq.benchmark.memory import peak_memory
from seq2seq.benchmark.peak import count_operations
from seq2seq.benchmark.report import report
from seq2seq.benchmark.suite import run_benchmark
from seq2seq.benchmark.timing import Clock, interleave, ratios, spread
from seq2seq.benchmark.training import WAYS
from seq2seq.benchmark.updates import PHASES, Update
from seq2seq.benchmark.workload import VOCABULARY_SIZES, draw_batches, draw_pairs
from seq2seq.config.model import AttentionConfig, ModelConfig, OutputConfig
from seq2seq.config.scripts import BenchmarkConfig
from seq2seq.config.training import DecodingConfig, TrainConfig
from seq2seq.data.batching import collate
from seq2seq.data.vocabulary import SPECIALS
from seq2seq.model.dropout import Dropout
from seq2seq.precision import select_precision
from seq2seq.search.translator import Translator
from seq2seq.tasks.translation import TranslationTask
from seq2seq.training.loss import count_tokens

CPU = torch.device("cpu")
E, H_ENCODER, H, A, O = 3, 4, 6, 5, 2  # noqa: E741  (the letters of seq2seq)
C = 2 * H_ENCODER


def backward_as_in_training(update, batch):
    """The gradient of a batch by the loss of the translation task; its loss and tokens."""
    task = SimpleNamespace(model=update.model, config=TrainConfig(name="training"))
    loss, num_tokens = TranslationTask.loss(task, None, batch), count_tokens(batch.target_out)
    (loss.objective / num_tokens).backward()
    return loss.reported.item(), num_tokens


def model_config(**settings):
    sizes = {"embedding_size": E, "encoder_size": H_ENCODER, "decoder_size": H, "dropout": 0.0}
    return ModelConfig(
        **sizes | {"attention": AttentionConfig(size=A), "output": OutputConfig(size=O)} | settings
    )


def random_batch(lengths, seed=0):
    """Build a batch of random ids from pairs of lengths, given without EOS."""
    random = np.random.default_rng(seed)
    sources, targets = zip(
        *([random.integers(len(SPECIALS), 90, n) for n in pair] for pair in lengths), strict=True
    )
    return collate(sources, targets)


# All ways of training compute the same function


@pytest.mark.guarantee("All benchmarked variants of training compute the gradients of the trainer.")
@pytest.mark.parametrize("way", ["tutorial", "plain"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cell": "lstm", "output": OutputConfig("tanh", O, "previous")},
        {"attention": AttentionConfig(size=A, coverage=True)},
    ],
    ids=["reference", "lstm", "coverage"],
)
def test_every_variant_has_the_loss_and_gradients_of_the_trainer(way, settings):
    batch = random_batch([(5, 3), (2, 6), (1, 1)])
    update = WAYS[way](model_config(**settings), CPU, seed=1)
    trained = Update(model_config(**settings), CPU, seed=1)
    update.model.double()
    trained.model.double()
    loss = update.loss(batch, Clock(CPU))
    loss.backward()
    nll, num_tokens = backward_as_in_training(trained, batch)
    # Double precision, except the plain loss, which is always computed in single precision.
    assert loss.item() == pytest.approx(nll / num_tokens, rel=1e-6)
    for (name, one), other in zip(
        update.model.named_parameters(), trained.model.parameters(), strict=True
    ):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-7, msg=name)


def test_fast_variant_equals_the_trainer_bit_for_bit():
    """Including dropout."""
    batch = random_batch([(5, 3), (2, 6)])
    update = Update(model_config(dropout=0.3), CPU, seed=1)
    update.loss(batch, Clock(CPU)).backward()
    trained = Update(model_config(dropout=0.3), CPU, seed=1)
    backward_as_in_training(trained, batch)
    for one, other in zip(update.model.parameters(), trained.model.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


@pytest.mark.parametrize("way", ["tutorial", "plain", "fast"])
def test_an_update_changes_every_parameter_and_times_every_stage(way):
    update = WAYS[way](model_config(dropout=0.3), CPU, seed=1)
    before = {name: value.clone() for name, value in update.model.named_parameters()}
    clock = Clock(CPU)
    update(random_batch([(5, 3), (2, 6)]), clock)
    assert tuple(clock.seconds) == PHASES
    still = [n for n, value in update.model.named_parameters() if torch.equal(value, before[n])]
    assert still == []


def test_tutorial_uses_the_dropout_of_torch():
    kinds = [
        type(module)
        for module in WAYS["tutorial"](model_config(dropout=0.3), CPU, 1).model.modules()
    ]
    assert Dropout not in kinds
    ours = [type(module) for module in Update(model_config(), CPU, 1).model.modules()]
    assert kinds.count(nn.Dropout) == ours.count(Dropout) + ours.count(nn.Dropout) > 0


def test_unsupported_precision_is_reported(monkeypatch, tmp_path):
    def only_single(name, device):
        if name == "bf16":
            raise ValueError("precision=bf16 cannot be used here.")
        return select_precision(name, device)

    monkeypatch.setattr(updates, "select_precision", only_single)
    config = BenchmarkConfig(
        parts=["training"], threads=1, repeats=1, updates=1, model=model_config()
    )
    result = run_benchmark(config, tmp_path)
    assert result["training"]["ways"]["bf16"] == {
        "unsupported": "precision=bf16 cannot be used here."
    }
    assert "bf16: precision=bf16 cannot be used here." in report(result).split("\n")


# Operations


def test_operations_of_all_matrix_products_are_counted():
    """By hand: the gradient of each product consists of two products of the same size."""
    b, s, t = 4, 3, 5  # with EOS, no padding; a number of rows that ``packed_linear`` need not pad
    batch = random_batch([(s - 1, t - 1)] * b)
    encoder = 2 * b * s * (E * 3 * H_ENCODER + H_ENCODER * 3 * H_ENCODER)
    once = b * s * C * A + b * H_ENCODER * H  # keys, first state
    step = H * A + s * C + (E + C + H) * 3 * H  # query, weighted sum, gates
    output = (H + E + C) * 2 * O + O * VOCABULARY_SIZES[1]
    update = Update(model_config(), CPU, seed=1)
    forward = encoder + once + b * t * (step + output)
    assert count_operations(lambda: update(batch, Clock(CPU))) == 3 * 2 * forward


def test_tutorial_projects_the_keys_in_every_step():
    b, s, t = 3, 4, 5
    batch = random_batch([(s - 1, t - 1)] * b)
    plain, tutorial = (WAYS[way](model_config(), CPU, seed=1) for way in ("plain", "tutorial"))
    more = count_operations(lambda: tutorial(batch, Clock(CPU))) - count_operations(
        lambda: plain(batch, Clock(CPU))
    )
    assert more == 3 * 2 * b * s * C * A * (t - 1)


# Turns, statistics, memory


def test_tasks_take_turns_and_the_first_turn_does_not_count():
    called = []

    def task(name):
        return lambda: called.append(name) or len(called)

    found = interleave({name: task(name) for name in "abc"}, 2)
    assert "".join(called) == "abcabcabc"
    assert found == {"a": [4, 7], "b": [5, 8], "c": [6, 9]}


def test_medians_quartiles_and_ratios():
    assert spread([5, 1, 2, 4, 3]) == {
        "median": 3,
        "quartiles": [2, 4],
        "values": [5, 1, 2, 4, 3],
    }
    # Within each turn, so that a machine which halves its speed does not change the ratio.
    assert ratios([2, 4, 8], [1, 2, 4])["values"] == [2, 2, 2]


def test_laps_of_one_phase_add_up(monkeypatch):
    clock = Clock(CPU)
    clock._last = 0.0
    monkeypatch.setattr(clock, "_now", iter([1.0, 3.0, 6.0]).__next__)
    for phase in ("loss", "clip", "loss"):
        clock.lap(phase)
    assert clock.seconds == {"loss": 4.0, "clip": 2.0}
    assert clock.total == 6.0


def test_memory_is_that_of_the_work_alone():
    held = np.ones(2**26)  # half a gibibyte of this process
    memory = peak_memory(np.ones, 2**23, threads=1)
    assert memory["peak"] - memory["before"] == pytest.approx(2**26, rel=0.1)
    assert memory["peak"] < held.nbytes


# Workload


def test_sentences_have_the_lengths_of_multi30k():
    sources, targets = (
        np.array([len(ids) for ids in side]) for side in zip(*draw_pairs(20_000, 1), strict=True)
    )
    assert targets.mean() + 1 == pytest.approx(15.3, abs=0.15)
    assert targets.std() == pytest.approx(4.8, abs=0.15)
    assert (sources - targets).std() == pytest.approx(2.7, abs=0.15)


def test_batches_have_similar_lengths_within_and_all_lengths_between():
    batches = draw_batches(5, 1, CPU)
    lengths = [batch.target_out.shape[1] for batch in batches]
    assert lengths == sorted(lengths)
    assert lengths[0] < 15.3 < lengths[-1]
    real = sum(count_tokens(batch.target_out) for batch in batches)
    assert real > 0.9 * sum(batch.target_out.numel() for batch in batches)
    for one, other in zip(batches, draw_batches(5, 1, CPU), strict=True):
        assert torch.equal(one.source, other.source)
    assert all((batch.source < VOCABULARY_SIZES[0]).all() for batch in batches)


def test_sizes_of_attention_differ_from_the_first_in_one_size():
    model = ModelConfig(encoder_size=256, attention=AttentionConfig(size=512))
    base, *others = grid(BenchmarkConfig(lengths=[25, 50, 100], model=model))
    assert base == (25, 25, 512, 512)
    assert sorted(others) == sorted(
        [
            (50, 25, 512, 512), (100, 25, 512, 512), (25, 50, 512, 512), (25, 100, 512, 512),
            (25, 25, 256, 512), (25, 25, 1024, 512),
        ]
    )  # fmt: skip


@pytest.mark.parametrize("beam_size", [1, 3])
def test_outputs_are_as_long_as_their_sources(beam_size):
    model = build_endless_model(model_config(), seed=1)
    config = DecodingConfig(beam_size, max_length_factor=1.0, max_length_extra=1)
    sides = (numbered_codec(size) for size in VOCABULARY_SIZES)
    found = Translator(model, *sides, config).translate(["7 8 9 10", "11", "2000 9"])
    assert [len(translation.tokens) for translation in found] == [5, 2, 3]
    assert all(len(t.tokens) == len(t.source_tokens) for t in found)


# The whole benchmark


def test_every_part_is_measured_and_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(peak, "MIN_OPERATIONS", {"cpu": 1})
    monkeypatch.setattr(peak, "SHAPES", ((2, 3, 4), (5, 5, 5)))
    monkeypatch.setattr(loading, "NUM_BATCHES", 3)
    parts = ["training", "peak", "attention", "decoding", "loading"]
    config = BenchmarkConfig(
        threads=1,
        parts=parts,
        repeats=2,
        updates=1,
        sentences=3,
        lengths=[4],
        small_pairs=5,
        large_pairs=9,
        model=model_config(),
    )
    result = run_benchmark(config, tmp_path)
    assert list(tmp_path.iterdir()) == []  # the corpora were removed
    assert json.loads(json.dumps(result)) == result
    ways = result["training"]["ways"]
    for name in ("tutorial", "plain", "fast"):
        assert len(ways[name]["tokens_per_second"]["values"]) == 2
        assert set(ways[name]["seconds"]) == set(PHASES)
        assert ways[name]["fraction_of_peak"] > 0
    assert ways["tutorial"]["speedup"]["values"] == [1, 1]
    assert set(result["training"]["peak"]["fp32"]["shapes"]) == {"2x3x4", "5x5x5"}
    assert [row["pairs"] for row in result["loading"]] == [5, 9]
    text = report(result)
    words = ("as the tutorials do it", "GFLOP/s", "4 x 4 x 5", "greedy", "beam 5", "9 pairs")
    for word in words:
        assert word in text
    assert max(map(len, text.split("\n"))) < 180
