import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seq2seq.model.cells import CELLS, GRUCell, LSTMCell, PaperGRUCell, RecurrentState

B, E, H = 3, 4, 5


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def test_the_gru_is_that_of_torch():
    ours, theirs = GRUCell(H), nn.GRUCell(E, H)
    ours.recurrent_layer.weight, ours.recurrent_layer.bias = theirs.weight_hh, theirs.bias_hh
    state, hidden = ours.start(torch.randn(B, H)), None
    for x in torch.randn(6, B, E):
        hidden = theirs(x, state.hidden if hidden is None else hidden)
        state = ours(nn.functional.linear(x, theirs.weight_ih, theirs.bias_ih), state)
        assert_close(state.hidden, hidden)


def test_the_lstm_is_that_of_torch():
    ours, theirs = LSTMCell(H), nn.LSTMCell(E, H)
    ours.recurrent_layer.weight = theirs.weight_hh
    state = ours.start(torch.randn(B, H))
    hidden, memory = state.hidden, torch.zeros(B, H)
    for x in torch.randn(6, B, E):
        hidden, memory = theirs(x, (hidden, memory))
        # torch has two biases where one would do.
        bias = theirs.bias_ih + theirs.bias_hh
        state = ours(nn.functional.linear(x, theirs.weight_ih, bias), state)
        assert_close(state.hidden, hidden)
        assert_close(state.memory, memory)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_the_papers_gru_is_that_of_appendix_a11():
    """s_i = (1 - z) s + z n,  n = tanh(W x + U [r s]),  with W x + b given."""
    cell = PaperGRUCell(H).double()
    u_r, u_z = np.split(cell.gates_layer.weight.detach().numpy(), 2)
    u_n = cell.new_layer.weight.detach().numpy()
    state = cell.start(torch.randn(B, H, dtype=torch.float64))
    s = state.hidden.numpy()
    for gates in torch.randn(6, B, 3 * H, dtype=torch.float64):
        x_r, x_z, x_n = np.split(gates.numpy(), 3, axis=1)
        r, z = sigmoid(x_r + s @ u_r.T), sigmoid(x_z + s @ u_z.T)
        s = (1 - z) * s + z * np.tanh(x_n + (r * s) @ u_n.T)
        state = cell(gates, state)
        assert_close(state.hidden, torch.from_numpy(s))


def test_the_two_grus_differ_only_by_the_place_of_the_reset_gate():
    """With r = 1 both products are U_n s; what remains is z for 1 - z, sigmoid(-x) for it."""
    library, paper = GRUCell(H), PaperGRUCell(H)
    with torch.no_grad():
        library.recurrent_layer.bias.zero_()
        u_r, u_z, u_n = library.recurrent_layer.weight.chunk(3)
        paper.gates_layer.weight.copy_(torch.cat([u_r, -u_z]))
        paper.new_layer.weight.copy_(u_n)
    gates = torch.randn(B, 3, H)
    opposite = gates * torch.tensor([1.0, -1.0, 1.0])[:, None]
    state = RecurrentState(torch.randn(B, H))

    def difference(reset):
        gates[:, 0] = opposite[:, 0] = reset
        return library(gates.flatten(1), state).hidden - paper(opposite.flatten(1), state).hidden

    assert_close(difference(reset=1e4), torch.zeros(B, H))
    assert difference(reset=0.0).abs().max() > 1e-3


@pytest.mark.parametrize("name", CELLS)
def test_selecting_rows_before_or_after_a_step_is_the_same(name):
    cell = CELLS[name](H)
    gates = torch.randn(B, cell.num_gates * H)
    state = cell(torch.randn_like(gates), cell.start(torch.randn(B, H)))
    rows = torch.tensor([2, 0, 2, 2])
    after = cell(gates, state).select(rows)
    before = cell(gates[rows], state.select(rows))
    assert_close(after.hidden, before.hidden)
    assert (after.memory is None) == (name != "lstm")
    if after.memory is not None:
        assert_close(after.memory, before.memory)


@pytest.mark.parametrize("name", CELLS)
def test_a_state_can_be_left_without_any_row(name):
    cell = CELLS[name](H)
    nothing = cell.start(torch.randn(B, H)).select(torch.tensor([], dtype=torch.long))
    assert cell(torch.randn(0, cell.num_gates * H), nothing).hidden.shape == (0, H)
