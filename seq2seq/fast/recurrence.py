"""All steps of a recurrence, and the weights and memory that they share."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq.fast.cells import (
    KERNELS,
    CellGradients,
    CellKernel,
    CellStep,
    CellWeights,
    StateTensors,
)
from seq2seq.model.cells import GRUCell, LSTMCell, PaperGRUCell, RecurrentCell
from seq2seq.model.products import add_product, column_major, matmul


class Recurrence(NamedTuple):
    """Weights, gates and states of all steps; the first step has ``counts[0]`` sentences."""

    weights: CellWeights
    counts: list[int]
    gates: Tensor  # (D, R, n) of each step, one block after another
    states: StateTensors  # (D, H, n) likewise, preceded by the state before the first step

    @classmethod
    def begin(
        cls,
        kernel: type[CellKernel],
        weights: CellWeights,
        inputs: Tensor,
        state: StateTensors,
        counts: list[int],
    ) -> "Recurrence":
        """Allocate all steps and fill the gates with the inputs and biases.

        Args:
            kernel: of the cell.
            weights: of the cell.
            inputs: W x without its b, (D, G*H, N).
            state: s_0, (D, H, n).
            counts: number of sentences of each step, which are the first ones of the step before.
        """
        directions, size, n = state[0].shape
        num_rows, bias = kernel.num_blocks * size, weights.bias
        gates = state[0].new_empty(directions * num_rows * inputs.shape[2])
        own = num_rows - inputs.shape[1]  # rows that receive no inputs
        by_step = split_blocks(gates, (directions, num_rows), counts)
        for block, x in zip(by_step, inputs.split(counts, -1), strict=True):
            block[:, :own] = bias[:, :own]
            torch.add(x, bias[:, own:], out=block[:, own:])
        states = [tensor.new_empty(directions * size * (n + inputs.shape[2])) for tensor in state]
        for all_steps, tensor in zip(states, state, strict=True):
            all_steps[: tensor.numel()] = tensor.flatten()
        return cls(weights, counts, gates, states)

    @classmethod
    def from_saved(cls, counts: list[int], tensors: Sequence[Tensor]) -> "Recurrence":
        """Rebuild a recurrence from ``tensors()``, for the backward pass."""
        state, bias, new, gates, *states = tensors
        weights = CellWeights(column_major(state), bias, None if new is None else column_major(new))
        return cls(weights, counts, gates, states)

    def tensors(self) -> Iterator[Tensor | None]:
        """Yield all tensors, as autograd saves them."""
        yield from self.weights
        yield self.gates
        yield from self.states

    def steps(self) -> list[CellStep]:
        """Return views of every step; each is a contiguous block of memory."""
        counts, (directions, _, size) = self.counts, self.weights.state.shape
        gates = split_blocks(self.gates, (directions, -1), counts)
        blocks = (split_blocks(x, (directions, size), [counts[0], *counts]) for x in self.states)
        states = list(zip(*blocks, strict=True))
        return [
            CellStep(block, first(n, before), after, self.weights.new)
            for n, block, before, after in zip(counts, gates, states[:-1], states[1:], strict=True)
        ]

    def multiply(self, step: CellStep) -> None:
        """Add the contribution of the previous state to the gates of a step."""
        add_product(self._state_rows(step.gates), self.weights.state, step.before[0])

    def gradients(self) -> list[CellGradients]:
        """Allocate the gradients of every step; all share one state gradient, which starts at 0."""
        counts, (directions, _, size) = self.counts, self.weights.state.shape
        shape = directions, size, counts[0]
        state = [self.gates.new_zeros(shape) for _ in self.states]
        gates = split_blocks(torch.empty_like(self.gates), (directions, -1), counts)
        return [
            CellGradients(block, first(n, state)) for n, block in zip(counts, gates, strict=True)
        ]

    def multiply_back(self, d: CellGradients) -> None:
        """Add the gradient of ``multiply`` to that of the previous state."""
        add_product(d.state[0], self.weights.state.mT, self._state_rows(d.gates))

    def weight_gradients(
        self, hidden: Tensor, d_gates: Tensor, needed: Sequence[bool]
    ) -> list[Tensor | None]:
        """Compute the gradients of ``weights``, each in one product over all steps.

        Args:
            hidden: s before every step, (D, H, N).
            d_gates: gradients of the gates of every step, (D, R, N).
            needed: which of the weights need a gradient.
        """
        weight, size = self.weights.state, hidden.shape[1]
        d_new = None
        if needed[2]:
            reset = concat_steps([step.gates[:, :size] for step in self.steps()])
            d_new = matmul(d_gates[:, -size:], (reset * hidden).mT, weight)
        return [
            matmul(self._state_rows(d_gates), hidden.mT, weight) if needed[0] else None,
            d_gates.sum(dim=-1, keepdim=True) if needed[1] else None,
            d_new,
        ]

    def _state_rows(self, gates: Tensor) -> Tensor:
        """Return the rows that receive U s + b."""
        return gates[:, : self.weights.state.shape[1]]


def split_blocks(flat: Tensor, shape: tuple[int, int], counts: list[int]) -> list[Tensor]:
    """Split a flat tensor into consecutive blocks (D, rows, n), one for each n of ``counts``.

    In one tensor (D, rows, N) each row of a step would be in a different page of memory; an update
    took 3 % longer.
    """
    rows = flat.numel() // sum(counts)  # of all directions
    blocks = flat.split([rows * n for n in counts])
    return [block.view(*shape, n) for block, n in zip(blocks, counts, strict=True)]


def concat_steps(blocks: Sequence[Tensor]) -> Tensor:
    """Concatenate (D, rows, n) of each step to (D, rows, N)."""
    counts = [block.shape[-1] for block in blocks]
    result = blocks[0].new_empty(*blocks[0].shape[:2], sum(counts))
    # ``torch.cat`` uses a single thread.
    for target, block in zip(result.split(counts, -1), blocks, strict=True):
        target.copy_(block)
    return result


def first(n: int, state: StateTensors) -> StateTensors:
    """Return the states of the first n sentences."""
    return [tensor[..., :n] for tensor in state]


def cell_weights(cell: nn.Module) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return U, its b, which is 0 for a cell without, and the U_n of the paper's GRU."""
    if isinstance(cell, PaperGRUCell):
        weight = cell.gates_layer.weight
        return weight, weight.new_zeros(len(weight)), cell.new_layer.weight
    assert isinstance(cell, GRUCell | LSTMCell)
    weight, bias = cell.recurrent_layer.weight, cell.recurrent_layer.bias
    return weight, weight.new_zeros(len(weight)) if bias is None else bias, None


def decoder_weights(cell: RecurrentCell, input_layer: nn.Linear) -> CellWeights:
    """Return the weights of a decoder, with the bias of the layer from the tokens to the gates."""
    state, bias, new = cell_weights(cell)
    return KERNELS[type(cell)].weights(
        state.unsqueeze(0),
        bias.unsqueeze(0),
        None if new is None else new.unsqueeze(0),
        input_layer.bias.unsqueeze(0),
    )
