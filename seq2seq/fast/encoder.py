"""The layers of an encoder, forward and back."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seq2seq.fast.cells import STEPPERS, Stepper, Weights
from seq2seq.fast.recurrence import Recurrence, cell_weights, side_by_side
from seq2seq.model.cells import PaperGRUCell
from seq2seq.model.layers import LibraryLayers, PaperGRULayers


class Order(NamedTuple):
    """How the N words of a batch are read: word (d, n) of the recurrence.

    The longest sentence comes first, so that those with a word left are always the first ones.
    The second direction reads each sentence from its last word.
    """

    counts: list[int]  # sentences that have a first word, a second, ...
    words: Tensor  # which word is read at each (d, n), (2, N)
    places: Tensor  # where in (2 * N) each direction reads each word, (N, 2)

    @classmethod
    def of(cls, mask: Tensor) -> "Order":
        """From True at tokens, (B, S)."""
        all_lengths = mask.sum(dim=1)
        lengths, sentences = all_lengths.sort(descending=True)
        begin = (all_lengths.cumsum(0) - all_lengths)[sentences]
        t = torch.arange(mask.shape[1], device=mask.device).unsqueeze(1)
        there = t < lengths
        words = torch.stack([begin + t, begin + lengths - 1 - t])[:, there]
        places = words.argsort(dim=1).t() + torch.tensor([0, words.shape[1]], device=mask.device)
        return cls([n for n in there.sum(dim=1).tolist() if n], words, places)


class _Read(Function):
    """One layer: W x without b (2, G*H, N) -> hidden states (2, H, N)."""

    @staticmethod
    def forward(
        ctx, stepper: type[Stepper], counts: list[int], inputs: Tensor, *tensors: Tensor
    ) -> Tensor:
        weights, n = Weights(*tensors), counts[0]
        state = [inputs.new_zeros(2, weights.state.shape[2], n)] * stepper.num_states
        recurrence = Recurrence.begin(stepper, weights, inputs, state, counts)
        steps = recurrence.steps()
        for step in steps:
            recurrence.multiply(step)
            stepper.forward(step)
        ctx.stepper, ctx.counts, ctx.num_inputs = stepper, counts, inputs.shape[1]
        ctx.save_for_backward(*recurrence.tensors())
        return side_by_side([step.after[0] for step in steps])

    @staticmethod
    @once_differentiable
    def backward(ctx, d_hiddens: Tensor) -> tuple[Tensor | None, ...]:
        recurrence = Recurrence.of(ctx.counts, ctx.saved_tensors)
        steps, d_steps = recurrence.steps(), recurrence.gradients()
        by_step = d_hiddens.split(ctx.counts, dim=-1)
        for step, d_step, d_hidden in zip(steps[::-1], d_steps[::-1], by_step[::-1], strict=True):
            d_step.state[0].add_(d_hidden)
            ctx.stepper.backward(step, d_step)
            recurrence.multiply_back(d_step)
        before = side_by_side([step.before[0] for step in steps])
        d_gates = side_by_side([d.gates for d in d_steps])
        by_weights = recurrence.weight_gradients(before, d_gates, ctx.needs_input_grad[3:])
        return None, None, d_gates[:, -ctx.num_inputs :], *by_weights


def read(
    layers: LibraryLayers | PaperGRULayers, embedded: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """``layers(embedded, mask)``: annotations (B, S, C) and the backward direction's last state.

    Args:
        layers: with their own parameters, and their dropout between layers.
        embedded: (B, S, E).
        mask: True at tokens, which padding may follow but not precede, (B, S).
    """
    order, words = Order.of(mask), embedded[mask]
    if isinstance(layers, LibraryLayers):
        rnn = layers.rnn
        stepper, num_layers, dropout = STEPPERS[type(rnn)], rnn.num_layers, rnn.dropout
    else:
        stepper, num_layers = STEPPERS[PaperGRUCell], len(layers.cells) // 2
        dropout = layers.dropout.p
    for layer in range(num_layers):
        read_words = F.dropout(words, dropout, layers.training) if layer else words
        weights = (_layer_weights(layers, layer, direction) for direction in (0, 1))
        input_weight, input_bias, state, bias, new = zip(*weights, strict=True)
        # The words are put in order, not the gates, which are larger.
        read_words = read_words.index_select(0, order.words.flatten()).unflatten(0, (2, -1))
        inputs = torch.bmm(torch.stack(input_weight), read_words.mT)
        new_weight = None if new[0] is None else torch.stack(new)
        of_states = stepper.weights(
            torch.stack(state), torch.stack(bias), new_weight, torch.stack(input_bias)
        )
        hiddens = _Read.apply(stepper, order.counts, inputs, *of_states.lowered())
        # (2, H, N) -> (N, 2 * H)
        words = (
            hiddens.mT.flatten(0, 1).index_select(0, order.places.flatten()).view(len(words), -1)
        )
    annotations = words.new_zeros(*mask.shape, words.shape[1]).index_put((mask,), words)
    return annotations, annotations[:, 0, words.shape[1] // 2 :]


def _layer_weights(
    layers: LibraryLayers | PaperGRULayers, layer: int, direction: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """W and b of the inputs of one layer in one direction, then ``cell_weights``."""
    if isinstance(layers, PaperGRULayers):
        index = 2 * layer + direction
        inputs = layers.input_layers[index]
        assert isinstance(inputs, nn.Linear)
        return inputs.weight, inputs.bias, *cell_weights(layers.cells[index])
    suffix = f"_l{layer}" + "_reverse" * direction
    names = "weight_ih", "bias_ih", "weight_hh", "bias_hh"
    w_ih, b_ih, w_hh, b_hh = (layers.rnn.get_parameter(name + suffix) for name in names)
    return w_ih, b_ih, w_hh, b_hh, None
