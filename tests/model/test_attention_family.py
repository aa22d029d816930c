"""Every attention of conf/model/attention inside the model, and in a search through it.

The files are read as they are, so that a new one is tested without a line here.
"""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from conftest import ROOT
from torch.testing import assert_close

from seq2seq.attention.scoring import SCORES
from seq2seq.config.model import AttentionConfig, ModelConfig, OutputConfig
from seq2seq.config.schema import check_values
from seq2seq.config.training import DecodingConfig
from seq2seq.data.batching import collate
from seq2seq.data.codec import Codec
from seq2seq.data.tokenizer import WhitespaceTokenizer
from seq2seq.data.vocabulary import PAD, SPECIALS, UNK, Vocabulary
from seq2seq.fast.accelerate import accelerate
from seq2seq.model.build import build_model
from seq2seq.search.translator import Translator

V_SOURCE, V_TARGET = 13, 11
SOURCES = [[5, 7, 4], [9], [4, 4, 10, 6, 8, 5, 12]]
TARGETS = [[4, 10, 7, 7, 5], [6, 8], [9, 4, 6]]


def load(path):
    """A model whose windows and known positions are fewer than the words of a sentence."""
    attention = AttentionConfig(**yaml.safe_load(path.read_text(encoding="utf-8")))
    return ModelConfig(
        embedding_size=6,
        encoder_size=4,
        decoder_size=8,  # some scoring functions compare unit by unit with 2 * encoder_size
        dropout=0.0,
        attention=replace(attention, size=7, window=2, max_positions=5),
        output=OutputConfig(size=6),
    )


CONFIGS = {path.stem: load(path) for path in sorted((ROOT / "conf/model/attention").glob("*.yaml"))}
every_attention = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
either_mode = pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])


def seed(number):
    """Draw the same from here on. torch.manual_seed would write down the whole call stack for each
    kind of device that is not there: half of the time of these tests."""
    torch.default_generator.manual_seed(number)


def lively(config, training=False):
    """With parameters of up to 0.7: whatever is wrongly connected then shows in the logits."""
    seed(1)
    model = build_model(config, V_SOURCE, V_TARGET)
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.7, 0.7)
    return accelerate(model).double().train(training)


def call(model, batch):
    """Logits and weights, with the same draws each time."""
    seed(2)
    return model(batch.source, batch.source_mask, batch.target_in)


def loss_of(model, batch):
    log_probs = call(model, batch)[0].log_softmax(dim=-1)
    chosen = log_probs.gather(-1, batch.target_out[..., None]).squeeze(-1)
    return -chosen[batch.target_out != PAD].sum()


@every_attention
def test_the_settings_of_every_file_go_together(config):
    check_values(config, "model.")


@every_attention
@either_mode
def test_step_by_step_is_the_same_as_unrolled(config, training):
    model, batch = lively(config, training), collate(SOURCES, TARGETS)
    logits, weights = call(model, batch)
    seed(2)
    memory, state = model.start(batch.source, batch.source_mask)
    for i, tokens in enumerate(batch.target_in.unbind(dim=1)):
        step_logits, state, step_weights = model.decoder.step(tokens, state, memory)
        assert_close(step_logits, logits[:, i])
        assert_close(step_weights, weights[:, i])
    seed(2)
    _, last, _ = model.decoder(batch.target_in, *model.start(batch.source, batch.source_mask))
    assert_close(last.hidden, state.hidden)
    assert (last.past is None) == (state.past is None)
    for part, other in zip(last.past or (), state.past or (), strict=True):
        assert_close(part, other)


@every_attention
def test_each_position_is_told_where_those_before_it_have_looked(config):
    """From a past that is not theirs, the weights of those that look back are others."""
    model, batch = lively(config, training=True), collate(SOURCES[2:], TARGETS[2:])
    memory, start = model.start(batch.source, batch.source_mask)
    _, last, weights = model.decoder(batch.target_in, memory, start)
    if start.past is None:
        assert last.past is None
        return
    assert_close(last.past.previous, weights[:, -1])
    assert_close(last.past.coverage, weights.sum(dim=1))
    assert last.past.position.tolist() == [batch.target_in.shape[1]]

    def look(past):
        seed(2)
        return model.decoder.step(batch.target_in[:, 0], last._replace(past=past), memory)[2]

    assert (look(last.past) - look(start.past)).abs().max() > 1e-3


def test_a_window_moves_along_the_diagonal():
    batch = collate(SOURCES, TARGETS)
    _, weights = call(lively(CONFIGS["local_m"]), batch)
    for row, source in enumerate(SOURCES):
        for i, weights_i in enumerate(weights[row]):
            center = min(i, len(source))
            seen = [j for j in range(len(source) + 1) if abs(j - center) <= 2]
            assert weights_i.nonzero().flatten().tolist() == seen


@every_attention
def test_a_state_put_aside_is_not_changed_by_the_steps_that_follow(config):
    model, batch = lively(config), collate(SOURCES, TARGETS)
    memory, state = model.start(batch.source, batch.source_mask)
    _, state, _ = model.decoder.step(batch.target_in[:, 0], state, memory)
    kept = [part.clone() for part in (*memory, state.hidden, *(state.past or ()))]
    first, following, _ = model.decoder.step(batch.target_in[:, 1], state, memory)
    model.decoder.step(batch.target_in[:, 2], following, memory)
    model(batch.source[:1], batch.source_mask[:1], batch.target_in[:1])
    assert all(map(torch.equal, kept, (*memory, state.hidden, *(state.past or ()))))
    again, _, _ = model.decoder.step(batch.target_in[:, 1], state, memory)
    assert torch.equal(first, again)


@every_attention
@either_mode
def test_the_future_is_not_read(config, training):
    model, batch = lively(config, training), collate(SOURCES, TARGETS)
    logits, weights = call(model, batch)
    for i in range(1, batch.target_in.shape[1]):
        changed = batch.target_in.clone()
        changed[:, i:] = (changed[:, i:] + 3) % V_TARGET
        new_logits, new_weights = call(model, batch._replace(target_in=changed))
        assert torch.equal(new_logits[:, :i], logits[:, :i])
        assert (new_logits[:, i] != logits[:, i]).any(dim=-1).all()
        # The query is the previous state, so that a word decides where the *next* one looks.
        assert torch.equal(new_weights[:, : i + 1], weights[:, : i + 1])


@every_attention
def test_padding_and_the_other_sentences_of_a_batch_change_nothing(config):
    model, batch = lively(config), collate(SOURCES, TARGETS)
    logits, weights = call(model, batch)
    wider = batch._replace(
        source=torch.nn.functional.pad(batch.source, (0, 3), value=PAD),
        source_mask=torch.nn.functional.pad(batch.source_mask, (0, 3), value=False),
    )
    padded_logits, padded_weights = call(model, wider)
    assert_close(padded_logits, logits)
    assert_close(padded_weights[..., :-3], weights)
    assert (padded_weights[..., -3:] == 0).all()
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        alone_logits, alone_weights = call(model, collate([source], [target]))
        positions, words = len(target) + 1, len(source) + 1
        assert_close(logits[row, :positions], alone_logits[0])
        assert_close(weights[row, :positions, :words], alone_weights[0])
        assert (weights[row, :, words:] == 0).all()


@every_attention
@either_mode
def test_alignment_rows_sum_to_one_but_for_no_attention(config, training):
    batch = collate(SOURCES, TARGETS)
    _, weights = call(lively(config, training), batch)
    expected = torch.full(batch.target_in.shape, float(config.attention.name != "none")).double()
    assert_close(weights.sum(dim=-1), expected)


@every_attention
def test_every_parameter_receives_a_finite_gradient_in_training(config):
    """Without exception, also where forwards a single word is looked at."""
    seed(1)
    model, batch = build_model(config, V_SOURCE, V_TARGET), collate(SOURCES, TARGETS)
    loss_of(model, batch).backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad != 0).any(), name
        assert parameter.grad.isfinite().all(), name
    assert (model.encoder.embedding.weight.grad[PAD] == 0).all()


@every_attention
@pytest.mark.parametrize(("cell", "scheme"), [("lstm", "xavier"), ("paper_gru", "paper")])
def test_any_cell_and_any_initialisation_goes_with_any_attention(config, cell, scheme):
    seed(1)
    config = replace(config, cell=cell, initialization=scheme)
    model = build_model(config, V_SOURCE, V_TARGET)
    loss = loss_of(model, collate(SOURCES, TARGETS))
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@every_attention
def test_keys_are_projected_once_a_sentence(config):
    model, calls = lively(config), []
    project = model.decoder.attention.project

    def counted(annotations):
        calls.append(annotations)
        return project(annotations)

    model.decoder.attention.project = counted
    call(model, collate(SOURCES, TARGETS))
    assert len(calls) == 1


def test_without_attention_one_context_stands_for_the_whole_sentence():
    """The same at every target position: where each direction of the encoder ended."""
    model, batch = lively(CONFIGS["none"]), collate(SOURCES, TARGETS)
    encoded = model.encoder(batch.source, batch.source_mask)
    memory, contexts = model.decoder.memory(encoded), []
    model.decoder.context_layer.register_forward_hook(
        lambda layer, inputs, output: contexts.append(inputs[0])
    )
    _, weights = call(model, batch)
    assert (weights == 0).all()
    assert len(contexts) == batch.target_in.shape[1]
    assert all(torch.equal(context, contexts[0]) for context in contexts)
    assert_close(contexts[0][:, 4:], encoded.final)
    for row, source in enumerate(SOURCES):
        assert_close(contexts[0][row, :4], memory.annotations[row, len(source), :4])


# Search


SENTENCES = [" ".join(f"q{word}" for word in words) for words in (
    [1, 2, 3], [4], [5, 0, 5, 2, 1, 1, 3], [3, 4, 0, 2], [2, 2], [0, 1, 5, 4, 3, 2, 1, 0, 5],
)]  # fmt: skip
BEAM = DecodingConfig(beam_size=4, max_length_factor=1.5, max_length_extra=3)


def build_translator(config, decoding=BEAM):
    """A random model whose every step hangs on the words before; see ``tests/decoding``."""
    seed(17)  # a test says that such a model has much to say
    source, target = (
        Codec(WhitespaceTokenizer(language), Vocabulary([*SPECIALS, *words]))
        for language, words in (
            ("de", [f"q{i}" for i in range(6)]),
            ("en", [f"z{i}" for i in range(9)]),
        )
    )
    model = accelerate(build_model(config, len(source.vocabulary), len(target.vocabulary)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(25)  # from U(-0.1, 0.1): the state then hangs on every word
            if parameter.dim() == 0:
                parameter.fill_(1)  # sharp scores, and monotonic searches that end anywhere
        logits = model.decoder.output.logits_layer
        logits.weight.mul_(0.2)  # several words then have a chance
        logits.bias.zero_()
        logits.bias[UNK] = -100
    # Such a model is chaotic: in single precision rounding alone would grow beyond 1e-4.
    return Translator(model.double(), source, target, decoding)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.tokens == other.tokens
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
        np.testing.assert_allclose(one.alignment, other.alignment, atol=1e-4)


@every_attention
@pytest.mark.parametrize(("beam_size", "num_texts"), [(1, 3), (4, 10)])
def test_a_found_translation_has_the_models_own_score_and_alignment(config, beam_size, num_texts):
    """The search, whose hypotheses change places and take their past along, and teacher forcing
    in one pass. A model that always said the same would pass: hence the count of texts."""
    translator = build_translator(config, replace(BEAM, beam_size=beam_size))
    found = translator.translate_num_best(SENTENCES, beam_size)
    for best in zip(*found, strict=True):
        pairs = [(s, t.text) for s, t in zip(SENTENCES, best, strict=True)]
        assert_same(best, translator.score(pairs))
    translations = [translation for best in found for translation in best]
    assert len({translation.text for translation in translations}) >= num_texts
    assert len({len(translation.tokens) for translation in translations}) >= 3


@every_attention
def test_the_size_of_a_batch_and_its_order_change_nothing(config):
    expected = build_translator(config).translate(SENTENCES)
    order = random.Random(1).sample(range(len(SENTENCES)), len(SENTENCES))
    single = build_translator(config, replace(BEAM, batch_size=1))
    found = single.translate([SENTENCES[i] for i in order])
    assert_same(found, [expected[i] for i in order])


@pytest.mark.parametrize("name", ["hard", "monotonic"])
def test_translating_draws_nothing(name):
    """Also with a model in training, which it leaves so."""
    translator = build_translator(CONFIGS[name])
    translator.model.train()
    state = torch.get_rng_state()
    first = translator.translate(SENTENCES)
    assert torch.equal(torch.get_rng_state(), state)
    assert_same(translator.translate(SENTENCES), first)
    for translation in first:
        assert set(np.unique(translation.alignment)) <= {0.0, 1.0}
        if name == "monotonic":
            assert (np.diff(translation.alignment.argmax(axis=1)) >= 0).all()


# What does not go together


REFUSED = {
    "coverage of positions": (
        {"name": "location", "coverage": True},
        ["model.attention.coverage=true", "model.attention.name=location"],
    ),
    "coverage of several heads": (
        {"heads": 2, "coverage": True},
        ["model.attention.coverage=true", "model.attention.heads=2"],
    ),
    "heads without attention": (
        {"name": "none", "heads": 2},
        ["model.attention.heads=2", "name=none"],
    ),
    "heads with local_m": (
        {"heads": 4, "weighing": "local_m"},
        ["model.attention.heads=4", "weighing=local_m"],
    ),
    "heads with local_p": (
        {"heads": 4, "weighing": "local_p"},
        ["model.attention.heads=4", "weighing=local_p"],
    ),
    "heads with monotonic": (
        {"heads": 4, "weighing": "monotonic"},
        ["model.attention.heads=4", "weighing=monotonic"],
    ),
    "heads that do not divide": (
        {"heads": 3},
        ["model.attention.heads=3 must divide", "model.encoder_size=8"],
    ),
    "hard sparsemax": (
        {"weighing": "hard", "normalisation": "sparsemax"},
        ["model.attention.normalisation=sparsemax", "model.attention.weighing=hard"],
    ),
    "monotonic entmax15": (
        {"weighing": "monotonic", "normalisation": "entmax15"},
        ["model.attention.normalisation=entmax15", "model.attention.weighing=monotonic"],
    ),
    "an unknown score": ({"name": "aditive"}, ["model.attention.name=aditive", "additive"]),
    "an unknown weighing": ({"weighing": "sfot"}, ["model.attention.weighing=sfot", "soft"]),
    "a window of nothing": ({"window": 0}, ["model.attention.window=0", "at least 1"]),
    "a temperature of 0": ({"temperature": 0.0}, ["model.attention.temperature=0.0", "above 0"]),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_go_together_is_refused_by_key_and_value(case):
    settings, expected = REFUSED[case]
    config = replace(CONFIGS["additive"], attention=AttentionConfig(**settings))
    with pytest.raises(ValueError, match=r"model\.") as error:
        check_values(config, "model.")
    assert all(part in str(error.value) for part in expected)


@pytest.mark.parametrize("name", [*SCORES, "none"])
def test_coverage_is_refused_where_no_keys_are_seen(name):
    """It enters the score through the keys."""
    config = AttentionConfig(name=name, coverage=True)
    if name != "none" and SCORES[name].sees_keys:
        config.check()
        return
    with pytest.raises(ValueError, match=rf"coverage=true .* model\.attention\.name={name}"):
        config.check()


@pytest.mark.parametrize("name", SCORES)
def test_unequal_sizes_are_refused_where_they_would_not_run_and_nowhere_else(name):
    config = replace(CONFIGS["additive"], decoder_size=9, attention=AttentionConfig(name, size=7))
    batch = collate(SOURCES, TARGETS)
    if name in ("dot", "scaled_dot", "cosine", "gaussian"):
        with pytest.raises(ValueError, match=rf"model\.attention\.name={name}") as error:
            check_values(config, "model.")
        assert "model.decoder_size=9" in str(error.value)
        assert "model.encoder_size=8" in str(error.value)
        with pytest.raises(ValueError, match="must have the same number"):
            lively(config)
        # Heads project both sides to one size.
        config = replace(config, attention=replace(config.attention, heads=2))
    check_values(config, "model.")
    assert call(lively(config), batch)[0].isfinite().all()
