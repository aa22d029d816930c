"""One step of every cell, forward and back, on tensors that exist already."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.model.cells import GRUCell, LSTMCell, PaperGRUCell
from seq2seq.model.products import add_product, lowered

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input  # (d_y, y) -> d_y y (1 - y)
tanh_backward = torch.ops.aten.tanh_backward.grad_input  # (d_y, y) -> d_y (1 - y^2)


# The hidden state, (D, H, n), and the LSTM's memory if there is one.
State = Sequence[Tensor]


class Weights(NamedTuple):
    """What a cell multiplies with its state and adds, in D directions."""

    state: Tensor  # U, (D, P, H)
    bias: Tensor  # of every row, (D, R, 1)
    new: Tensor | None = None  # U_n of the paper's GRU, (D, H, H)

    def lowered(self) -> "Weights":
        """In the precision of matrix products."""
        new = None if self.new is None else lowered(self.new)
        return Weights(lowered(self.state), self.bias, new)


class Step(NamedTuple):
    """One step of n sentences, in D directions."""

    gates: Tensor  # (D, R, n): what ``Stepper.forward`` says
    before: State  # s
    after: State  # s'
    new_weight: Tensor | None


class Gradients(NamedTuple):
    """By what one step, or all of them, have taken in."""

    gates: Tensor
    state: State  # by s' before a step back, by s after it


class Stepper:
    """The step of a cell of ``recurrence``.

    Its gates lie one below another, in R rows. The first P of them receive U s + b, the last G*H
    the inputs' share W x: rows that receive both need no addition of their own.
    """

    num_states = 1
    num_blocks: int  # R / H

    @classmethod
    def weights(
        cls, state: Tensor, bias: Tensor, new: Tensor | None, input_bias: Tensor
    ) -> Weights:
        """From the cell's own: U (D, P, H), its b (D, P), U_n, and the b of W x (D, G*H)."""
        num_rows = cls.num_blocks * state.shape[2]
        of_sums = F.pad(bias, (0, num_rows - bias.shape[1]))
        of_inputs = F.pad(input_bias, (num_rows - input_bias.shape[1], 0))
        return Weights(state, (of_sums + of_inputs).unsqueeze(2), new)

    @staticmethod
    def forward(step: Step) -> None:
        """Turn what the gates received into the gates, and write ``step.after``."""
        raise NotImplementedError

    @staticmethod
    def backward(step: Step, d: Gradients) -> None:
        """Write ``d.gates``; turn ``d.state`` from d_s' into d_s, but for U^T d_(U s)."""
        raise NotImplementedError


class GRUStepper(Stepper):
    """``GRUCell``: u = U_n s + b_n, reset gate r, update gate z, new state n, in this order.

    n = tanh(x_n + r u)                 s' = (1 - z) n + z s

    d_x_n = d_s' (1 - z) (1 - n^2)      d_u = d_x_n r
    d_x_r = d_x_n u r (1 - r)           d_x_z = d_s' (s - n) z (1 - z)
    d_s = d_s' z + U^T [d_u; d_x_r; d_x_z]
    """

    num_blocks = 4

    @classmethod
    def weights(
        cls, state: Tensor, bias: Tensor, new: Tensor | None, input_bias: Tensor
    ) -> Weights:
        size = state.shape[2]  # the cell has the rows of u last
        return super().weights(state.roll(size, 1), bias.roll(size, 1), new, input_bias)

    @staticmethod
    def forward(step: Step) -> None:
        (hidden,), (next_hidden,) = step.before, step.after
        size = hidden.shape[1]
        step.gates[:, size : 3 * size].sigmoid_()
        u, reset, update, new = step.gates.chunk(4, dim=1)
        new.addcmul_(reset, u).tanh_()
        torch.lerp(new, hidden, update, out=next_hidden)

    @staticmethod
    def backward(step: Step, d: Gradients) -> None:
        (hidden,), (d_hidden,) = step.before, d.state
        size = hidden.shape[1]
        u, reset, update, new = step.gates.chunk(4, dim=1)
        d_u, d_reset, d_update, d_new = d.gates.chunk(4, dim=1)
        torch.addcmul(d_hidden, d_hidden, update, value=-1, out=d_new)
        tanh_backward(d_new, new, grad_input=d_new)
        torch.mul(d_new, reset, out=d_u)
        torch.mul(d_new, u, out=d_reset)
        torch.sub(hidden, new, out=d_update).mul_(d_hidden)
        both, d_both = step.gates[:, size : 3 * size], d.gates[:, size : 3 * size]
        sigmoid_backward(d_both, both, grad_input=d_both)
        d_hidden.mul_(update)


class PaperGRUStepper(Stepper):
    """``PaperGRUCell``: reset gate r, update gate z, new state n.

    n = tanh(x_n + U_n (r s))           s' = (1 - z) s + z n

    d_x_n = d_s' z (1 - n^2)            d_rs = U_n^T d_x_n
    d_x_r = d_rs s r (1 - r)            d_x_z = d_s' (n - s) z (1 - z)
    d_s = d_s' (1 - z) + d_rs r + U^T [d_x_r; d_x_z]
    """

    num_blocks = 3

    @staticmethod
    def forward(step: Step) -> None:
        (hidden,), (next_hidden,) = step.before, step.after
        size = hidden.shape[1]
        assert step.new_weight is not None
        step.gates[:, : 2 * size].sigmoid_()
        reset, update, new = step.gates.chunk(3, dim=1)
        add_product(new, step.new_weight, reset * hidden)
        new.tanh_()
        torch.lerp(hidden, new, update, out=next_hidden)

    @staticmethod
    def backward(step: Step, d: Gradients) -> None:
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
        both, d_both = step.gates[:, : 2 * size], d.gates[:, : 2 * size]
        sigmoid_backward(d_both, both, grad_input=d_both)


class LSTMStepper(Stepper):
    """``LSTMCell``: gates i and f, new memory g, gate o.

    m' = f m + i g                      s' = o tanh(m')

    d_m' += d_s' o (1 - tanh(m')^2)     d_x_o = d_s' tanh(m') o (1 - o)
    d_x_i = d_m' g i (1 - i)            d_x_f = d_m' m f (1 - f)
    d_x_g = d_m' i (1 - g^2)            d_m = d_m' f        d_s = U^T [d_x_i; d_x_f; d_x_g; d_x_o]
    """

    num_states = 2
    num_blocks = 4

    @staticmethod
    def forward(step: Step) -> None:
        (_, memory), (next_hidden, next_memory) = step.before, step.after
        size = memory.shape[1]
        step.gates[:, : 2 * size].sigmoid_()
        enter, forget, new, leave = step.gates.chunk(4, dim=1)
        new.tanh_()
        leave.sigmoid_()
        torch.mul(forget, memory, out=next_memory).addcmul_(enter, new)
        torch.tanh(next_memory, out=next_hidden).mul_(leave)

    @staticmethod
    def backward(step: Step, d: Gradients) -> None:
        (_, memory), (_, next_memory) = step.before, step.after
        size, (d_hidden, d_memory) = memory.shape[1], d.state
        enter, forget, new, leave = step.gates.chunk(4, dim=1)
        d_enter, d_forget, d_new, d_leave = d.gates.chunk(4, dim=1)
        tanh_memory = next_memory.tanh()
        torch.mul(d_hidden, tanh_memory, out=d_leave)
        d_hidden.mul_(leave)
        d_memory.add_(tanh_backward(d_hidden, tanh_memory, grad_input=d_hidden))
        torch.mul(d_memory, new, out=d_enter)
        torch.mul(d_memory, memory, out=d_forget)
        torch.mul(d_memory, enter, out=d_new)
        both, d_both = step.gates[:, : 2 * size], d.gates[:, : 2 * size]
        sigmoid_backward(d_both, both, grad_input=d_both)
        tanh_backward(d_new, new, grad_input=d_new)
        sigmoid_backward(d_leave, leave, grad_input=d_leave)
        d_memory.mul_(forget)
        d_hidden.zero_()


STEPPERS: dict[type[nn.Module], type[Stepper]] = {
    GRUCell: GRUStepper,
    LSTMCell: LSTMStepper,
    PaperGRUCell: PaperGRUStepper,
    nn.GRU: GRUStepper,
    nn.LSTM: LSTMStepper,
}
