"""Encoder layers with hand-written derivatives."""

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seq2seq.fast.cells import KERNELS, CellKernel, CellWeights
from seq2seq.fast.recurrence import Recurrence, cell_weights, concat_steps
from seq2seq.model.encoder import CellLayers, Encoder, Layers, LibraryLayers


def is_supported(encoder: Encoder) -> bool:
    """Whether ``read`` computes the layers of this encoder."""
    return type(encoder.layers) in (LibraryLayers, CellLayers) and encoder.layers.cell in KERNELS


class Order(NamedTuple):
    """Reading order of the N tokens of a batch: token (d, n) of the recurrence.

    Sentences are sorted by length, the longest first, so that those with a token left are always
    the first ones. The second direction reads each sentence from its last token.
    """

    counts: list[int]  # sentences that have a first token, a second, ...
    tokens: Tensor  # index of the token that is read at each (d, n), (2, N)
    positions: Tensor  # index in (2 * N) at which each direction reads each token, (N, 2)

    @classmethod
    def from_mask(cls, mask: Tensor) -> "Order":
        """Compute the order from the mask (B, S), which is True at tokens."""
        all_lengths = mask.sum(dim=1)
        lengths, sentences = all_lengths.sort(descending=True)
        begin = (all_lengths.cumsum(0) - all_lengths)[sentences]
        t = torch.arange(mask.shape[1], device=mask.device).unsqueeze(1)
        is_token = t < lengths
        tokens = torch.stack([begin + t, begin + lengths - 1 - t])[:, is_token]
        offsets = torch.tensor([0, tokens.shape[1]], device=mask.device)
        positions = tokens.argsort(dim=1).t() + offsets
        return cls([n for n in is_token.sum(dim=1).tolist() if n], tokens, positions)


class _ReadLayer(Function):
    """One layer: W x without b, (2, G*H, N), to hidden states (2, H, N)."""

    @staticmethod
    def forward(
        ctx, kernel: type[CellKernel], counts: list[int], inputs: Tensor, *tensors: Tensor
    ) -> Tensor:
        weights, n = CellWeights(*tensors), counts[0]
        state = [inputs.new_zeros(2, weights.state.shape[2], n)] * kernel.num_states
        recurrence = Recurrence.begin(kernel, weights, inputs, state, counts)
        steps = recurrence.steps()
        for step in steps:
            recurrence.multiply(step)
            kernel.forward(step)
        ctx.kernel, ctx.counts, ctx.num_inputs = kernel, counts, inputs.shape[1]
        ctx.save_for_backward(*recurrence.tensors())
        return concat_steps([step.after[0] for step in steps])

    @staticmethod
    @once_differentiable
    def backward(ctx, d_hiddens: Tensor) -> tuple[Tensor | None, ...]:
        recurrence = Recurrence.from_saved(ctx.counts, ctx.saved_tensors)
        steps, d_steps = recurrence.steps(), recurrence.gradients()
        by_step = d_hiddens.split(ctx.counts, dim=-1)
        for step, d_step, d_hidden in zip(steps[::-1], d_steps[::-1], by_step[::-1], strict=True):
            d_step.state[0].add_(d_hidden)
            ctx.kernel.backward(step, d_step)
            recurrence.multiply_back(d_step)
        before = concat_steps([step.before[0] for step in steps])
        d_gates = concat_steps([d.gates for d in d_steps])
        d_weights = recurrence.weight_gradients(before, d_gates, ctx.needs_input_grad[3:])
        return None, None, d_gates[:, -ctx.num_inputs :], *d_weights


def read(layers: Layers, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Run supported layers, as ``layers(embedded, mask)``.

    Args:
        layers: the layers; dropout acts between them.
        embedded: (B, S, E).
        mask: True at tokens, (B, S); padding may follow the tokens but not precede them.

    Returns:
        Annotations (B, S, C) and the final state of the backward direction (B, C / 2).
    """
    # Without gradients, and on a GPU even with them, torch's own kernels are faster.
    if embedded.is_cuda or not torch.is_grad_enabled():
        return layers(embedded, mask)
    kernel, order, tokens = KERNELS[layers.cell], Order.from_mask(mask), embedded[mask]
    num_layers, dropout = _depth_and_dropout(layers)
    for layer in range(num_layers):
        inputs = F.dropout(tokens, dropout, layers.training) if layer else tokens
        weights = (_layer_weights(layers, layer, direction) for direction in (0, 1))
        input_weight, input_bias, state, bias, new = zip(*weights, strict=True)
        # The tokens are reordered, not the gates, which are larger.
        inputs = inputs.index_select(0, order.tokens.flatten()).unflatten(0, (2, -1))
        products = torch.bmm(torch.stack(input_weight), inputs.mT)
        new_weight = None if new[0] is None else torch.stack(new)
        of_cell = kernel.weights(
            torch.stack(state), torch.stack(bias), new_weight, torch.stack(input_bias)
        )
        hiddens = _ReadLayer.apply(kernel, order.counts, products, *of_cell.to_autocast())
        # (2, H, N) -> (N, 2 * H)
        tokens = hiddens.mT.flatten(0, 1).index_select(0, order.positions.flatten())
        tokens = tokens.view(len(order.positions), -1)
    annotations = tokens.new_zeros(*mask.shape, tokens.shape[1]).index_put((mask,), tokens)
    return annotations, annotations[:, 0, tokens.shape[1] // 2 :]


def _depth_and_dropout(layers: Layers) -> tuple[int, float]:
    """Return the number of layers and the dropout between them."""
    if isinstance(layers, LibraryLayers):
        return layers.rnn.num_layers, layers.rnn.dropout
    return len(layers.cells) // 2, layers.dropout.p


def _layer_weights(
    layers: Layers, layer: int, direction: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Return W and b of the inputs of a layer in one direction, followed by ``cell_weights``."""
    if isinstance(layers, CellLayers):
        index = 2 * layer + direction
        inputs = cast(nn.Linear, layers.input_layers[index])
        return inputs.weight, inputs.bias, *cell_weights(layers.cells[index])
    suffix = f"_l{layer}" + "_reverse" * direction
    names = "weight_ih", "bias_ih", "weight_hh", "bias_hh"
    w_ih, b_ih, w_hh, b_hh = (layers.rnn.get_parameter(name + suffix) for name in names)
    return w_ih, b_ih, w_hh, b_hh, None
