"""The recurrences of training, with their derivatives written by hand.

``attend_and_advance`` computes what the loop of ``decoder`` over the target positions computes, and
``read`` what the layers of ``encoder`` do: the same functions of the same parameters, and the same
gradients. They take less time and memory because

- the gradient of a weight is one matrix product after the loop, not one a step;
- the attention's (B, S, A) tensor is made anew in the backward pass, not kept at every step, and
  takes no tanh for every pair of positions (``AdditiveSteps``);
- an encoder reads in both directions by one product a step, and never computes padding.

A recurrence lies in tensors (D, N, units): D = 2 directions of an encoder or 1 decoder; then the
sentences at the first step, those at the second, and so on, N in all. ``d_x`` is the gradient of
the loss by ``x``. There are no second derivatives.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seq2seq.attention.masking import masked_softmax
from seq2seq.attention.pooling import Attention
from seq2seq.attention.scoring import AdditiveScore
from seq2seq.attention.weighing import Soft
from seq2seq.model.layers import LibraryLayers, PaperGRULayers
from seq2seq.model.recurrence import GRUCell, LSTMCell, PaperGRUCell, RecurrentCell, RecurrentState

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input  # (d_y, y) -> d_y y (1 - y)
tanh_backward = torch.ops.aten.tanh_backward.grad_input  # (d_y, y) -> d_y (1 - y^2)


# The hidden state, (D, n, H), and the LSTM's memory if there is one.
State = Sequence[Tensor]


class Step(NamedTuple):
    """One step of n sentences, in D directions."""

    gates: Tensor  # the inputs' share of the gates, then in its place the gates, (D, n, G*H)
    products: Tensor  # U s + b, and of an attention W_q s before it, (D, n, P)
    before: State  # s
    after: State  # s'
    new_weight: Tensor | None  # U_n of the paper's GRU, (D, H, H)


class Gradients(NamedTuple):
    """By what one step, or all of them, have taken in."""

    gates: Tensor
    products: Tensor
    state: State  # by s' before a step back, by s after it


class Stepper:
    """The step of a cell of ``recurrence``, forward and back, on tensors that exist already."""

    num_states = 1

    @staticmethod
    def forward(step: Step) -> None:
        """Turn ``step.gates`` into the gates, and write ``step.after``."""
        raise NotImplementedError

    @staticmethod
    def backward(step: Step, d: Gradients) -> None:
        """Write ``d.gates`` and the cell's part of ``d.products``; turn ``d.state`` from d_s' into
        d_s, but for what passes through the products."""
        raise NotImplementedError


class GRUStepper(Stepper):
    """``GRUCell``: reset gate r, update gate z, new state n; u is the last block of ``U s + b``.

    n = tanh(x_n + r u)                 s' = (1 - z) n + z s

    d_x_n = d_s' (1 - z) (1 - n^2)      d_u = d_x_n r
    d_x_r = d_x_n u r (1 - r)           d_x_z = d_s' (s - n) z (1 - z)
    d_s = d_s' z + U^T [d_x_r; d_x_z; d_u]
    """

    @staticmethod
    def forward(step: Step) -> None:
        (hidden,), (next_hidden,) = step.before, step.after
        size = hidden.shape[-1]
        step.gates[..., : 2 * size].add_(step.products[..., -3 * size : -size]).sigmoid_()
        reset, update, new = step.gates.chunk(3, dim=-1)
        new.addcmul_(reset, step.products[..., -size:]).tanh_()
        torch.lerp(new, hidden, update, out=next_hidden)

    @staticmethod
    def backward(step: Step, d: Gradients) -> None:
        (hidden,), (d_hidden,) = step.before, d.state
        size = hidden.shape[-1]
        reset, update, new = step.gates.chunk(3, dim=-1)
        d_reset, d_update, d_new = d.gates.chunk(3, dim=-1)
        torch.addcmul(d_hidden, d_hidden, update, value=-1, out=d_new)
        tanh_backward(d_new, new, grad_input=d_new)
        torch.mul(d_new, step.products[..., -size:], out=d_reset)
        torch.sub(hidden, new, out=d_update).mul_(d_hidden)
        both, d_both = step.gates[..., : 2 * size], d.gates[..., : 2 * size]
        sigmoid_backward(d_both, both, grad_input=d_both)
        d.products[..., -3 * size : -size] = d_both
        torch.mul(d_new, reset, out=d.products[..., -size:])
        d_hidden.mul_(update)


class PaperGRUStepper(Stepper):
    """``PaperGRUCell``: reset gate r, update gate z, new state n.

    n = tanh(x_n + U_n (r s))           s' = (1 - z) s + z n

    d_x_n = d_s' z (1 - n^2)            d_rs = U_n^T d_x_n
    d_x_r = d_rs s r (1 - r)            d_x_z = d_s' (n - s) z (1 - z)
    d_s = d_s' (1 - z) + d_rs r + U^T [d_x_r; d_x_z]
    """

    @staticmethod
    def forward(step: Step) -> None:
        (hidden,), (next_hidden,) = step.before, step.after
        size = hidden.shape[-1]
        assert step.new_weight is not None
        step.gates[..., : 2 * size].add_(step.products[..., -2 * size :]).sigmoid_()
        reset, update, new = step.gates.chunk(3, dim=-1)
        new.baddbmm_(reset * hidden, step.new_weight.mT).tanh_()
        torch.lerp(hidden, new, update, out=next_hidden)

    @staticmethod
    def backward(step: Step, d: Gradients) -> None:
        (hidden,), (d_hidden,) = step.before, d.state
        size = hidden.shape[-1]
        assert step.new_weight is not None
        reset, update, new = step.gates.chunk(3, dim=-1)
        d_reset, d_update, d_new = d.gates.chunk(3, dim=-1)
        torch.mul(d_hidden, update, out=d_new)
        torch.sub(new, hidden, out=d_update).mul_(d_hidden)
        d_hidden.sub_(d_new)
        tanh_backward(d_new, new, grad_input=d_new)
        d_reset_hidden = torch.bmm(d_new, step.new_weight)
        torch.mul(d_reset_hidden, hidden, out=d_reset)
        d_hidden.addcmul_(d_reset_hidden, reset)
        both, d_both = step.gates[..., : 2 * size], d.gates[..., : 2 * size]
        sigmoid_backward(d_both, both, grad_input=d_both)
        d.products[..., -2 * size :] = d_both


class LSTMStepper(Stepper):
    """``LSTMCell``: gates i, f and o, new memory g.

    m' = f m + i g                      s' = o tanh(m')

    d_m' += d_s' o (1 - tanh(m')^2)     d_x_o = d_s' tanh(m') o (1 - o)
    d_x_i = d_m' g i (1 - i)            d_x_f = d_m' m f (1 - f)
    d_x_g = d_m' i (1 - g^2)            d_m = d_m' f        d_s = U^T [d_x_i; d_x_f; d_x_g; d_x_o]
    """

    num_states = 2

    @staticmethod
    def forward(step: Step) -> None:
        size, (_, memory), after = step.gates.shape[-1], step.before, step.after
        next_hidden, next_memory = after
        step.gates.add_(step.products[..., -size:])
        enter, forget, new, leave = step.gates.chunk(4, dim=-1)
        step.gates[..., : size // 2].sigmoid_()
        new.tanh_()
        leave.sigmoid_()
        torch.mul(forget, memory, out=next_memory).addcmul_(enter, new)
        torch.tanh(next_memory, out=next_hidden).mul_(leave)

    @staticmethod
    def backward(step: Step, d: Gradients) -> None:
        size, (_, memory), (_, next_memory) = step.gates.shape[-1], step.before, step.after
        d_hidden, d_memory = d.state
        enter, forget, new, leave = step.gates.chunk(4, dim=-1)
        d_enter, d_forget, d_new, d_leave = d.gates.chunk(4, dim=-1)
        tanh_memory = next_memory.tanh()
        torch.mul(d_hidden, tanh_memory, out=d_leave)
        d_hidden.mul_(leave)
        d_memory.add_(tanh_backward(d_hidden, tanh_memory, grad_input=d_hidden))
        torch.mul(d_memory, new, out=d_enter)
        torch.mul(d_memory, memory, out=d_forget)
        torch.mul(d_memory, enter, out=d_new)
        both, d_both = step.gates[..., : size // 2], d.gates[..., : size // 2]
        sigmoid_backward(d_both, both, grad_input=d_both)
        tanh_backward(d_new, new, grad_input=d_new)
        sigmoid_backward(d_leave, leave, grad_input=d_leave)
        d.products[..., -size:] = d.gates
        d_memory.mul_(forget)
        d_hidden.zero_()


STEPPERS: dict[type[nn.Module], type[Stepper]] = {
    GRUCell: GRUStepper,
    LSTMCell: LSTMStepper,
    PaperGRUCell: PaperGRUStepper,
    nn.GRU: GRUStepper,
    nn.LSTM: LSTMStepper,
}


class Recurrence(NamedTuple):
    """What a recurrence multiplies with its states, and all of its steps, one behind another."""

    weight: Tensor  # U, below W_q of an attention, (D, P, H)
    bias: Tensor  # (D, 1, P)
    new_weight: Tensor | None  # (D, H, H)
    gates: Tensor  # (D, N, G*H)
    products: Tensor  # (D, N, P)
    states: State  # behind the one before the first step, (D, n + N, H)

    @classmethod
    def begin(cls, weights: Sequence[Tensor], gates: Tensor, state: State) -> "Recurrence":
        """``weights``: the three above; ``state``: s_0."""
        directions, n, size = state[0].shape
        states = [part.new_empty(directions, n + gates.shape[1], size) for part in state]
        for all_parts, part in zip(states, state, strict=True):
            all_parts[:, :n] = part
        products = gates.new_empty(*gates.shape[:2], weights[0].shape[1])
        return cls.of([*weights, gates, products, *states])

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> "Recurrence":
        """The opposite of ``tensors``."""
        weight, bias, new_weight, gates, products, *states = tensors
        return cls(weight, bias, new_weight, gates, products, states)

    def tensors(self) -> Iterator[Tensor | None]:
        """Flat, as autograd saves them."""
        yield from self[:-1]
        yield from self.states

    def steps(self, counts: list[int]) -> list[Step]:
        """``counts``: the sentences of each step, which are the first ones of the step before."""
        states = list(zip(*(x.split([counts[0], *counts], 1) for x in self.states), strict=True))
        shares = zip(self.gates.split(counts, 1), self.products.split(counts, 1), strict=True)
        return [
            Step(*share, _first(n, before), after, self.new_weight)
            for n, share, before, after in zip(counts, shares, states[:-1], states[1:], strict=True)
        ]

    def multiply(self, step: Step) -> None:
        """The products of the state before a step."""
        torch.baddbmm(self.bias, step.before[0], self.weight.mT, out=step.products)

    def gradients(self, counts: list[int]) -> tuple[Gradients, list[Gradients]]:
        """Room for those of all steps, and its parts for each; the state's, which they share: 0."""
        gates, products = torch.empty_like(self.gates), torch.empty_like(self.products)
        state = [torch.zeros_like(part[:, : counts[0]]) for part in self.states]
        shares = zip(counts, gates.split(counts, 1), products.split(counts, 1), strict=True)
        each = [
            Gradients(d_gates, d_products, _first(n, state)) for n, d_gates, d_products in shares
        ]
        return Gradients(gates, products, state), each

    def multiply_back(self, d: Gradients) -> None:
        """What the state before a step owes to the products."""
        d.state[0].baddbmm_(d.products, self.weight)

    def weight_gradients(
        self, steps: list[Step], d: Gradients, needed: Sequence[bool]
    ) -> list[Tensor | None]:
        """By ``weight``, ``bias`` and ``new_weight``."""
        hidden = torch.cat([step.before[0] for step in steps], dim=1)
        reset, *_ = self.gates.split(hidden.shape[-1], dim=-1)
        *_, d_new = d.gates.split(hidden.shape[-1], dim=-1)
        return [
            torch.bmm(d.products.mT, hidden) if needed[0] else None,
            d.products.sum(dim=1, keepdim=True) if needed[1] else None,
            torch.bmm(d_new.mT, reset * hidden) if needed[2] else None,
        ]


def _first(n: int, state: State) -> State:
    """Of the first n sentences."""
    return [part[:, :n] for part in state]


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

    def __init__(self, exp_keys: Tensor, v: Tensor):
        """``e^{2 k}`` (B, S, A) and v (A,)."""
        self.exp_keys, self.v, self.ones = exp_keys, v, torch.ones_like(v)
        self.halves = torch.empty_like(exp_keys)  # h of one step

    @staticmethod
    def exp_(x: Tensor) -> Tensor:
        """``e^{2 x}``, in place."""
        # Clamped, so that no product of two is 0 times infinity. It changes nothing where q and k
        # are within 43, nor beyond, unless the two nearly cancel.
        return x.mul_(2).clamp_(-86, 86).exp_()

    def _fill(self, exp_query: Tensor) -> Tensor:
        query, out = exp_query.unsqueeze(1), self.halves
        return torch.addcmul(self.ones, query, self.exp_keys, out=out).reciprocal_().flatten(0, 1)

    def energies(self, exp_query: Tensor) -> Tensor:
        """``e`` (B, S) of ``e^{2 q}`` (B, A)."""
        return torch.mv(self._fill(exp_query), -2 * self.v).view(self.halves.shape[:2])

    def step_back(
        self, exp_query: Tensor, d_energies: Tensor, d_keys: Tensor, d_v: Tensor
    ) -> Tensor:
        """``d_q`` (B, A); adds to ``d_v``, and to ``d_keys`` all but its factor 4 v."""
        d_v.addmv_(self._fill(exp_query).t(), d_energies.flatten(), alpha=-2)
        sigmoid_backward(d_energies.unsqueeze(-1), self.halves, grad_input=self.halves)
        d_keys.add_(self.halves)
        return self.halves.sum(dim=1).mul_(4 * self.v)


class Given(NamedTuple):
    """What a decoder's recurrence has gradients by."""

    gates: Tensor  # (B, T, G*H)
    keys: Tensor  # (B, S, A)
    annotations: Tensor  # (B, S, C)
    v: Tensor  # (A,)
    context_weight: Tensor  # (G*H, C)
    weight: Tensor  # [W_q; U], (1, P, H)
    bias: Tensor  # (1, 1, P)
    new_weight: Tensor | None  # (1, H, H)
    hidden: Tensor  # s_0, (1, B, H)
    memory: Tensor | None  # of the LSTM, likewise


class _AttendAndAdvance(Function):
    """``attend_and_advance`` of tensors alone: hiddens, contexts, weights and the last memory."""

    @staticmethod
    def forward(
        ctx, stepper: type[Stepper], mask: Tensor, *tensors: Tensor
    ) -> tuple[Tensor | None, ...]:
        given = Given(*tensors)
        (batch, length, width), annotations = given.gates.shape, given.annotations
        empty, context_weight = given.gates.new_empty, given.context_weight.t()
        room, state = empty(1, length * batch, width), tensors[8 : 8 + stepper.num_states]
        recurrence = Recurrence.begin(tensors[5:8], room, state)
        scoring = AdditiveSteps(
            AdditiveSteps.exp_(given.keys.clone(memory_format=torch.contiguous_format)), given.v
        )
        weights, contexts = empty(length, *mask.shape), empty(length, batch, annotations.shape[2])
        for t, step in enumerate(recurrence.steps([batch] * length)):
            recurrence.multiply(step)
            exp_query = AdditiveSteps.exp_(step.products[0, :, : len(given.v)])
            weights[t] = masked_softmax(scoring.energies(exp_query), mask)
            torch.bmm(weights[t].unsqueeze(1), annotations, out=contexts[t].unsqueeze(1))
            torch.addmm(given.gates[:, t], contexts[t], context_weight, out=step.gates[0])
            stepper.forward(step)
        ctx.stepper = stepper
        ctx.set_materialize_grads(False)
        saved = scoring.exp_keys, given.v, annotations, given.context_weight, weights, contexts
        ctx.save_for_backward(*saved, *recurrence.tensors())
        hiddens, *memories = (part[0, batch:].view(length, batch, -1) for part in recurrence.states)
        results = (result.transpose(0, 1) for result in (hiddens, contexts, weights))
        return *results, memories[0][-1].clone() if memories else None

    @staticmethod
    @once_differentiable
    def backward(ctx, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
        d_hiddens, d_contexts, d_weights, d_last_memory = d_results
        exp_keys, v, annotations, context_weight, weights, contexts = ctx.saved_tensors[:6]
        recurrence = Recurrence.of(ctx.saved_tensors[6:])
        counts = [weights.shape[1]] * len(weights)
        steps, (d, d_steps) = recurrence.steps(counts), recurrence.gradients(counts)
        if d_last_memory is not None:
            d.state[1].copy_(d_last_memory)
        scoring = AdditiveSteps(exp_keys, v)
        d_keys, d_v, d_all_contexts = (torch.zeros_like(x) for x in (exp_keys, v, contexts))
        if d_contexts is not None:
            d_all_contexts.copy_(d_contexts.transpose(0, 1))
        for t in reversed(range(len(steps))):
            if d_hiddens is not None:
                d.state[0].add_(d_hiddens[:, t])
            ctx.stepper.backward(steps[t], d_steps[t])
            d_context = d_all_contexts[t].addmm_(d_steps[t].gates[0], context_weight)
            d_alignment = torch.bmm(d_context.unsqueeze(1), annotations.mT).squeeze(1)
            if d_weights is not None:
                d_alignment += d_weights[:, t]
            # Through the softmax: d_e_j = a_j (d_a_j - sum_k a_k d_a_k).
            d_alignment -= (d_alignment * weights[t]).sum(dim=1, keepdim=True)
            exp_query, d_query = (x.products[0, :, : len(v)] for x in (steps[t], d_steps[t]))
            d_energies = d_alignment.mul_(weights[t])
            d_query.copy_(scoring.step_back(exp_query, d_energies, d_keys, d_v))
            recurrence.multiply_back(d_steps[t])
        needed = Given(*ctx.needs_input_grad[2:])
        d_annotations = d_context_weight = None
        if needed.annotations:
            d_annotations = torch.bmm(weights.permute(1, 2, 0), d_all_contexts.transpose(0, 1))
        if needed.context_weight:
            d_context_weight = torch.mm(d.gates[0].t(), contexts.flatten(0, 1))
        d_gates = d.gates.view(len(steps), *counts[:1], -1).transpose(0, 1)
        given = d_gates, d_keys.mul_(4 * v), d_annotations, d_v, d_context_weight
        by_weights = recurrence.weight_gradients(steps, d, ctx.needs_input_grad[7:10])
        return None, None, *given, *by_weights, *d.state, *[None] * (2 - len(d.state))


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
    gates: Tensor,
    state: RecurrentState,
    memory: tuple[Tensor, Tensor, Tensor],
    cell: RecurrentCell,
    attention: Attention,
    context_layer: nn.Linear,
) -> Unrolled:
    """``Decoder._attend_and_advance`` at all target positions in turn.

    Args:
        gates: the words' share of the gates, (B, T, G*H).
        state: ``s_0``.
        memory: ``decoder.Memory``, which is annotations, keys and mask.
        cell: the decoder's cell.
        attention: one that ``is_supported`` with it.
        context_layer: the context's way into the gates.
    """
    annotations, keys, mask = memory
    score = attention.score
    assert is_supported(attention, cell)
    assert isinstance(score, AdditiveScore)
    weight, bias, new_weight = _cell_weights(cell)
    given = Given(
        gates,
        keys,
        annotations,
        score.energy_layer.weight.squeeze(0),
        context_layer.weight,
        torch.cat([score.query_layer.weight, weight]).unsqueeze(0),
        torch.cat([bias.new_zeros(score.key_size), bias]).view(1, 1, -1),
        None if new_weight is None else new_weight.unsqueeze(0),
        state.hidden.unsqueeze(0),
        None if state.memory is None else state.memory.unsqueeze(0),
    )
    results = _AttendAndAdvance.apply(STEPPERS[type(cell)], mask, *given)
    hiddens, contexts, weights, last_memory = results
    return Unrolled(hiddens, contexts, weights, RecurrentState(hiddens[:, -1], last_memory))


def _cell_weights(cell: nn.Module) -> tuple[Tensor, Tensor, Tensor | None]:
    """U, its b, which is 0 if the cell has none, and the U_n of the paper's GRU."""
    if isinstance(cell, PaperGRUCell):
        weight = cell.gates_layer.weight
        return weight, weight.new_zeros(len(weight)), cell.new_layer.weight
    assert isinstance(cell, GRUCell | LSTMCell)
    weight, bias = cell.recurrent_layer.weight, cell.recurrent_layer.bias
    return weight, weight.new_zeros(len(weight)) if bias is None else bias, None


class Order(NamedTuple):
    """How the N words of a batch are read: row (d, n) of the recurrence instead of row (n, d).

    The longest sentence comes first, so that those with a word left are always the first ones.
    The second direction reads each sentence from its last word.
    """

    counts: list[int]  # sentences that have a first word, a second, ...
    rows: Tensor  # row (n, d) that is read at each (d, n), (2*N,)
    places: Tensor  # the inverse

    @classmethod
    def of(cls, mask: Tensor) -> "Order":
        """From True at tokens, (B, S)."""
        all_lengths = mask.sum(dim=1)
        lengths, sentences = all_lengths.sort(descending=True)
        first = (all_lengths.cumsum(0) - all_lengths)[sentences]
        t = torch.arange(mask.shape[1], device=mask.device).unsqueeze(1)
        there = t < lengths
        words = torch.stack([first + t, first + lengths - 1 - t])[:, there]
        rows = (2 * words + torch.tensor([[0], [1]], device=mask.device)).flatten()
        return cls([n for n in there.sum(dim=1).tolist() if n], rows, rows.argsort())

    def read(self, x: Tensor) -> Tensor:
        """(N, 2*units) -> (2, N, units)."""
        return x.reshape(len(self.rows), -1).index_select(0, self.rows).view(2, len(x), -1)

    def undo(self, y: Tensor) -> Tensor:
        """(2, N, units) -> (N, 2*units)."""
        return y.flatten(0, 1).index_select(0, self.places).view(y.shape[1], -1)


class _Read(Function):
    """One layer: the inputs' share of the gates (N, 2*G*H) -> annotations (N, 2*H)."""

    @staticmethod
    def forward(
        ctx, stepper: type[Stepper], order: Order, gates: Tensor, *weights: Tensor
    ) -> Tensor:
        n = order.counts[0]
        zeros = gates.new_zeros(2, n, weights[0].shape[2])
        state = [zeros] * stepper.num_states
        recurrence = Recurrence.begin(weights, order.read(gates), state)
        for step in recurrence.steps(order.counts):
            recurrence.multiply(step)
            stepper.forward(step)
        ctx.stepper, ctx.order = stepper, order
        ctx.save_for_backward(*recurrence.tensors())
        return order.undo(recurrence.states[0][:, n:])

    @staticmethod
    @once_differentiable
    def backward(ctx, d_annotations: Tensor) -> tuple[Tensor | None, ...]:
        recurrence = Recurrence.of(ctx.saved_tensors)
        counts = ctx.order.counts
        steps, (d, d_steps) = recurrence.steps(counts), recurrence.gradients(counts)
        d_hiddens = ctx.order.read(d_annotations).split(counts, dim=1)
        for step, d_step, d_hidden in zip(steps[::-1], d_steps[::-1], d_hiddens[::-1], strict=True):
            d_step.state[0].add_(d_hidden)
            ctx.stepper.backward(step, d_step)
            recurrence.multiply_back(d_step)
        by_weights = recurrence.weight_gradients(steps, d, ctx.needs_input_grad[3:])
        return None, None, ctx.order.undo(d.gates), *by_weights


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
        inputs = F.dropout(words, dropout, layers.training) if layer else words
        weights = (_layer_weights(layers, layer, direction) for direction in (0, 1))
        input_weight, input_bias, weight, bias, new_weight = zip(*weights, strict=True)
        gates = F.linear(inputs, torch.cat(input_weight), torch.cat(input_bias))
        new = None if new_weight[0] is None else torch.stack(new_weight)
        of_states = torch.stack(weight), torch.stack(bias).unsqueeze(1), new
        words = _Read.apply(stepper, order, gates, *of_states)
    annotations = words.new_zeros(*mask.shape, words.shape[1]).index_put((mask,), words)
    return annotations, annotations[:, 0, words.shape[1] // 2 :]


def _layer_weights(
    layers: LibraryLayers | PaperGRULayers, layer: int, direction: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """W and b of the inputs of one layer in one direction, then ``_cell_weights``."""
    if isinstance(layers, PaperGRULayers):
        index = 2 * layer + direction
        inputs = layers.input_layers[index]
        assert isinstance(inputs, nn.Linear)
        return inputs.weight, inputs.bias, *_cell_weights(layers.cells[index])
    suffix = f"_l{layer}" + "_reverse" * direction
    names = "weight_ih", "bias_ih", "weight_hh", "bias_hh"
    w_ih, b_ih, w_hh, b_hh = (layers.rnn.get_parameter(name + suffix) for name in names)
    return w_ih, b_ih, w_hh, b_hh, None
