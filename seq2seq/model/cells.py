"""Recurrent cells: the part of an RNN that runs one position at a time.

The part of the gates that depends on the inputs alone (``W x + b``, all gates concatenated) is
computed by the caller for all positions at once; a cell adds the part that depends on the previous
state.
"""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from seq2seq.config.registry import Registry


class RecurrentState(NamedTuple):
    """State that a cell passes on to the next position."""

    hidden: Tensor  # (B, H)
    cell: Tensor | None = None  # cell state of an LSTM, (B, H); None for a GRU

    def select(self, rows: Tensor) -> "RecurrentState":
        """Select rows by index (N,); an index may occur more than once."""
        cell = None if self.cell is None else self.cell.index_select(0, rows)
        return RecurrentState(self.hidden.index_select(0, rows), cell)


class RecurrentCell(nn.Module):
    """Base class of the cells.

    A new cell is a subclass and a line in ``CELLS``. Its constructor takes the number of units H;
    all its matrices are recurrent ones (P, H), and are initialized as such.
    """

    num_gates: ClassVar[int]  # ``forward`` takes the inputs of that many gates
    library: ClassVar[type[nn.GRU] | type[nn.LSTM] | None] = None  # torch's layers of this cell

    def __init__(self, state_size: int):
        super().__init__()
        self.state_size = state_size

    def initial_state(self, hidden: Tensor) -> RecurrentState:
        """Return the state with this hidden state (B, H)."""
        return RecurrentState(hidden)

    def forward(self, gates: Tensor, state: RecurrentState) -> RecurrentState:
        """Advance by one position.

        Args:
            gates: contribution of the inputs to the gates, (B, G*H).
            state: previous state.
        """
        raise NotImplementedError


class GRUCell(RecurrentCell):
    """GRU as in cuDNN and torch: the reset gate follows the product (Cho et al. 2014, v1).

    r = sigmoid(W_r x + U_r s + b_r)      z = sigmoid(W_z x + U_z s + b_z)
    n = tanh(W_n x + r * (U_n s + b_n))   s' = (1 - z) * n + z * s
    """

    num_gates = 3
    library = nn.GRU

    def __init__(self, state_size: int):
        super().__init__(state_size)
        self.recurrent_layer = nn.Linear(state_size, 3 * state_size)

    def forward(self, gates: Tensor, state: RecurrentState) -> RecurrentState:
        products = self.recurrent_layer(state.hidden).to(state.hidden.dtype)
        reset_in, update_in, new_in = gates.chunk(3, dim=-1)
        reset_state, update_state, new_state = products.chunk(3, dim=-1)
        reset = torch.sigmoid(reset_in + reset_state)
        update = torch.sigmoid(update_in + update_state)
        new = torch.tanh(new_in + reset * new_state)
        return RecurrentState(torch.lerp(new, state.hidden, update))


class PaperGRUCell(RecurrentCell):
    """GRU of Bahdanau et al. 2015, appendix A.1.1: the reset gate precedes the product.

    r = sigmoid(W_r x + U_r s + b_r)      z = sigmoid(W_z x + U_z s + b_z)
    n = tanh(W_n x + U_n (r * s) + b_n)   s' = (1 - z) * s + z * n
    """

    num_gates = 3

    def __init__(self, state_size: int):
        super().__init__(state_size)
        self.gates_layer = nn.Linear(state_size, 2 * state_size, bias=False)
        self.new_layer = nn.Linear(state_size, state_size, bias=False)

    def forward(self, gates: Tensor, state: RecurrentState) -> RecurrentState:
        products = self.gates_layer(state.hidden).to(state.hidden.dtype)
        reset_in, update_in, new_in = gates.chunk(3, dim=-1)
        reset_state, update_state = products.chunk(2, dim=-1)
        reset = torch.sigmoid(reset_in + reset_state)
        update = torch.sigmoid(update_in + update_state)
        new_state = self.new_layer(reset * state.hidden).to(state.hidden.dtype)
        new = torch.tanh(new_in + new_state)
        return RecurrentState(torch.lerp(state.hidden, new, update))


class LSTMCell(RecurrentCell):
    """LSTM with a forget gate (Gers et al. 2000), the gates in torch's order.

    i, f, o = sigmoid(W x + U s + b)      g = tanh(W_g x + U_g s + b_g)
    c' = f * c + i * g                    s' = o * tanh(c')
    """

    num_gates = 4
    library = nn.LSTM

    def __init__(self, state_size: int):
        super().__init__(state_size)
        self.recurrent_layer = nn.Linear(state_size, 4 * state_size, bias=False)

    def initial_state(self, hidden: Tensor) -> RecurrentState:
        """Return the state with this hidden state (B, H) and a cell state of zeros."""
        return RecurrentState(hidden, torch.zeros_like(hidden))

    def forward(self, gates: Tensor, state: RecurrentState) -> RecurrentState:
        assert state.cell is not None  # ``initial_state`` creates one
        products = self.recurrent_layer(state.hidden).to(state.hidden.dtype)
        input_gate, forget_gate, new, output_gate = (gates + products).chunk(4, dim=-1)
        kept = torch.sigmoid(forget_gate) * state.cell
        cell = kept + torch.sigmoid(input_gate) * torch.tanh(new)
        return RecurrentState(torch.sigmoid(output_gate) * torch.tanh(cell), cell)


CELLS: Registry[type[RecurrentCell]] = Registry(
    "model.cell", {"gru": GRUCell, "lstm": LSTMCell, "paper_gru": PaperGRUCell}
)
