import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seq2seq.data.vocabulary import PAD
from seq2seq.model.cells import CELLS, RecurrentState
from seq2seq.model.encoder import Encoder
from seq2seq.model.layers import build_layers

V, E, H = 11, 4, 5
C = 2 * H


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def build_encoder(cell, num_layers=1, dropout=0.0):
    layers = build_layers(cell, E, H, num_layers, dropout)
    return Encoder(nn.Embedding(V, E), layers, dropout)


@pytest.fixture(params=[(cell, layers) for cell in CELLS for layers in (1, 2)], ids=str)
def encoder(request):
    return build_encoder(*request.param)


def padded(sentences, length, value=PAD):
    """Sentences (S,) as ids (B, length) and their mask."""
    source = torch.full((len(sentences), length), value)
    mask = torch.zeros(len(sentences), length, dtype=torch.bool)
    for row, sentence in enumerate(sentences):
        source[row, : len(sentence)] = sentence
        mask[row, : len(sentence)] = True
    return source, mask


SENTENCES = [torch.tensor([5, 7, 4]), torch.tensor([9]), torch.tensor([4, 4, 10, 6, 8, 5])]


@pytest.mark.parametrize("num_pads", [1, 20])
def test_padding_changes_nothing(encoder, num_pads):
    for sentence in SENTENCES:
        size = len(sentence)
        alone = encoder(*padded([sentence], size))
        beside = encoder(*padded([sentence], size + num_pads))
        assert_close(beside.annotations[:, :size], alone.annotations)
        assert_close(beside.final, alone.final)
        assert (beside.annotations[:, size:] == 0).all()


def test_what_stands_at_padding_does_not_matter(encoder):
    pads, words = (encoder(*padded(SENTENCES, 9, value)) for value in (PAD, 7))
    assert torch.equal(pads.annotations, words.annotations)
    assert torch.equal(pads.final, words.final)


def test_sentences_of_a_batch_do_not_see_each_other(encoder):
    together = encoder(*padded(SENTENCES, 6))
    for row, sentence in enumerate(SENTENCES):
        alone = encoder(*padded([sentence], len(sentence)))
        assert_close(together.annotations[row, : len(sentence)], alone.annotations[0])
        assert_close(together.final[row], alone.final[0])


def test_there_is_an_annotation_for_each_position_even_where_all_end_in_padding(encoder):
    source, mask = padded(SENTENCES, 9)
    encoded = encoder(source, mask)
    assert encoded.annotations.shape == (3, 9, C)
    assert encoded.final.shape == (3, H)
    assert encoded.mask is mask


def test_the_final_state_is_the_backward_direction_at_the_first_token(encoder):
    """Not at the last one, where it has read a single word."""
    encoded = encoder(*padded(SENTENCES, 8))
    assert_close(encoded.final, encoded.annotations[:, 0, H:])


@pytest.mark.parametrize("cell", CELLS)
def test_one_half_of_an_annotation_knows_the_past_and_the_other_the_future(cell):
    encoder = build_encoder(cell)
    sentence = SENTENCES[2]
    changed = sentence.clone()
    changed[2] = 9
    before, after = (encoder(*padded([s], 6)).annotations[0] for s in (sentence, changed))
    forward = (after[:, :H] != before[:, :H]).any(dim=1)
    backward = (after[:, H:] != before[:, H:]).any(dim=1)
    assert forward.tolist() == [False, False, True, True, True, True]
    assert backward.tolist() == [True, True, True, False, False, False]


@pytest.mark.parametrize("cell", CELLS)
def test_with_two_layers_every_annotation_knows_the_whole_sentence(cell):
    encoder = build_encoder(cell, num_layers=2)
    changed = SENTENCES[2].clone()
    changed[2] = 9
    before, after = (encoder(*padded([s], 6)).annotations[0] for s in (SENTENCES[2], changed))
    for half in (slice(0, H), slice(H, C)):
        assert (after[:, half] != before[:, half]).any(dim=1).all()


@pytest.mark.parametrize("cell", CELLS)
def test_reading_backwards_with_exchanged_directions_reverses_the_annotations(cell):
    encoder = build_encoder(cell)
    sentence = SENTENCES[2]
    annotations = encoder(*padded([sentence], 6)).annotations[0]
    if cell == "paper_gru":
        layers = encoder.layers
        for pair in (layers.input_layers, layers.cells):
            pair[0], pair[1] = pair[1], pair[0]
    else:
        rnn = encoder.layers.rnn
        for name, forward in list(rnn.named_parameters()):
            if not name.endswith("_reverse"):
                backward = getattr(rnn, f"{name}_reverse")
                forward.data, backward.data = backward.data, forward.data
    mirrored = encoder(*padded([sentence.flip(0)], 6)).annotations[0]
    assert_close(mirrored.flip(0), torch.cat([annotations[:, H:], annotations[:, :H]], dim=1))


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_library_layers_step_as_the_cells_of_the_decoder_do(cell):
    """One recurrence, whichever module computes it: ``model.cell`` means one thing."""
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
    state = ours.start(torch.zeros(1, H))
    for j in range(6):
        embedded = encoder.embedding(source[:, j])
        state = ours(nn.functional.linear(embedded, rnn.weight_ih_l0, bias), state)
        assert_close(annotations[:, j, :H], state.hidden)


def test_the_papers_layers_step_as_its_cell_does():
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


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.filterwarnings("error")
def test_dropout_acts_in_training_only_and_without_a_warning(cell, num_layers):
    encoder = build_encoder(cell, num_layers, dropout=0.5)
    inputs = padded(SENTENCES, 6)
    assert not torch.equal(encoder(*inputs).final, encoder(*inputs).final)
    encoder.eval()
    assert torch.equal(encoder(*inputs).final, encoder(*inputs).final)
