"""All steps of a recurrence, one behind another, and what they share."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq.model.fast.cells import STEPPERS, Gradients, State, Step, Stepper, Weights
from seq2seq.model.fast.products import add_product, times
from seq2seq.model.recurrence import GRUCell, LSTMCell, PaperGRUCell, RecurrentCell


class Recurrence(NamedTuple):
    """Weights, gates and states of N steps, each of n sentences at most."""

    weights: Weights
    gates: Tensor  # (D, R, N)
    states: State  # behind the one before the first step, (D, H, n + N)

    @classmethod
    def begin(
        cls, stepper: type[Stepper], weights: Weights, inputs: Tensor, state: State
    ) -> "Recurrence":
        """``inputs``: W x without its b, (D, G*H, N); ``state``: s_0, (D, H, n)."""
        directions, size, n = state[0].shape
        num_rows, bias = stepper.num_blocks * size, weights.bias
        gates = state[0].new_empty(directions, num_rows, inputs.shape[2])
        own = num_rows - inputs.shape[1]  # rows that receive no inputs
        gates[:, :own] = bias[:, :own]
        torch.add(inputs, bias[:, own:], out=gates[:, own:])
        states = [part.new_empty(directions, size, n + inputs.shape[2]) for part in state]
        for all_parts, part in zip(states, state, strict=True):
            all_parts[..., :n] = part
        return cls(weights, gates, states)

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> "Recurrence":
        """The opposite of ``tensors``."""
        state, bias, new, gates, *states = tensors
        return cls(Weights(state, bias, new), gates, states)

    def tensors(self) -> Iterator[Tensor | None]:
        """Flat, as autograd saves them."""
        yield from self.weights
        yield self.gates
        yield from self.states

    def steps(self, counts: list[int]) -> list[Step]:
        """``counts``: the sentences of each step, which are the first ones of the step before."""
        states = list(zip(*(x.split([counts[0], *counts], -1) for x in self.states), strict=True))
        parts = zip(counts, self.gates.split(counts, -1), states[:-1], states[1:], strict=True)
        return [
            Step(gates, first(n, before), after, self.weights.new)
            for n, gates, before, after in parts
        ]

    def multiply(self, step: Step) -> None:
        """Give the gates of a step what the state before it contributes."""
        add_product(self._sums(step.gates), self.weights.state, step.before[0])

    def gradients(self, counts: list[int]) -> tuple[Gradients, list[Gradients]]:
        """Room for those of all steps, and its parts for each; the state's, which they share: 0."""
        gates = torch.empty_like(self.gates)
        state = [torch.zeros_like(part[..., : counts[0]]) for part in self.states]
        shares = zip(counts, gates.split(counts, -1), strict=True)
        return Gradients(gates, state), [Gradients(part, first(n, state)) for n, part in shares]

    def multiply_back(self, d: Gradients) -> None:
        """What the state before a step owes to its products."""
        add_product(d.state[0], self.weights.state.mT, self._sums(d.gates))

    def weight_gradients(
        self, hidden: Tensor, d: Gradients, needed: Sequence[bool]
    ) -> list[Tensor | None]:
        """By ``weights``; ``hidden``: s before every step, (D, H, N)."""
        weight, size = self.weights.state, hidden.shape[1]
        return [
            times(self._sums(d.gates), hidden.mT, weight) if needed[0] else None,
            d.gates.sum(dim=-1, keepdim=True) if needed[1] else None,
            times(d.gates[:, -size:], (self.gates[:, :size] * hidden).mT, weight)
            if needed[2]
            else None,
        ]

    def _sums(self, gates: Tensor) -> Tensor:
        """The rows that receive U s + b."""
        return gates[:, : self.weights.state.shape[1]]


def first(n: int, state: State) -> State:
    """Of the first n sentences."""
    return [part[..., :n] for part in state]


def cell_weights(cell: nn.Module) -> tuple[Tensor, Tensor, Tensor | None]:
    """U, its b, which is 0 if the cell has none, and the U_n of the paper's GRU."""
    if isinstance(cell, PaperGRUCell):
        weight = cell.gates_layer.weight
        return weight, weight.new_zeros(len(weight)), cell.new_layer.weight
    assert isinstance(cell, GRUCell | LSTMCell)
    weight, bias = cell.recurrent_layer.weight, cell.recurrent_layer.bias
    return weight, weight.new_zeros(len(weight)) if bias is None else bias, None


def decoder_weights(cell: RecurrentCell, input_layer: nn.Linear) -> Weights:
    """Of one direction, with the bias of the layer through which words enter the gates."""
    state, bias, new = cell_weights(cell)
    of_state = state.unsqueeze(0), bias.unsqueeze(0), None if new is None else new.unsqueeze(0)
    return STEPPERS[type(cell)].weights(*of_state, input_layer.bias.unsqueeze(0))
