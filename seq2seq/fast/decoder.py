"""Unrolling of the decoder with additive attention, with hand-written derivatives."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from seq2seq.attention.distribution import Soft
from seq2seq.attention.masking import masked_softmax
from seq2seq.attention.pooling import Attention
from seq2seq.attention.scoring import AdditiveScore
from seq2seq.fast.cells import KERNELS, CellKernel, CellWeights, sigmoid_backward
from seq2seq.fast.recurrence import Recurrence, concat_steps, decoder_weights
from seq2seq.model.cells import RecurrentState
from seq2seq.model.decoder import Decoder, DecoderState, Memory, Unrolled
from seq2seq.model.products import add_product, column_major, matmul, to_autocast


def is_supported(decoder: Decoder) -> bool:
    """Whether ``unroll`` computes the attention and the cell of this decoder."""
    attention = decoder.attention
    return (
        type(attention) is Attention
        and type(attention.score) is AdditiveScore
        and type(attention.distribution) is Soft
        and attention.distribution.normalize is masked_softmax
        and attention.coverage_layer is None
        and type(decoder.cell) in KERNELS
    )


def additive_score(decoder: Decoder) -> AdditiveScore:
    """Return the scoring function of a supported decoder."""
    score = decoder.attention.score
    assert isinstance(score, AdditiveScore)
    return score


class AdditiveEnergies:
    """Energies of ``AdditiveScore`` for one step after another, without a tanh per pair.

        h_ij = 1 / (1 + e^{2 q_i} e^{2 k_j})        = (1 - tanh(q_i + k_j)) / 2
        e_ij = -2 v . h_ij                          = v . tanh(q_i + k_j) - sum(v)

    The softmax cancels ``sum(v)``, which is the same at all positions.

        d_v = -2 sum_ij d_e_ij h_ij                 since sum_j d_e_ij = 0
        d_q_i = 4 v sum_j d_e_ij h_ij (1 - h_ij)    d_k_j likewise, summed over i

    The drawback: h has the absolute precision of floats, not the relative precision of a tanh near
    0, so d_v loses digits as q and k become small (float32 keeps four digits at 0.001).
    """

    def __init__(self, exp_keys: Tensor, v: Tensor, buffer: Tensor | None = None):
        """Prepare for a batch.

        Args:
            exp_keys: ``e^{2 k}``, (B, S, A).
            v: weights of the hidden units, (A,).
            buffer: memory for h of one step, (B, S, A); it may be ``exp_keys`` itself if these are
                needed for one step only.
        """
        self.exp_keys, self.weights, self.ones = exp_keys, -2 * v, torch.ones_like(v)
        self.hidden = torch.empty_like(exp_keys) if buffer is None else buffer

    @staticmethod
    def exp_of_twice(x: Tensor, out: Tensor) -> Tensor:
        """Compute ``e^{2 x}``."""
        # Clamped, so that the product of two is never 0 times infinity. The clamp changes nothing
        # while q and k are within 43, nor beyond unless the two nearly cancel.
        return torch.mul(x, 2, out=out).clamp_(-86, 86).exp_()

    def _fill(self, exp_query: Tensor) -> Tensor:
        query, out = exp_query.unsqueeze(1), self.hidden
        return torch.addcmul(self.ones, query, self.exp_keys, out=out).reciprocal_().flatten(0, 1)

    def energies(self, exp_query: Tensor) -> Tensor:
        """Compute ``e`` (B, S) from ``e^{2 q}`` (B, A)."""
        return torch.mv(self._fill(exp_query), self.weights).view(self.hidden.shape[:2])

    def step_back(
        self, exp_query: Tensor, d_energies: Tensor, d_keys: Tensor, d_v: Tensor
    ) -> Tensor:
        """Add to ``d_v`` and ``d_keys``, and return ``d_q`` (B, A).

        ``d_keys`` and ``d_q`` lack the factor 4 v.
        """
        d_v.addmv_(self._fill(exp_query).t(), d_energies.flatten(), alpha=-2)
        sigmoid_backward(d_energies.unsqueeze(-1), self.hidden, grad_input=self.hidden)
        d_keys.add_(self.hidden)
        return self.hidden.sum(dim=1)


class UnrollInputs(NamedTuple):
    """Tensor inputs of ``_Unroll``, with respect to which it has gradients."""

    inputs: Tensor  # W x without b, (G*H, T*B)
    keys: Tensor  # (B, S, A)
    annotations: Tensor  # (B, S, C)
    v: Tensor  # (A,)
    query_weight: Tensor  # W_q, (A, H)
    context_weight: Tensor  # (G*H, C)
    weight: Tensor  # this and the next two are ``CellWeights``
    bias: Tensor
    new_weight: Tensor | None
    hidden: Tensor  # s_0, (1, H, B)
    cell: Tensor | None  # cell state of an LSTM, likewise


class _Unroll(Function):
    """``unroll`` of plain tensors.

    Returns hiddens (T, H, B), contexts (T, B, C), weights (T, B, S) and the last cell state (H, B).
    """

    @staticmethod
    def forward(
        ctx, kernel: type[CellKernel], mask: Tensor, *tensors: Tensor
    ) -> tuple[Tensor | None, ...]:
        given = UnrollInputs(*tensors)
        (batch, _, units), annotations = given.keys.shape, given.annotations
        num_inputs, length = given.inputs.shape[0], given.inputs.shape[1] // batch
        state, empty = tensors[9 : 9 + kernel.num_states], given.v.new_empty
        cell_weights = CellWeights(given.weight, given.bias, given.new_weight)
        inputs, counts = given.inputs.unsqueeze(0), [batch] * length
        recurrence = Recurrence.begin(kernel, cell_weights, inputs, state, counts)
        steps = recurrence.steps()
        exp_keys = AdditiveEnergies.exp_of_twice(given.keys, out=empty(given.keys.shape))
        scoring, exp_queries = AdditiveEnergies(exp_keys, given.v), empty(length, batch, units)
        weights, contexts = empty(length, *mask.shape), empty(length, batch, annotations.shape[2])
        for t, step in enumerate(steps):
            query = matmul(step.before[0][0].t(), given.query_weight.t(), given.query_weight)
            AdditiveEnergies.exp_of_twice(query, out=exp_queries[t])
            weights[t] = masked_softmax(scoring.energies(exp_queries[t]), mask)
            torch.bmm(weights[t].unsqueeze(1), annotations, out=contexts[t].unsqueeze(1))
            recurrence.multiply(step)
            add_product(step.gates[0, -num_inputs:], given.context_weight, contexts[t].t())
            kernel.forward(step)
        ctx.kernel = kernel
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            exp_keys,
            exp_queries,
            given.v,
            given.query_weight,
            annotations,
            given.context_weight,
            weights,
            contexts,
            *recurrence.tensors(),
        )
        hiddens = recurrence.states[0].view(length + 1, -1, batch)[1:]
        last_cell = steps[-1].after[1][0].clone() if kernel.num_states == 2 else None
        return hiddens, contexts, weights, last_cell

    @staticmethod
    @once_differentiable
    def backward(ctx, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
        d_hiddens, d_contexts, d_weights, d_last_cell = d_results
        exp_keys, exp_queries, v, query_weight, *saved = ctx.saved_tensors
        annotations, context_weight, weights, contexts, *tensors = saved
        query_weight, context_weight = column_major(query_weight), column_major(context_weight)
        (length, batch, _), num_inputs = weights.shape, len(context_weight)
        recurrence = Recurrence.from_saved([batch] * length, tensors)
        steps, d_steps = recurrence.steps(), recurrence.gradients()
        d_state = d_steps[0].state
        if d_last_cell is not None:
            d_state[1].copy_(d_last_cell)
        scoring, d_queries = AdditiveEnergies(exp_keys, v), torch.empty_like(exp_queries)
        d_keys, d_v, d_all_contexts = (torch.zeros_like(x) for x in (exp_keys, v, contexts))
        if d_contexts is not None:
            d_all_contexts.copy_(d_contexts)
        for t in reversed(range(length)):
            if d_hiddens is not None:
                d_state[0] += d_hiddens[t]
            ctx.kernel.backward(steps[t], d_steps[t])
            d_gates, d_context = d_steps[t].gates[0, -num_inputs:], d_all_contexts[t]
            add_product(d_context, d_gates.t(), context_weight)
            d_alignment = torch.bmm(d_context.unsqueeze(1), annotations.mT).squeeze(1)
            if d_weights is not None:
                d_alignment += d_weights[t]
            # Through the softmax: d_e_j = a_j (d_a_j - sum_k a_k d_a_k).
            d_alignment -= (d_alignment * weights[t]).sum(dim=1, keepdim=True)
            d_energies = d_alignment.mul_(weights[t])
            d_query = scoring.step_back(exp_queries[t], d_energies, d_keys, d_v)
            torch.mul(d_query, 4 * v, out=d_queries[t])
            add_product(d_state[0][0], query_weight.t(), d_queries[t].t())
            recurrence.multiply_back(d_steps[t])
        needed = UnrollInputs(*ctx.needs_input_grad[2:])
        hidden = concat_steps([step.before[0] for step in steps])
        d_all_gates = concat_steps([d.gates for d in d_steps])
        d_gates = d_all_gates[0, -num_inputs:]
        d_annotations = d_query_weight = d_context_weight = None
        if needed.annotations:
            d_annotations = torch.bmm(weights.permute(1, 2, 0), d_all_contexts.transpose(0, 1))
        if needed.query_weight:
            d_query_weight = matmul(d_queries.flatten(0, 1).t(), hidden[0].t(), query_weight)
        if needed.context_weight:
            d_context_weight = matmul(d_gates, contexts.flatten(0, 1), context_weight)
        d_attention = d_keys.mul_(4 * v), d_annotations, d_v, d_query_weight, d_context_weight
        d_weights_of_cell = recurrence.weight_gradients(
            hidden, d_all_gates, ctx.needs_input_grad[8:11]
        )
        no_cell = [None] * (2 - len(d_state))
        return None, None, d_gates, *d_attention, *d_weights_of_cell, *d_state, *no_cell


def unroll(decoder: Decoder, embedded: Tensor, memory: Memory, state: DecoderState) -> Unrolled:
    """Run all target positions of a supported decoder, as ``model.decoder.unroll``."""
    score, kernel, recurrent = additive_score(decoder), KERNELS[type(decoder.cell)], state.recurrent
    input_weight = decoder.input_layer.weight
    weights = decoder_weights(decoder.cell, decoder.input_layer)
    given = UnrollInputs(
        torch.mm(input_weight, embedded.transpose(0, 1).flatten(0, 1).t()),
        memory.keys.to(weights.bias.dtype),
        memory.annotations.to(weights.bias.dtype),
        score.energy_layer.weight.squeeze(0),
        to_autocast(score.query_layer.weight),
        to_autocast(decoder.context_layer.weight),
        *weights.to_autocast(),
        recurrent.hidden.t().unsqueeze(0),
        None if recurrent.cell is None else recurrent.cell.t().unsqueeze(0),
    )
    with torch.autocast(embedded.device.type, enabled=False):
        hiddens, contexts, alignment, last_cell = _Unroll.apply(kernel, memory.mask, *given)
    hiddens = hiddens.permute(2, 0, 1)
    last = RecurrentState(hiddens[:, -1], None if last_cell is None else last_cell.t())
    return Unrolled(
        hiddens, contexts.transpose(0, 1), alignment.transpose(0, 1), DecoderState(last, None)
    )
