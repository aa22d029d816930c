"""Every attention in conf/model/attention as part of the model, and in a search.

The tests read these files, so a new attention is tested without changes here.
"""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from conftest import ROOT
from torch.testing import assert_close

from seq2seq.checkpoint import load_checkpoint, save_checkpoint
from seq2seq.config.model import AttentionConfig, ModelConfig, OutputConfig
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
    """Seed the CPU only; torch.manual_seed takes half the time of these tests."""
    torch.default_generator.manual_seed(number)


def lively(config, training=False):
    """With parameters of up to 0.7, so that a wrong connection shows in the logits."""
    seed(1)
    model = build_model(config, V_SOURCE, V_TARGET)
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.7, 0.7)
    return accelerate(model).double().train(training)


def call(model, batch):
    """Logits and weights, with the same random numbers each time."""
    seed(2)
    return model(batch.source, batch.source_mask, batch.target_in)


def loss_of(model, batch):
    log_probs = call(model, batch)[0].log_softmax(dim=-1)
    chosen = log_probs.gather(-1, batch.target_out[..., None]).squeeze(-1)
    return -chosen[batch.target_out != PAD].sum()


@pytest.mark.guarantee(
    "No position reads later target tokens, and single steps equal the unrolled decoder."
)
@every_attention
@either_mode
def test_single_steps_equal_the_unrolled_decoder(config, training):
    """Which implies that no step reads later target tokens."""
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
    assert (last.history is None) == (state.history is None)
    for tensor, other in zip(last.history or (), state.history or (), strict=True):
        assert_close(tensor, other)


@every_attention
def test_each_step_attends_with_the_history_of_the_steps_before_it(config):
    model, batch = lively(config), collate(SOURCES, TARGETS)
    memory, state = model.start(batch.source, batch.source_mask)
    attention = model.decoder.attention
    history = attention.initial_history(memory.annotations)
    for tokens in batch.target_in.unbind(dim=1):
        kept = [tensor.clone() for tensor in (*memory, state.hidden, *(state.history or ()))]
        _, new, weights = model.decoder.step(tokens, state, memory)
        assert all(map(torch.equal, kept, (*memory, state.hidden, *(state.history or ()))))
        _, expected = attention(state.hidden, memory.keys, memory.annotations, memory.mask, history)
        assert_close(weights, expected)
        state, history = new, history and history.append(expected)


@every_attention
def test_every_parameter_receives_a_finite_gradient_in_training(config):
    """Also where the forward pass attends to a single token."""
    seed(1)
    model, batch = build_model(config, V_SOURCE, V_TARGET), collate(SOURCES, TARGETS)
    loss_of(model, batch).backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad != 0).any(), name
        assert parameter.grad.isfinite().all(), name
    assert (model.encoder.embedding.weight.grad[PAD] == 0).all()


@every_attention
@pytest.mark.parametrize(("cell", "scheme"), [("lstm", "xavier"), ("paper_gru", "paper")])
def test_every_attention_works_with_every_cell_and_initialization(config, cell, scheme):
    seed(1)
    config = replace(config, cell=cell, initialization=scheme)
    model = build_model(config, V_SOURCE, V_TARGET)
    loss = loss_of(model, collate(SOURCES, TARGETS))
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_parameters_under_their_old_names_are_loaded(tmp_path):
    parameters = build_model(CONFIGS["local_p"], V_SOURCE, V_TARGET).state_dict()
    old = {name.replace(".distribution.", ".weighing."): x for name, x in parameters.items()}
    assert old.keys() != parameters.keys()
    path = tmp_path / "old.safetensors"
    save_checkpoint(path, {f"model.{name}": tensor for name, tensor in old.items()}, {})
    loaded = load_checkpoint(path).section("model")
    assert loaded.keys() == parameters.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in parameters.items())


@every_attention
def test_keys_are_projected_once_per_sentence(config):
    model, calls = lively(config), []
    project = model.decoder.attention.project

    def counted(values):
        calls.append(values)
        return project(values)

    model.decoder.attention.project = counted
    call(model, collate(SOURCES, TARGETS))
    assert len(calls) == 1


def test_without_attention_the_context_is_the_final_states_at_every_target_position():
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
    """A random model in which every step depends on the words before it."""
    seed(17)  # gives many different translations, as a test checks
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
            parameter.mul_(25)  # from U(-0.1, 0.1): the state then depends on every word
            if parameter.dim() == 0:
                parameter.fill_(1)  # sharp scores, and monotonic scans that stop anywhere
        logits = model.decoder.output.logits_layer
        logits.weight.mul_(0.2)  # several words are then likely
        logits.bias.zero_()
        logits.bias[UNK] = -100
    # Such a model is chaotic: in single precision, rounding errors would grow beyond 1e-4.
    return Translator(model.double(), source, target, decoding)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.tokens == other.tokens
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
        np.testing.assert_allclose(one.alignment, other.alignment, atol=1e-4)


@pytest.mark.guarantee("The score and alignment of a translation equal those of forced decoding.")
@every_attention
@pytest.mark.parametrize(("beam_size", "num_texts"), [(1, 3), (4, 10)])
def test_score_and_alignment_of_a_translation_equal_those_of_forced_decoding(
    config, beam_size, num_texts
):
    """In the search, hypotheses move between rows together with their history. The count of texts
    excludes a model that always gives the same translation."""
    translator = build_translator(config, replace(BEAM, beam_size=beam_size))
    found = translator.translate_num_best(SENTENCES, beam_size)
    for best in zip(*found, strict=True):
        pairs = [(s, t.text) for s, t in zip(SENTENCES, best, strict=True)]
        assert_same(best, translator.score(pairs))
    translations = [translation for best in found for translation in best]
    assert len({translation.text for translation in translations}) >= num_texts
    assert len({len(translation.tokens) for translation in translations}) >= 3


@pytest.mark.guarantee("Batch size and order do not change translations.")
@every_attention
def test_batch_size_and_order_do_not_change_translations(config):
    expected = build_translator(config).translate(SENTENCES)
    order = random.Random(1).sample(range(len(SENTENCES)), len(SENTENCES))
    single = build_translator(config, replace(BEAM, batch_size=1))
    found = single.translate([SENTENCES[i] for i in order])
    assert_same(found, [expected[i] for i in order])


@pytest.mark.guarantee("Translating uses no dropout and draws no random numbers.")
@pytest.mark.parametrize("name", ["hard", "monotonic"])
def test_translating_draws_no_random_numbers(name):
    """Also with a model in training mode, which stays in that mode."""
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
