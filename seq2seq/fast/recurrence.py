"""All steps of a recurrence, and what they share."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq.fast.cells import STEPPERS, Gradients, State, Step, Stepper, Weights
from seq2seq.model.cells import GRUCell, LSTMCell, PaperGRUCell, RecurrentCell
from seq2seq.model.products import add_product, times, turned


class Recurrence(NamedTuple):
    """Weights, gates and states of all steps, of which ``counts[0]`` sentences have the first."""

    weights: Weights
    counts: list[int]
    gates: Tensor  # of each step (D, R, n), one behind another
    states: State  # likewise (D, H, n), the one before the first step in front

    @classmethod
    def begin(
        cls,
        stepper: type[Stepper],
        weights: Weights,
        inputs: Tensor,
        state: State,
        counts: list[int],
    ) -> "Recurrence":
        """``inputs``: W x without its b, (D, G*H, N); ``state``: s_0, (D, H, n); ``counts``: the
        sentences of each step, which are the first ones of the step before."""
        directions, size, n = state[0].shape
        num_rows, bias = stepper.num_blocks * size, weights.bias
        gates = state[0].new_empty(directions * num_rows * inputs.shape[2])
        own = num_rows - inputs.shape[1]  # rows that receive no inputs
        by_step = blocks(gates, (directions, num_rows), counts)
        for block, x in zip(by_step, inputs.split(counts, -1), strict=True):
            block[:, :own] = bias[:, :own]
            torch.add(x, bias[:, own:], out=block[:, own:])
        states = [part.new_empty(directions * size * (n + inputs.shape[2])) for part in state]
        for all_parts, part in zip(states, state, strict=True):
            all_parts[: part.numel()] = part.flatten()
        return cls(weights, counts, gates, states)

    @classmethod
    def of(cls, counts: list[int], tensors: Sequence[Tensor]) -> "Recurrence":
        """The opposite of ``tensors``, for the way back."""
        state, bias, new, gates, *states = tensors
        weights = Weights(turned(state), bias, None if new is None else turned(new))
        return cls(weights, counts, gates, states)

    def tensors(self) -> Iterator[Tensor | None]:
        """Flat, as autograd saves them."""
        yield from self.weights
        yield self.gates
        yield from self.states

    def steps(self) -> list[Step]:
        """Each in the memory of its own block."""
        counts, (directions, _, size) = self.counts, self.weights.state.shape
        gates = blocks(self.gates, (directions, -1), counts)
        parts = (blocks(x, (directions, size), [counts[0], *counts]) for x in self.states)
        states = list(zip(*parts, strict=True))
        return [
            Step(block, first(n, before), after, self.weights.new)
            for n, block, before, after in zip(counts, gates, states[:-1], states[1:], strict=True)
        ]

    def multiply(self, step: Step) -> None:
        """Give the gates of a step what the state before it contributes."""
        add_product(self._sums(step.gates), self.weights.state, step.before[0])

    def gradients(self) -> list[Gradients]:
        """Room for those of each step; the state's, which all share, are 0."""
        counts, (directions, _, size) = self.counts, self.weights.state.shape
        shape = directions, size, counts[0]
        state = [self.gates.new_zeros(shape) for _ in self.states]
        gates = blocks(torch.empty_like(self.gates), (directions, -1), counts)
        return [Gradients(block, first(n, state)) for n, block in zip(counts, gates, strict=True)]

    def multiply_back(self, d: Gradients) -> None:
        """What the state before a step owes to its products."""
        add_product(d.state[0], self.weights.state.mT, self._sums(d.gates))

    def weight_gradients(
        self, hidden: Tensor, d_gates: Tensor, needed: Sequence[bool]
    ) -> list[Tensor | None]:
        """By ``weights``, from all steps side by side: s before each, (D, H, N), and ``d_gates``,
        (D, R, N)."""
        weight, size = self.weights.state, hidden.shape[1]
        d_new = None
        if needed[2]:
            reset = side_by_side([step.gates[:, :size] for step in self.steps()])
            d_new = times(d_gates[:, -size:], (reset * hidden).mT, weight)
        return [
            times(self._sums(d_gates), hidden.mT, weight) if needed[0] else None,
            d_gates.sum(dim=-1, keepdim=True) if needed[1] else None,
            d_new,
        ]

    def _sums(self, gates: Tensor) -> Tensor:
        """The rows that receive U s + b."""
        return gates[:, : self.weights.state.shape[1]]


def blocks(flat: Tensor, shape: tuple[int, int], counts: list[int]) -> list[Tensor]:
    """Parts of ``flat``, one behind another: (D, rows, n) for each n of ``counts``.

    In one tensor (D, rows, N), where steps lie side by side, each row of a step would be in a page
    of memory of its own; an update took 3 % longer.
    """
    rows = flat.numel() // sum(counts)  # of all directions
    parts = flat.split([rows * n for n in counts])
    return [part.view(*shape, n) for part, n in zip(parts, counts, strict=True)]


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """(D, rows, n) of each step -> (D, rows, N)."""
    counts = [part.shape[-1] for part in parts]
    together = parts[0].new_empty(*parts[0].shape[:2], sum(counts))
    # ``torch.cat`` does it in one thread.
    for place, part in zip(together.split(counts, -1), parts, strict=True):
        place.copy_(part)
    return together


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
