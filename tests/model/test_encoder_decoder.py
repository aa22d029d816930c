import itertools
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from seq2seq.config.model import AttentionConfig, ModelConfig, OutputConfig
from seq2seq.data.batching import collate
from seq2seq.data.vocabulary import PAD
from seq2seq.fast.search import FastSteps
from seq2seq.model.cells import CELLS
from seq2seq.model.decoder import PlainSteps
from seq2seq.model.encoder_decoder import build_model
from seq2seq.model.output import DeepOutput

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
    for cell, layers, activation, state in itertools.product(
        CELLS, (1, 2), ("maxout", "tanh"), ("current", "previous")
    )
]


def kind_name(config):
    return f"{config.cell}-{config.encoder_layers}-{config.output.activation}-{config.output.state}"


def lively(config):
    """With parameters of up to 0.7: whatever is wrongly connected then shows in the logits."""
    torch.manual_seed(1)
    model = build_model(config, V_SOURCE, V_TARGET)
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.7, 0.7)
    return model


@pytest.fixture(params=KINDS, ids=kind_name)
def model(request):
    return lively(request.param)


def call(model, batch):
    return model(batch.source, batch.source_mask, batch.target_in)


def loss_of(model, batch):
    log_probs = call(model, batch)[0].log_softmax(dim=-1)
    chosen = log_probs.gather(-1, batch.target_out[..., None]).squeeze(-1)
    return -chosen[batch.target_out != PAD].sum()


def test_step_by_step_is_the_same_as_unrolled(model):
    batch = collate(SOURCES, TARGETS)
    logits, weights = call(model, batch)
    memory, state = model.start(batch.source, batch.source_mask)
    for i, tokens in enumerate(batch.target_in.unbind(dim=1)):
        step_logits, state, step_weights = model.decoder.step(tokens, state, memory)
        assert_close(step_logits, logits[:, i])
        assert_close(step_weights, weights[:, i])
    _, last, _ = model.decoder(batch.target_in, *model.start(batch.source, batch.source_mask))
    assert_close(last.hidden, state.hidden)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("beam_size", [1, 5])
def test_a_search_steps_as_the_decoder_does(model, beam_size, dtype):
    """Also where several hypotheses follow one state, and several states read one sentence."""
    model.to(dtype).eval()
    batch = collate(SOURCES, TARGETS)
    with torch.inference_mode():
        memory, states = model.start(batch.source, batch.source_mask)
        fast, plain = model.searcher(beam_size)(memory), PlainSteps(model.decoder, memory)
        assert isinstance(fast, FastSteps)
        states, sentences = states.select(torch.tensor([2, 0, 2, 1])), torch.tensor([2, 0, 2, 1])
        for tokens, rows in (([5, 5, 4, 6, 7, 5], [0, 0, 1, 2, 3, 3]), ([3, 9], [4, 1])):
            call = torch.tensor(tokens), states, sentences, torch.tensor(rows)
            assert_close(fast.step(*call), plain.step(*call))
            _, states, _ = fast.step(*call)
            sentences = sentences[torch.tensor(rows)]
        left = torch.tensor([1, 0])
        call = torch.tensor([8, 4]), states.select(left)
        chosen = sentences[left]
        assert_close(fast.select(chosen).step(*call), plain.select(chosen).step(*call))


def test_a_state_put_aside_is_not_changed_by_the_steps_that_follow(model):
    batch = collate(SOURCES, TARGETS)
    memory, state = model.start(batch.source, batch.source_mask)
    first, _, _ = model.decoder.step(batch.target_in[:, 0], state, memory)
    model(batch.source[:1], batch.source_mask[:1], batch.target_in[:1])
    again, _, _ = model.decoder.step(batch.target_in[:, 0], state, memory)
    assert torch.equal(first, again)


def test_the_future_is_not_read(model):
    batch = collate(SOURCES, TARGETS)
    logits, weights = call(model, batch)
    for i in range(1, batch.target_in.shape[1]):
        changed = batch.target_in.clone()
        changed[:, i:] = (changed[:, i:] + 3) % V_TARGET
        new_logits, new_weights = call(model, batch._replace(target_in=changed))
        assert torch.equal(new_logits[:, :i], logits[:, :i])
        assert (new_logits[:, i] != logits[:, i]).any(dim=-1).all()
        # The query is the previous state, so that a word decides where the *next* one looks.
        assert torch.equal(new_weights[:, : i + 1], weights[:, : i + 1])


def test_every_source_word_reaches_every_logit(model):
    batch = collate(SOURCES[2:], TARGETS[2:])
    logits, _ = call(model, batch)
    for j in range(len(SOURCES[2])):
        changed = batch.source.clone()
        changed[:, j] = 11
        new_logits, _ = call(model, batch._replace(source=changed))
        assert (new_logits != logits).any(dim=-1).all()


def test_sentences_of_a_batch_do_not_see_each_other(model):
    batch = collate(SOURCES, TARGETS)
    logits, weights = call(model, batch)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        alone_logits, alone_weights = call(model, collate([source], [target]))
        positions, words = len(target) + 1, len(source) + 1
        assert_close(logits[row, :positions], alone_logits[0])
        assert_close(weights[row, :positions, :words], alone_weights[0])


def test_alignment_rows_sum_to_one_and_are_zero_at_padding(model):
    batch = collate(SOURCES, TARGETS)
    _, weights = call(model, batch)
    assert_close(weights.sum(dim=-1), torch.ones(batch.target_in.shape))
    assert (weights.transpose(1, 2)[~batch.source_mask] == 0).all()


def test_gradients_are_zero_at_padding(model):
    """The embedding of padding learns nothing, nor do logits behind the end of a sentence."""
    batch = collate(SOURCES, TARGETS)
    loss_of(model, batch).backward()
    assert (model.encoder.embedding.weight.grad[PAD] == 0).all()
    assert (model.decoder.embedding.weight.grad[PAD] == 0).all()


def test_the_gradient_of_a_batch_is_the_sum_of_those_of_its_sentences(model):
    loss_of(model, collate(SOURCES, TARGETS)).backward()
    together = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    for source, target in zip(SOURCES, TARGETS, strict=True):
        loss_of(model, collate([source], [target])).backward()
    for parameter, gradient in zip(model.parameters(), together, strict=True):
        assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5)


def test_keys_are_projected_once_a_sentence(model):
    calls = []
    model.decoder.attention.score.key_layer.register_forward_hook(lambda *call: calls.append(call))
    call(model, collate(SOURCES, TARGETS))
    assert len(calls) == 1


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
    assert torch.equal(call(model, batch)[0], call(model, batch)[0])
    assert torch.equal(call(model, batch)[0], call(lively(CONFIG), batch)[0])


@pytest.mark.parametrize("activation", ["maxout", "tanh"])
def test_the_deep_output_is_that_of_appendix_a22(activation):
    """t~ = U_o s + V_o E y + C_o c; t_k = max(t~_2k-1, t~_2k), or its tanh; logits = W_o t."""
    torch.manual_seed(1)
    output = DeepOutput((3, 4, 5), 6, V_TARGET, activation, dropout=0.0)
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


def test_the_papers_output_layer_reads_the_state_before_the_word():
    """With ``output.state=previous`` the first logits cannot depend on s_1."""
    batch = collate(SOURCES, TARGETS)
    for state, differs in (("previous", False), ("current", True)):
        model = lively(replace(CONFIG, output=OutputConfig(size=6, state=state)))
        before, _ = call(model, batch)
        with torch.no_grad():
            model.decoder.cell.recurrent_layer.weight.mul_(0.5)
        after, _ = call(model, batch)
        assert (not torch.equal(after[:, 0], before[:, 0])) == differs
        assert not torch.equal(after[:, 1], before[:, 1])


def test_tied_embeddings_are_one_matrix_and_learn_as_one():
    def num_parameters(tie):
        model = build_model(replace(CONFIG, tie_embeddings=tie), V_TARGET, V_TARGET)
        return sum(parameter.numel() for parameter in model.parameters()), model

    matrix = V_TARGET * CONFIG.embedding_size
    untied, _ = num_parameters("none")
    for tie, saved in (("target", 1), ("all", 2)):
        tied, model = num_parameters(tie)
        assert tied == untied - saved * matrix
        shared = model.decoder.output.logits_layer.weight
        assert model.decoder.embedding.weight is shared
        assert (model.encoder.embedding.weight is shared) == (tie == "all")
        loss_of(model, collate([[5]], [[6]])).backward()
        torch.optim.SGD(model.parameters(), lr=1.0).step()
        assert model.decoder.embedding.weight is model.decoder.output.logits_layer.weight
        again = build_model(replace(CONFIG, tie_embeddings=tie), V_TARGET, V_TARGET)
        again.load_state_dict(model.state_dict())
        batch = collate([[5, 6]], [[6]])
        assert torch.equal(call(model, batch)[0], call(again, batch)[0])


def test_one_matrix_for_two_vocabularies_is_refused():
    with pytest.raises(ValueError, match=r"tie_embeddings=all needs one vocabulary") as error:
        build_model(replace(CONFIG, tie_embeddings="all"), V_SOURCE, V_TARGET)
    assert f"{V_SOURCE} and {V_TARGET}" in str(error.value)
    assert "data.vocabulary.joint=true" in str(error.value)


def test_sharing_a_matrix_between_two_widths_is_refused():
    config = replace(CONFIG, tie_embeddings="target", output=OutputConfig(size=7))
    with pytest.raises(ValueError, match=r"model\.output\.size=7 must equal") as error:
        config.check()
    assert "model.embedding_size=6" in str(error.value)


def test_an_unknown_attention_is_refused():
    config = replace(CONFIG, attention=AttentionConfig(name="local"))
    with pytest.raises(ValueError, match=r"model\.attention\.name='local' is unknown.*additive"):
        build_model(config, V_SOURCE, V_TARGET)


def test_hand_written_gradients_are_those_of_autograd(model):
    model.double()
    batch = collate(SOURCES, TARGETS)
    found = []
    for is_fast in (True, False):
        model.encoder.is_fast = model.decoder.is_fast = is_fast
        model.zero_grad()
        loss_of(model, batch).backward()
        found.append([parameter.grad for parameter in model.parameters()])
    assert_close(*found)
