"""The decoder with additive attention, forward and back."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from seq2seq.attention.distribution import Soft
from seq2seq.attention.masking import masked_softmax
from seq2seq.attention.pooling import Attention
from seq2seq.attention.scoring import AdditiveScore
from seq2seq.fast.cells import STEPPERS, Stepper, Weights, sigmoid_backward
from seq2seq.fast.recurrence import Recurrence, decoder_weights, side_by_side
from seq2seq.model.cells import RecurrentCell, RecurrentState
from seq2seq.model.products import add_product, lowered, times, turned


class AdditiveSteps:
    """Energies of ``AdditiveScore`` at one step after another, with no tanh for every pair.

        h_ij = 1 / (1 + e^{2 q_i} e^{2 k_j})        = (1 - tanh(q_i + k_j)) / 2
        e_ij = -2 v . h_ij                          = v . tanh(q_i + k_j) - sum(v)

    A softmax does not see ``sum(v)``, which all positions share.

        d_v = -2 sum_ij d_e_ij h_ij                 since sum_j d_e_ij = 0
        d_q_i = 4 v sum_j d_e_ij h_ij (1 - h_ij)    d_k_j likewise, summed over i

    The price: h has the absolute precision of floats, not the relative one that a tanh near 0 has,
    so that of d_v fewer digits are right the smaller q and k are (in float32, four at 0.001).
    """

    def __init__(self, exp_keys: Tensor, v: Tensor, halves: Tensor | None = None):
        """``e^{2 k}`` (B, S, A), v (A,), and room for h of one step, which may be that of keys for
        one step alone."""
        self.exp_keys, self.weights, self.ones = exp_keys, -2 * v, torch.ones_like(v)
        self.halves = torch.empty_like(exp_keys) if halves is None else halves

    @staticmethod
    def exp_of_twice(x: Tensor, out: Tensor) -> Tensor:
        """``e^{2 x}``."""
        # Clamped, so that no product of two is 0 times infinity. It changes nothing where q and k
        # are within 43, nor beyond, unless the two nearly cancel.
        return torch.mul(x, 2, out=out).clamp_(-86, 86).exp_()

    def _fill(self, exp_query: Tensor) -> Tensor:
        query, out = exp_query.unsqueeze(1), self.halves
        return torch.addcmul(self.ones, query, self.exp_keys, out=out).reciprocal_().flatten(0, 1)

    def energies(self, exp_query: Tensor) -> Tensor:
        """``e`` (B, S) of ``e^{2 q}`` (B, A)."""
        return torch.mv(self._fill(exp_query), self.weights).view(self.halves.shape[:2])

    def step_back(
        self, exp_query: Tensor, d_energies: Tensor, d_keys: Tensor, d_v: Tensor
    ) -> Tensor:
        """``d_q`` (B, A) but for its factor 4 v; adds to ``d_v``, and to ``d_keys`` likewise."""
        d_v.addmv_(self._fill(exp_query).t(), d_energies.flatten(), alpha=-2)
        sigmoid_backward(d_energies.unsqueeze(-1), self.halves, grad_input=self.halves)
        d_keys.add_(self.halves)
        return self.halves.sum(dim=1)


class Given(NamedTuple):
    """What a decoder's recurrence has gradients by."""

    inputs: Tensor  # W x without b, (G*H, T*B)
    keys: Tensor  # (B, S, A)
    annotations: Tensor  # (B, S, C)
    v: Tensor  # (A,)
    query_weight: Tensor  # W_q, (A, H)
    context_weight: Tensor  # (G*H, C)
    weight: Tensor  # the next three are ``Weights``
    bias: Tensor
    new_weight: Tensor | None
    hidden: Tensor  # s_0, (1, H, B)
    memory: Tensor | None  # of the LSTM, likewise


class _AttendAndAdvance(Function):
    """``attend_and_advance`` of tensors alone: hiddens (T, H, B), contexts (T, B, C), weights
    (T, B, S) and the last memory, (H, B)."""

    @staticmethod
    def forward(
        ctx, stepper: type[Stepper], mask: Tensor, *tensors: Tensor
    ) -> tuple[Tensor | None, ...]:
        given = Given(*tensors)
        (batch, _, units), annotations = given.keys.shape, given.annotations
        num_inputs, length = given.inputs.shape[0], given.inputs.shape[1] // batch
        state, empty = tensors[9 : 9 + stepper.num_states], given.v.new_empty
        weights_of_state = Weights(given.weight, given.bias, given.new_weight)
        inputs, counts = given.inputs.unsqueeze(0), [batch] * length
        recurrence = Recurrence.begin(stepper, weights_of_state, inputs, state, counts)
        steps = recurrence.steps()
        exp_keys = AdditiveSteps.exp_of_twice(given.keys, out=empty(given.keys.shape))
        scoring, exp_queries = AdditiveSteps(exp_keys, given.v), empty(length, batch, units)
        weights, contexts = empty(length, *mask.shape), empty(length, batch, annotations.shape[2])
        for t, step in enumerate(steps):
            query = times(step.before[0][0].t(), given.query_weight.t(), given.query_weight)
            AdditiveSteps.exp_of_twice(query, out=exp_queries[t])
            weights[t] = masked_softmax(scoring.energies(exp_queries[t]), mask)
            torch.bmm(weights[t].unsqueeze(1), annotations, out=contexts[t].unsqueeze(1))
            recurrence.multiply(step)
            add_product(step.gates[0, -num_inputs:], given.context_weight, contexts[t].t())
            stepper.forward(step)
        ctx.stepper = stepper
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
        last_memory = steps[-1].after[1][0].clone() if stepper.num_states == 2 else None
        return hiddens, contexts, weights, last_memory

    @staticmethod
    @once_differentiable
    def backward(ctx, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
        d_hiddens, d_contexts, d_weights, d_last_memory = d_results
        exp_keys, exp_queries, v, query_weight, *saved = ctx.saved_tensors
        annotations, context_weight, weights, contexts, *tensors = saved
        query_weight, context_weight = turned(query_weight), turned(context_weight)
        (length, batch, _), num_inputs = weights.shape, len(context_weight)
        recurrence = Recurrence.of([batch] * length, tensors)
        steps, d_steps = recurrence.steps(), recurrence.gradients()
        d_state = d_steps[0].state
        if d_last_memory is not None:
            d_state[1].copy_(d_last_memory)
        scoring, d_queries = AdditiveSteps(exp_keys, v), torch.empty_like(exp_queries)
        d_keys, d_v, d_all_contexts = (torch.zeros_like(x) for x in (exp_keys, v, contexts))
        if d_contexts is not None:
            d_all_contexts.copy_(d_contexts)
        for t in reversed(range(length)):
            if d_hiddens is not None:
                d_state[0] += d_hiddens[t]
            ctx.stepper.backward(steps[t], d_steps[t])
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
        needed = Given(*ctx.needs_input_grad[2:])
        hidden = side_by_side([step.before[0] for step in steps])
        d_all_gates = side_by_side([d.gates for d in d_steps])
        d_gates = d_all_gates[0, -num_inputs:]
        d_annotations = d_query_weight = d_context_weight = None
        if needed.annotations:
            d_annotations = torch.bmm(weights.permute(1, 2, 0), d_all_contexts.transpose(0, 1))
        if needed.query_weight:
            d_query_weight = times(d_queries.flatten(0, 1).t(), hidden[0].t(), query_weight)
        if needed.context_weight:
            d_context_weight = times(d_gates, contexts.flatten(0, 1), context_weight)
        of_attention = d_keys.mul_(4 * v), d_annotations, d_v, d_query_weight, d_context_weight
        by_weights = recurrence.weight_gradients(hidden, d_all_gates, ctx.needs_input_grad[8:11])
        no_memory = [None] * (2 - len(d_state))
        return None, None, d_gates, *of_attention, *by_weights, *d_state, *no_memory


class Unrolled(NamedTuple):
    """What all steps of a decoder give."""

    hiddens: Tensor  # s_1 to s_T, (B, T, H)
    contexts: Tensor  # (B, T, C)
    weights: Tensor  # (B, T, S)
    last: RecurrentState  # s_T


def is_supported(attention: nn.Module, cell: RecurrentCell) -> bool:
    """Whether ``attend_and_advance`` computes this attention, with this cell."""
    return (
        type(attention) is Attention
        and type(attention.score) is AdditiveScore
        and type(attention.weighing) is Soft
        and attention.weighing.normalise is masked_softmax
        and attention.coverage_layer is None
        and type(cell) in STEPPERS
    )


def attend_and_advance(
    inputs: Tensor,
    state: RecurrentState,
    memory: tuple[Tensor, Tensor, Tensor],
    cell: RecurrentCell,
    attention: Attention,
    layers: tuple[nn.Linear, nn.Linear],
) -> Unrolled:
    """``Decoder._attend_and_advance`` at all target positions in turn.

    Args:
        inputs: embedded words, (B, T, E).
        state: ``s_0``.
        memory: ``decoder.Memory``, which is annotations, keys and mask.
        cell: the decoder's cell.
        attention: one that ``is_supported`` with it.
        layers: the ways of the words and of the context into the gates, the latter without b.
    """
    annotations, keys, mask = memory
    input_layer, context_layer = layers
    score, stepper = attention.score, STEPPERS[type(cell)]
    assert is_supported(attention, cell)
    assert isinstance(score, AdditiveScore)
    weights = decoder_weights(cell, input_layer)
    given = Given(
        torch.mm(input_layer.weight, inputs.transpose(0, 1).flatten(0, 1).t()),
        keys.to(weights.bias.dtype),
        annotations.to(weights.bias.dtype),
        score.energy_layer.weight.squeeze(0),
        lowered(score.query_layer.weight),
        lowered(context_layer.weight),
        *weights.lowered(),
        state.hidden.t().unsqueeze(0),
        None if state.memory is None else state.memory.t().unsqueeze(0),
    )
    with torch.autocast(inputs.device.type, enabled=False):
        hiddens, contexts, alignment, last_memory = _AttendAndAdvance.apply(stepper, mask, *given)
    hiddens = hiddens.permute(2, 0, 1)
    last = RecurrentState(hiddens[:, -1], None if last_memory is None else last_memory.t())
    return Unrolled(hiddens, contexts.transpose(0, 1), alignment.transpose(0, 1), last)
