"""The model with the default attention; tests/model/test_attention_family.py has all attentions."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from seq2seq.config.model import AttentionConfig, ModelConfig, OutputConfig
from seq2seq.data.batching import collate
from seq2seq.data.vocabulary import PAD
from seq2seq.fast.accelerate import accelerate
from seq2seq.model.build import build_model
from seq2seq.model.cells import CELLS
from seq2seq.model.output import DeepOutput

CAUSAL = pytest.mark.guarantee(
    "No position reads later target tokens, and single steps equal the unrolled decoder."
)

V_SOURCE, V_TARGET = 13, 11
SOURCES = [[5, 7, 4], [9], [4, 4, 10, 6, 8, 5, 12]]
TARGETS = [[4, 10, 7, 7, 5], [6, 8], [9, 4, 6]]

CONFIG = ModelConfig(
    embedding_size=6,
    encoder_size=5,
    decoder_size=8,
    dropout=0.0,
    attention=AttentionConfig(size=7),
    output=OutputConfig(size=6),
)
KINDS = [
    replace(CONFIG, cell=cell, encoder_layers=layers, output=OutputConfig(activation, 6, state))
    for cell in CELLS
    for layers, activation, state in ((1, "maxout", "current"), (2, "tanh", "previous"))
]


def kind_name(config):
    return f"{config.cell}-{config.output.activation}"


def lively(config, is_fast=True):
    """Build a model with parameters of up to 0.7, so that any wrong connection shows."""
    torch.manual_seed(1)
    model = build_model(config, V_SOURCE, V_TARGET)
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.7, 0.7)
    return accelerate(model) if is_fast else model


@pytest.fixture(params=KINDS, ids=kind_name)
def model(request):
    return lively(request.param)


def call(model, batch):
    return model(batch.source, batch.source_mask, batch.target_in)


def loss_of(model, batch):
    log_probs = call(model, batch)[0].log_softmax(dim=-1)
    chosen = log_probs.gather(-1, batch.target_out[..., None]).squeeze(-1)
    return -chosen[batch.target_out != PAD].sum()


@pytest.mark.guarantee("The fast path has the results and gradients of the plain model.")
@pytest.mark.parametrize("config", KINDS, ids=kind_name)
def test_accelerated_model_equals_plain_model_and_its_gradients(config):
    batch, found = collate(SOURCES, TARGETS), []
    for is_fast in (False, True):
        model = lively(config, is_fast).double()
        loss_of(model, batch).backward()
        found.append([*call(model, batch), *(parameter.grad for parameter in model.parameters())])
    assert_close(*found)


@CAUSAL
def test_steps_equal_unrolled_decoder_and_leave_their_state_unchanged(model):
    batch = collate(SOURCES, TARGETS)
    logits, weights = call(model, batch)
    memory, state = model.start(batch.source, batch.source_mask)
    for i, tokens in enumerate(batch.target_in.unbind(dim=1)):
        step_logits, new, step_weights = model.decoder.step(tokens, state, memory)
        assert_close(step_logits, logits[:, i])
        assert_close(step_weights, weights[:, i])
        again, state, _ = model.decoder.step(tokens, state, memory)
        assert torch.equal(again, step_logits)
        assert torch.equal(new.hidden, state.hidden)
    _, last, _ = model.decoder(batch.target_in, *model.start(batch.source, batch.source_mask))
    assert_close(last.hidden, state.hidden)


@CAUSAL
def test_future_is_not_read(model):
    batch = collate(SOURCES, TARGETS)
    logits, weights = call(model, batch)
    for i in range(1, batch.target_in.shape[1]):
        changed = batch.target_in.clone()
        changed[:, i:] = (changed[:, i:] + 3) % V_TARGET
        new_logits, new_weights = call(model, batch._replace(target_in=changed))
        assert torch.equal(new_logits[:, :i], logits[:, :i])
        assert (new_logits[:, i] != logits[:, i]).any(dim=-1).all()
        # The query is the previous state, so a token affects the weights of the *next* position.
        assert torch.equal(new_weights[:, : i + 1], weights[:, : i + 1])


def test_every_source_token_affects_all_logits(model):
    batch = collate(SOURCES[2:], TARGETS[2:])
    logits, _ = call(model, batch)
    for j in range(len(SOURCES[2])):
        changed = batch.source.clone()
        changed[:, j] = 11
        new_logits, _ = call(model, batch._replace(source=changed))
        assert (new_logits != logits).any(dim=-1).all()


def test_gradient_of_a_batch_is_the_sum_over_its_sentences_and_zero_at_padding(model):
    loss_of(model, collate(SOURCES, TARGETS)).backward()
    together = [parameter.grad.clone() for parameter in model.parameters()]
    assert (model.encoder.embedding.weight.grad[PAD] == 0).all()
    assert (model.decoder.embedding.weight.grad[PAD] == 0).all()
    model.zero_grad()
    for source, target in zip(SOURCES, TARGETS, strict=True):
        loss_of(model, collate([source], [target])).backward()
    for parameter, gradient in zip(model.parameters(), together, strict=True):
        assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("config", KINDS, ids=kind_name)
@pytest.mark.parametrize("tie", ["none", "target", "all"])
def test_every_parameter_receives_a_gradient(config, tie):
    model = build_model(replace(config, tie_embeddings=tie), V_TARGET, V_TARGET)
    loss_of(model, collate([[5, 7, 4], [9]], [[4, 10, 7, 7, 5], [6, 8]])).backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad != 0).any(), name


def test_dropout_acts_in_training_only():
    model = lively(replace(CONFIG, dropout=0.5))
    batch = collate(SOURCES, TARGETS)
    assert not torch.equal(call(model, batch)[0], call(model, batch)[0])
    model.eval()
    assert torch.equal(call(model, batch)[0], call(lively(CONFIG), batch)[0])


@pytest.mark.parametrize("activation", ["maxout", "tanh"])
def test_deep_output_equals_appendix_a22(activation):
    """t~ = U_o s + V_o E y + C_o c; t_k = max(t~_2k-1, t~_2k), or its tanh; logits = W_o t."""
    torch.manual_seed(1)
    output = DeepOutput(
        state_size=3,
        embedding_size=4,
        context_size=5,
        size=6,
        vocabulary_size=V_TARGET,
        activation=activation,
        dropout=0.0,
    )
    inputs = [torch.randn(2, size) for size in (3, 4, 5)]
    weights = output.hidden_layer.weight.split([3, 4, 5], dim=1)
    hidden = output.hidden_layer.bias + sum(x @ w.T for x, w in zip(inputs, weights, strict=True))
    if activation == "maxout":
        pairs = [torch.maximum(hidden[:, 2 * k], hidden[:, 2 * k + 1]) for k in range(6)]
        hidden = torch.stack(pairs, dim=1)
    else:
        hidden = hidden.tanh()
    expected = hidden @ output.logits_layer.weight.T + output.logits_layer.bias
    assert_close(output(*inputs), expected)


@pytest.mark.parametrize(("state", "differs"), [("previous", False), ("current", True)])
def test_output_layer_reads_the_configured_state(state, differs):
    """With ``output.state=previous`` the first logits do not depend on s_1."""
    batch, model = (
        collate(SOURCES, TARGETS),
        lively(replace(CONFIG, output=OutputConfig(size=6, state=state))),
    )
    before, _ = call(model, batch)
    with torch.no_grad():
        model.decoder.cell.recurrent_layer.weight.mul_(0.5)
    after, _ = call(model, batch)
    assert (not torch.equal(after[:, 0], before[:, 0])) == differs
    assert not torch.equal(after[:, 1], before[:, 1])


def test_tied_embeddings_are_one_matrix_also_after_an_update_and_loading():
    def build(tie):
        return build_model(replace(CONFIG, tie_embeddings=tie), V_TARGET, V_TARGET)

    def size(model):
        return sum(parameter.numel() for parameter in model.parameters())

    matrix = V_TARGET * CONFIG.embedding_size
    for tie, saved in (("target", 1), ("all", 2)):
        model = build(tie)
        assert size(model) == size(build("none")) - saved * matrix
        loss_of(model, collate([[5]], [[6]])).backward()
        torch.optim.SGD(model.parameters(), lr=1.0).step()
        shared = model.decoder.output.logits_layer.weight
        assert model.decoder.embedding.weight is shared
        assert (model.encoder.embedding.weight is shared) == (tie == "all")
        loaded = build(tie)
        loaded.load_state_dict(model.state_dict())
        batch = collate([[5, 6]], [[6]])
        assert torch.equal(call(model, batch)[0], call(loaded, batch)[0])


def test_sharing_embeddings_between_two_vocabularies_is_refused():
    with pytest.raises(ValueError, match=r"tie_embeddings=all needs one vocabulary") as error:
        build_model(replace(CONFIG, tie_embeddings="all"), V_SOURCE, V_TARGET)
    assert f"{V_SOURCE} and {V_TARGET}" in str(error.value)
    assert "data.vocabulary.joint=true" in str(error.value)


def test_sharing_a_matrix_between_two_sizes_is_refused():
    config = replace(CONFIG, tie_embeddings="target", output=OutputConfig(size=7))
    with pytest.raises(ValueError, match=r"model\.output\.size=7 must equal") as error:
        config.check()
    assert "model.embedding_size=6" in str(error.value)


def test_unknown_cell_is_refused():
    with pytest.raises(ValueError, match=r"model\.cell=gur is unknown .*'gru'.*lstm"):
        build_model(replace(CONFIG, cell="gur"), V_SOURCE, V_TARGET)
