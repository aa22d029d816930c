"""One step of each cell, forward and backward, on tensors that are already allocated."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2seq.model.cells import GRUCell, LSTMCell, PaperGRUCell, RecurrentCell
from seq2seq.model.products import add_product, to_autocast

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input  # (d_y, y) -> d_y y (1 - y)
tanh_backward = torch.ops.aten.tanh_backward.grad_input  # (d_y, y) -> d_y (1 - y^2)


# Hidden state (D, H, n), followed by the cell state of an LSTM.
StateTensors = Sequence[Tensor]


class CellWeights(NamedTuple):
    """Weights of a cell in D directions."""

    state: Tensor  # U, (D, P, H)
    bias: Tensor  # of every row, (D, R, 1)
    new: Tensor | None = None  # U_n of the paper's GRU, (D, H, H)

    def to_autocast(self) -> "CellWeights":
        """Cast the matrices to the precision of ``torch.autocast``."""
        new = None if self.new is None else to_autocast(self.new)
        return CellWeights(to_autocast(self.state), self.bias, new)


class CellStep(NamedTuple):
    """One step of n sentences, in D directions."""

    gates: Tensor  # (D, R, n), see ``CellKernel``
    before: StateTensors  # s
    after: StateTensors  # s'
    new_weight: Tensor | None


class CellGradients(NamedTuple):
    """Gradients with respect to the gates and the state of a step."""

    gates: Tensor
    state: StateTensors  # with respect to s' before ``CellKernel.backward``, to s after it


class CellKernel:
    """Forward and backward computation of one step of a cell.

    The gates are stacked in R rows. The first P of them receive U s + b, the last G*H of them the
    contribution W x of the inputs: rows that receive both need no separate addition.
    """

    num_states = 1  # 2 for an LSTM
    num_blocks: int  # R / H

    @classmethod
    def weights(
        cls, state: Tensor, bias: Tensor, new: Tensor | None, input_bias: Tensor
    ) -> CellWeights:
        """Arrange the weights of a cell for ``forward``.

        Args:
            state: U, (D, P, H).
            bias: b of U s, (D, P).
            new: U_n of the paper's GRU, (D, H, H).
            input_bias: b of W x, (D, G*H).
        """
        num_rows = cls.num_blocks * state.shape[2]
        state_bias = F.pad(bias, (0, num_rows - bias.shape[1]))
        input_bias = F.pad(input_bias, (num_rows - input_bias.shape[1], 0))
        return CellWeights(state, (state_bias + input_bias).unsqueeze(2), new)

    @staticmethod
    def forward(step: CellStep) -> None:
        """Activate ``step.gates`` in place, and write ``step.after``."""
        raise NotImplementedError

    @staticmethod
    def backward(step: CellStep, d: CellGradients) -> None:
        """Write ``d.gates``; turn ``d.state`` from d_s' into d_s without the term U^T d_(U s)."""
        raise NotImplementedError


class GRUKernel(CellKernel):
    """Kernel of ``GRUCell``; blocks u = U_n s + b_n, reset gate r, update gate z, new state n.

    n = tanh(x_n + r u)                 s' = (1 - z) n + z s

    d_x_n = d_s' (1 - z) (1 - n^2)      d_u = d_x_n r
    d_x_r = d_x_n u r (1 - r)           d_x_z = d_s' (s - n) z (1 - z)
    d_s = d_s' z + U^T [d_u; d_x_r; d_x_z]
    """

    num_blocks = 4

    @classmethod
    def weights(
        cls, state: Tensor, bias: Tensor, new: Tensor | None, input_bias: Tensor
    ) -> CellWeights:
        size = state.shape[2]  # the cell has the rows of u last
        return super().weights(state.roll(size, 1), bias.roll(size, 1), new, input_bias)

    @staticmethod
    def forward(step: CellStep) -> None:
        (hidden,), (next_hidden,) = step.before, step.after
        size = hidden.shape[1]
        step.gates[:, size : 3 * size].sigmoid_()
        u, reset, update, new = step.gates.chunk(4, dim=1)
        new.addcmul_(reset, u).tanh_()
        torch.lerp(new, hidden, update, out=next_hidden)

    @staticmethod
    def backward(step: CellStep, d: CellGradients) -> None:
        (hidden,), (d_hidden,) = step.before, d.state
        size = hidden.shape[1]
        u, reset, update, new = step.gates.chunk(4, dim=1)
        d_u, d_reset, d_update, d_new = d.gates.chunk(4, dim=1)
        torch.addcmul(d_hidden, d_hidden, update, value=-1, out=d_new)
        tanh_backward(d_new, new, grad_input=d_new)
        torch.mul(d_new, reset, out=d_u)
        torch.mul(d_new, u, out=d_reset)
        torch.sub(hidden, new, out=d_update).mul_(d_hidden)
        sigmoids, d_sigmoids = step.gates[:, size : 3 * size], d.gates[:, size : 3 * size]
        sigmoid_backward(d_sigmoids, sigmoids, grad_input=d_sigmoids)
        d_hidden.mul_(update)


class PaperGRUKernel(CellKernel):
    """Kernel of ``PaperGRUCell``; blocks reset gate r, update gate z, new state n.

    n = tanh(x_n + U_n (r s))           s' = (1 - z) s + z n

    d_x_n = d_s' z (1 - n^2)            d_rs = U_n^T d_x_n
    d_x_r = d_rs s r (1 - r)            d_x_z = d_s' (n - s) z (1 - z)
    d_s = d_s' (1 - z) + d_rs r + U^T [d_x_r; d_x_z]
    """

    num_blocks = 3

    @staticmethod
    def forward(step: CellStep) -> None:
        (hidden,), (next_hidden,) = step.before, step.after
        size = hidden.shape[1]
        assert step.new_weight is not None
        step.gates[:, : 2 * size].sigmoid_()
        reset, update, new = step.gates.chunk(3, dim=1)
        add_product(new, step.new_weight, reset * hidden)
        new.tanh_()
        torch.lerp(hidden, new, update, out=next_hidden)

    @staticmethod
    def backward(step: CellStep, d: CellGradients) -> None:
        (hidden,), (d_hidden,) = step.before, d.state
        size = hidden.shape[1]
        assert step.new_weight is not None
        reset, update, new = step.gates.chunk(3, dim=1)
        d_reset, d_update, d_new = d.gates.chunk(3, dim=1)
        torch.mul(d_hidden, update, out=d_new)
        torch.sub(new, hidden, out=d_update).mul_(d_hidden)
        d_hidden.sub_(d_new)
        tanh_backward(d_new, new, grad_input=d_new)
        d_reset_hidden = torch.zeros_like(d_hidden)
        add_product(d_reset_hidden, step.new_weight.mT, d_new)
        torch.mul(d_reset_hidden, hidden, out=d_reset)
        d_hidden.addcmul_(d_reset_hidden, reset)
        sigmoids, d_sigmoids = step.gates[:, : 2 * size], d.gates[:, : 2 * size]
        sigmoid_backward(d_sigmoids, sigmoids, grad_input=d_sigmoids)


class LSTMKernel(CellKernel):
    """Kernel of ``LSTMCell``; blocks input gate i, forget gate f, new value g, output gate o.

    c' = f c + i g                      s' = o tanh(c')

    d_c' += d_s' o (1 - tanh(c')^2)     d_x_o = d_s' tanh(c') o (1 - o)
    d_x_i = d_c' g i (1 - i)            d_x_f = d_c' c f (1 - f)
    d_x_g = d_c' i (1 - g^2)            d_c = d_c' f        d_s = U^T [d_x_i; d_x_f; d_x_g; d_x_o]
    """

    num_states = 2
    num_blocks = 4

    @staticmethod
    def forward(step: CellStep) -> None:
        (_, cell), (next_hidden, next_cell) = step.before, step.after
        size = cell.shape[1]
        step.gates[:, : 2 * size].sigmoid_()
        input_gate, forget_gate, new, output_gate = step.gates.chunk(4, dim=1)
        new.tanh_()
        output_gate.sigmoid_()
        torch.mul(forget_gate, cell, out=next_cell).addcmul_(input_gate, new)
        torch.tanh(next_cell, out=next_hidden).mul_(output_gate)

    @staticmethod
    def backward(step: CellStep, d: CellGradients) -> None:
        (_, cell), (_, next_cell) = step.before, step.after
        size, (d_hidden, d_cell) = cell.shape[1], d.state
        input_gate, forget_gate, new, output_gate = step.gates.chunk(4, dim=1)
        d_input_gate, d_forget_gate, d_new, d_output_gate = d.gates.chunk(4, dim=1)
        tanh_cell = next_cell.tanh()
        torch.mul(d_hidden, tanh_cell, out=d_output_gate)
        d_hidden.mul_(output_gate)
        d_cell.add_(tanh_backward(d_hidden, tanh_cell, grad_input=d_hidden))
        torch.mul(d_cell, new, out=d_input_gate)
        torch.mul(d_cell, cell, out=d_forget_gate)
        torch.mul(d_cell, input_gate, out=d_new)
        sigmoids, d_sigmoids = step.gates[:, : 2 * size], d.gates[:, : 2 * size]
        sigmoid_backward(d_sigmoids, sigmoids, grad_input=d_sigmoids)
        tanh_backward(d_new, new, grad_input=d_new)
        sigmoid_backward(d_output_gate, output_gate, grad_input=d_output_gate)
        d_cell.mul_(forget_gate)
        d_hidden.zero_()


KERNELS: dict[type[RecurrentCell], type[CellKernel]] = {
    GRUCell: GRUKernel,
    LSTMCell: LSTMKernel,
    PaperGRUCell: PaperGRUKernel,
}
