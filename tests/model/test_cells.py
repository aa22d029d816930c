import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seq2seq.model.cells import CELLS, GRUCell, LSTMCell, PaperGRUCell, RecurrentState

B, E, H = 3, 4, 5
PAPERS = pytest.mark.guarantee(
    "Scoring functions, cells and initial values are those of the cited papers."
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


@PAPERS
def test_gru_cell_equals_that_of_torch():
    ours, theirs = GRUCell(H), nn.GRUCell(E, H)
    ours.recurrent_layer.weight, ours.recurrent_layer.bias = theirs.weight_hh, theirs.bias_hh
    state = ours.initial_state(torch.randn(B, H))
    hidden = state.hidden
    for x in torch.randn(6, B, E):
        hidden = theirs(x, hidden)
        state = ours(nn.functional.linear(x, theirs.weight_ih, theirs.bias_ih), state)
        assert_close(state.hidden, hidden)


@PAPERS
def test_lstm_cell_equals_that_of_torch():
    ours, theirs = LSTMCell(H), nn.LSTMCell(E, H)
    ours.recurrent_layer.weight = theirs.weight_hh
    state = ours.initial_state(torch.randn(B, H))
    hidden, cell = state.hidden, torch.zeros(B, H)
    for x in torch.randn(6, B, E):
        hidden, cell = theirs(x, (hidden, cell))
        # torch has two biases where one is enough.
        bias = theirs.bias_ih + theirs.bias_hh
        state = ours(nn.functional.linear(x, theirs.weight_ih, bias), state)
        assert_close(state, RecurrentState(hidden, cell))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@PAPERS
def test_paper_gru_cell_equals_appendix_a11():
    """s_i = (1 - z) s + z n,  n = tanh(W x + U [r s]),  with W x + b given."""
    cell = PaperGRUCell(H).double()
    u_r, u_z = np.split(cell.gates_layer.weight.detach().numpy(), 2)
    u_n = cell.new_layer.weight.detach().numpy()
    state = cell.initial_state(torch.randn(B, H, dtype=torch.float64))
    s = state.hidden.numpy()
    for gates in torch.randn(6, B, 3 * H, dtype=torch.float64):
        x_r, x_z, x_n = np.split(gates.numpy(), 3, axis=1)
        r, z = sigmoid(x_r + s @ u_r.T), sigmoid(x_z + s @ u_z.T)
        s = (1 - z) * s + z * np.tanh(x_n + (r * s) @ u_n.T)
        state = cell(gates, state)
        assert_close(state.hidden, torch.from_numpy(s))


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("rows", [[2, 0, 2, 2], []], ids=str)
def test_selecting_rows_commutes_with_a_step(name, rows):
    cell, rows = CELLS[name](H), torch.tensor(rows, dtype=torch.long)
    gates = torch.randn(B, cell.num_gates * H)
    state = cell(torch.randn_like(gates), cell.initial_state(torch.randn(B, H)))
    after, before = cell(gates, state).select(rows), cell(gates[rows], state.select(rows))
    assert (after.cell is None) == (name != "lstm")
    for one, other in zip(after, before, strict=True):
        assert one is None or torch.allclose(one, other)
        assert one is None or one.shape == (len(rows), H)
