import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seq2seq.data.vocabulary import PAD
from seq2seq.model.build import build_layers
from seq2seq.model.cells import CELLS, LSTMCell, RecurrentState
from seq2seq.model.encoder import CellLayers, Encoder

V, E, H = 11, 4, 5
C = 2 * H
FINAL = pytest.mark.guarantee(
    "The decoder starts from the state at real tokens, however much padding follows them."
)
every_cell = pytest.mark.parametrize("cell", CELLS)
SENTENCES = [torch.tensor([5, 7, 4]), torch.tensor([9]), torch.tensor([4, 4, 10, 6, 8, 5])]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def build_encoder(cell, num_layers=1, dropout=0.0):
    layers = build_layers(CELLS[cell], E, H, num_layers, dropout)
    return Encoder(nn.Embedding(V, E), layers, dropout)


@pytest.fixture(params=[(cell, layers) for cell in CELLS for layers in (1, 2)], ids=str)
def encoder(request):
    return build_encoder(*request.param)


def padded(sentences, length, value=PAD):
    """Return sentences (S,) as ids (B, length), and their mask."""
    source = torch.full((len(sentences), length), value)
    mask = torch.zeros(len(sentences), length, dtype=torch.bool)
    for row, sentence in enumerate(sentences):
        source[row, : len(sentence)] = sentence
        mask[row, : len(sentence)] = True
    return source, mask


@pytest.mark.parametrize("num_pads", [0, 20])
def test_padding_and_other_sentences_change_nothing(encoder, num_pads):
    source, mask = padded(SENTENCES, 6 + num_pads)
    together = encoder(source, mask)
    assert together.annotations.shape == (3, 6 + num_pads, C)
    assert together.mask is mask
    assert (together.annotations[~mask] == 0).all()
    for row, sentence in enumerate(SENTENCES):
        alone = encoder(*padded([sentence], len(sentence)))
        assert_close(together.annotations[row, : len(sentence)], alone.annotations[0])
        assert_close(together.final[row], alone.final[0])


@FINAL
def test_ids_at_padding_do_not_matter(encoder):
    pads, words = (encoder(*padded(SENTENCES, 9, value)) for value in (PAD, 7))
    assert torch.equal(pads.annotations, words.annotations)
    assert torch.equal(pads.final, words.final)


@FINAL
def test_final_state_is_that_of_the_backward_direction_at_the_first_token(encoder):
    encoded = encoder(*padded(SENTENCES, 8))
    assert_close(encoded.final, encoded.annotations[:, 0, H:])


def changed_positions(encoder, half):
    """Positions whose annotation changes with the third token of a sentence."""
    changed = SENTENCES[2].clone()
    changed[2] = 9
    before, after = (encoder(*padded([s], 6)).annotations[0] for s in (SENTENCES[2], changed))
    return (after[:, half] != before[:, half]).any(dim=1).nonzero().flatten().tolist()


@every_cell
def test_first_half_of_an_annotation_depends_on_the_past_and_second_half_on_the_future(cell):
    encoder = build_encoder(cell)
    assert changed_positions(encoder, slice(0, H)) == [2, 3, 4, 5]
    assert changed_positions(encoder, slice(H, C)) == [0, 1, 2]
    deep = build_encoder(cell, num_layers=2)
    for half in (slice(0, H), slice(H, C)):
        assert changed_positions(deep, half) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_library_layers_equal_the_decoder_cell(cell):
    """``model.cell`` means one recurrence, whichever module computes it."""
    encoder = build_encoder(cell)
    rnn, ours = encoder.layers.rnn, CELLS[cell](H)
    ours.recurrent_layer.weight = rnn.weight_hh_l0
    bias = rnn.bias_ih_l0
    if ours.recurrent_layer.bias is None:
        bias = bias + rnn.bias_hh_l0
    else:
        ours.recurrent_layer.bias = rnn.bias_hh_l0
    source, mask = padded([SENTENCES[2]], 6)
    annotations = encoder(source, mask).annotations
    state = ours.initial_state(torch.zeros(1, H))
    for j in range(6):
        embedded = encoder.embedding(source[:, j])
        state = ours(nn.functional.linear(embedded, rnn.weight_ih_l0, bias), state)
        assert_close(annotations[:, j, :H], state.hidden)


def test_cell_layers_equal_their_cell_in_both_directions():
    encoder = build_encoder("paper_gru")
    source, mask = padded([SENTENCES[2]], 6)
    annotations = encoder(source, mask).annotations
    for direction, positions in enumerate([range(6), reversed(range(6))]):
        state = RecurrentState(torch.zeros(1, H))
        for j in positions:
            gates = encoder.layers.input_layers[direction](encoder.embedding(source[:, j]))
            state = encoder.layers.cells[direction](gates, state)
            half = slice(direction * H, (direction + 1) * H)
            assert_close(annotations[:, j, half], state.hidden)


def test_cell_layers_of_any_cell_equal_library_layers():
    """A cell without library layers may have a cell state, as an LSTM has."""
    library, ours = build_layers(LSTMCell, E, H, 2, 0.0), CellLayers(LSTMCell, E, H, 2, 0.0)
    for index, cell in enumerate(ours.cells):
        suffix = f"_l{index // 2}" + "_reverse" * (index % 2)
        weights = {name: getattr(library.rnn, name + suffix) for name in ("weight_hh", "weight_ih")}
        cell.recurrent_layer.weight = weights["weight_hh"]
        ours.input_layers[index].weight = weights["weight_ih"]
        biases = (getattr(library.rnn, name + suffix) for name in ("bias_ih", "bias_hh"))
        ours.input_layers[index].bias = nn.Parameter(sum(biases).detach())
    embedded, (_, mask) = torch.randn(3, 7, E), padded(SENTENCES, 7)
    assert_close(ours(embedded, mask), library(embedded, mask))


def test_gradients_are_zero_at_padding(encoder):
    embedded = []
    encoder.embedding.register_forward_hook(lambda *call: embedded.append(call[2]))
    source, mask = padded(SENTENCES, 8)
    encoded = encoder(source, mask)
    (gradient,) = torch.autograd.grad(
        encoded.annotations.square().sum() + encoded.final.sum(), embedded[0]
    )
    assert (gradient[~mask] == 0).all()
    assert (gradient[mask] != 0).any(dim=1).all()


@every_cell
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.filterwarnings("error")
def test_dropout_acts_in_training_only_and_without_a_warning(cell, num_layers):
    encoder = build_encoder(cell, num_layers, dropout=0.5)
    inputs = padded(SENTENCES, 6)
    assert not torch.equal(encoder(*inputs).final, encoder(*inputs).final)
    encoder.eval()
    assert torch.equal(encoder(*inputs).final, encoder(*inputs).final)
