"""Recurrent cells: the part of an RNN that must run position by position.

Every cell splits its work in two. What depends on the inputs alone (``W x + b``, all gates
side by side) is computed by the caller for all positions at once; the cell adds what depends
on the previous state.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn


class RecurrentState(NamedTuple):
    """What a cell hands to the next position; both tensors (B, H)."""

    hidden: Tensor
    memory: Tensor | None = None  # the LSTM's cell; None for a GRU

    def select(self, rows: Tensor) -> "RecurrentState":
        """The state of some rows, repeated or left out as ``rows`` (N,) says."""
        memory = None if self.memory is None else self.memory.index_select(0, rows)
        return RecurrentState(self.hidden.index_select(0, rows), memory)


class RecurrentCell(nn.Module):
    """What every cell below offers."""

    num_gates: int  # blocks of H inputs that ``forward`` takes side by side

    def start(self, hidden: Tensor) -> RecurrentState:
        """The state that begins with ``hidden`` (B, H)."""
        return RecurrentState(hidden)

    def forward(self, gates: Tensor, state: RecurrentState) -> RecurrentState:
        """One position: the inputs' share of the gates (B, G*H) and a state -> the next state."""
        return self.advance(gates, self.recur(state), state)

    def recur(self, state: RecurrentState) -> Tensor:
        """What the state alone decides: products of ``s`` with all matrices that need no input."""
        raise NotImplementedError

    def advance(self, gates: Tensor, products: Tensor, state: RecurrentState) -> RecurrentState:
        """``forward``, given ``recur(state)``."""
        raise NotImplementedError


class GRUCell(RecurrentCell):
    """GRU as cuDNN and torch have it, the reset gate after the product (Cho et al. 2014, v1).

    r = sigmoid(W_r x + U_r s + b_r)      z = sigmoid(W_z x + U_z s + b_z)
    n = tanh(W_n x + r * (U_n s + b_n))   s' = (1 - z) * n + z * s
    """

    num_gates = 3

    def __init__(self, state_size: int):
        super().__init__()
        self.recurrent_layer = nn.Linear(state_size, 3 * state_size)

    def recur(self, state: RecurrentState) -> Tensor:
        return self.recurrent_layer(state.hidden).to(state.hidden.dtype)

    def advance(self, gates: Tensor, products: Tensor, state: RecurrentState) -> RecurrentState:
        reset_in, update_in, new_in = gates.chunk(3, dim=-1)
        reset_state, update_state, new_state = products.chunk(3, dim=-1)
        reset = torch.sigmoid(reset_in + reset_state)
        update = torch.sigmoid(update_in + update_state)
        new = torch.tanh(new_in + reset * new_state)
        return RecurrentState(torch.lerp(new, state.hidden, update))


class PaperGRUCell(RecurrentCell):
    """GRU as Bahdanau et al. 2015 have it, appendix A.1.1: the reset gate before the product.

    r = sigmoid(W_r x + U_r s + b_r)      z = sigmoid(W_z x + U_z s + b_z)
    n = tanh(W_n x + U_n (r * s) + b_n)   s' = (1 - z) * s + z * n
    """

    num_gates = 3

    def __init__(self, state_size: int):
        super().__init__()
        self.gates_layer = nn.Linear(state_size, 2 * state_size, bias=False)
        self.new_layer = nn.Linear(state_size, state_size, bias=False)

    def recur(self, state: RecurrentState) -> Tensor:
        return self.gates_layer(state.hidden).to(state.hidden.dtype)

    def advance(self, gates: Tensor, products: Tensor, state: RecurrentState) -> RecurrentState:
        reset_in, update_in, new_in = gates.chunk(3, dim=-1)
        reset_state, update_state = products.chunk(2, dim=-1)
        reset = torch.sigmoid(reset_in + reset_state)
        update = torch.sigmoid(update_in + update_state)
        products = self.new_layer(reset * state.hidden).to(state.hidden.dtype)
        new = torch.tanh(new_in + products)
        return RecurrentState(torch.lerp(state.hidden, new, update))


class LSTMCell(RecurrentCell):
    """LSTM with a forget gate (Gers et al. 2000), the gates in torch's order.

    i, f, o = sigmoid(W x + U s + b)      g = tanh(W_g x + U_g s + b_g)
    m' = f * m + i * g                    s' = o * tanh(m')
    """

    num_gates = 4

    def __init__(self, state_size: int):
        super().__init__()
        self.recurrent_layer = nn.Linear(state_size, 4 * state_size, bias=False)

    def start(self, hidden: Tensor) -> RecurrentState:
        """The state that begins with ``hidden`` (B, H) and an empty memory."""
        return RecurrentState(hidden, torch.zeros_like(hidden))

    def recur(self, state: RecurrentState) -> Tensor:
        return self.recurrent_layer(state.hidden).to(state.hidden.dtype)

    def advance(self, gates: Tensor, products: Tensor, state: RecurrentState) -> RecurrentState:
        enter, forget, new, leave = (gates + products).chunk(4, dim=-1)
        assert state.memory is not None  # ``start`` makes one
        memory = torch.sigmoid(forget) * state.memory + torch.sigmoid(enter) * torch.tanh(new)
        return RecurrentState(torch.sigmoid(leave) * torch.tanh(memory), memory)


CELLS: dict[str, type[RecurrentCell]] = {
    "gru": GRUCell,
    "lstm": LSTMCell,
    "paper_gru": PaperGRUCell,
}
