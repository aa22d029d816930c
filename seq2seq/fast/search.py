"""The step of a search with additive attention, with packed weights and shared states."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq.attention.masking import masked_softmax
from seq2seq.fast.cells import KERNELS, CellStep
from seq2seq.fast.decoder import AdditiveEnergies, additive_score
from seq2seq.fast.recurrence import decoder_weights
from seq2seq.model.cells import RecurrentState
from seq2seq.model.decoder import Decoder, DecoderState, DecoderStep, Memory, make_plain_step
from seq2seq.model.products import packed_linear

Product = Callable[[Tensor], Tensor]


class TokenSums:
    """Contribution of each token to the sums of a step, computed when it is first needed."""

    def __init__(self, embedding: nn.Embedding, weight: Tensor, bias: Tensor):
        """Prepare for embeddings (V, E) and the linear layer from them to the sums."""
        self.embedding, self.product = embedding, packed_linear(weight, bias)
        # The operating system provides no memory for tokens that are never read.
        self.sums = weight.new_empty(embedding.num_embeddings, len(weight))
        self.is_known = torch.zeros(len(self.sums), dtype=torch.bool, device=weight.device)

    def __call__(self, tokens: Tensor) -> Tensor:
        known = self.is_known[tokens]
        if not known.all():
            new = tokens[~known].unique()
            # Two threads may both get here; they write the same values.
            self.sums[new] = self.product(self.embedding(new))
            self.is_known[new] = True
        return self.sums.index_select(0, tokens)


class PackedDecoder(NamedTuple):
    """The matrices of a decoder, concatenated and packed once for all batches of a search.

    All sums of a step are concatenated, (N, R + O): the gates, then the hidden layer of the output.
    The first P of them receive U s, the last G*H + O the token and the context: one product each.
    """

    decoder: Decoder
    v: Tensor  # weights of the hidden units of the scoring function, (A,)
    new: Tensor | None  # U_n of the paper's GRU, (1, H, H)
    num_own: int  # number of leading gates that receive U s alone
    state: Product  # [W_q; U] s + b, (H) -> (A + P)
    token: Product  # [W; V_o] E y + b, ids (N,) -> (N, G*H + O)
    context: Product  # [C; C_o], (C) -> (G*H + O)
    output: Product  # U_o, (H) -> (O)
    logits: Product  # (O) -> (V)

    @classmethod
    def pack(cls, decoder: Decoder) -> "PackedDecoder":
        """Pack the present weights of a supported decoder; later changes have no effect."""
        score, output = additive_score(decoder), decoder.output
        cell_weight, bias, new = decoder_weights(decoder.cell, decoder.input_layer)
        output_state, output_token, output_context = output.split_weight()
        query, (state,) = score.query_layer.weight, cell_weight
        context = decoder.context_layer.weight
        # Each sum gets its bias once; the first ones get it with the state.
        state_bias, token_bias = bias.flatten().split([len(state), bias.numel() - len(state)])
        no_query = bias.new_zeros(len(query))
        no_gates = bias.new_zeros(len(context) - len(token_bias))
        return cls(
            decoder,
            score.energy_layer.weight[0],
            new,
            bias.numel() - len(context),
            packed_linear(torch.cat([query, state]), torch.cat([no_query, state_bias])),
            TokenSums(
                decoder.embedding,
                torch.cat([decoder.input_layer.weight, output_token]),
                torch.cat([no_gates, token_bias, output.hidden_layer.bias]),
            ),
            packed_linear(torch.cat([context, output_context])),
            packed_linear(output_state.contiguous()),
            packed_linear(output.logits_layer.weight, output.logits_layer.bias),
        )


class Sources(NamedTuple):
    """The sentences of a batch, as ``FastStep`` reads them."""

    annotations: Tensor  # (B, S, C), or their products with [C; C_o]
    exp_keys: Tensor  # e^{2 k}, (B, S, A)
    mask: Tensor  # True at tokens, (B, S)
    scoring: AdditiveEnergies  # of all sentences

    def select(self, sentences: Tensor, v: Tensor) -> "Sources":
        """Select sentences by index (B,)."""
        annotations, exp_keys, mask = (x.index_select(0, sentences) for x in self[:3])
        return Sources(annotations, exp_keys, mask, AdditiveEnergies(exp_keys, v))


class FastState(NamedTuple):
    """State of a search: N hypotheses, which continue U decoder states, of B sentences.

    Hypotheses that differ in their last token alone share a decoder state, and all states of a
    sentence share its ``sources``.
    """

    packed: PackedDecoder
    sources: Sources
    recurrent: RecurrentState  # (U, H)
    sentences: Tensor | None = None  # sentence of each state, (U,); None: state i reads sentence i
    parents: Tensor | None = None  # state of each hypothesis, (N,); None: i continues state i

    def select(self, rows: Tensor) -> "FastState":
        """Select hypotheses by index (N,); an index may occur more than once."""
        rows = _lookup(self.parents, rows)
        states, parents = rows.unique(return_inverse=True)
        if len(states) < len(rows):
            return self._replace(
                recurrent=self.recurrent.select(states),
                sentences=_lookup(self.sentences, states),
                parents=parents,
            )
        # No state is shared, as in greedy search: one copy now saves one in every step.
        sources = self.sources.select(_lookup(self.sentences, rows), self.packed.v)
        return FastState(self.packed, sources, self.recurrent.select(rows))


def _lookup(table: Tensor | None, rows: Tensor) -> Tensor:
    """Return ``table[rows]``; without a table, each row maps to itself."""
    return rows if table is None else table.index_select(0, rows)


class FastStep(NamedTuple):
    """The step of a search, as ``model.decoder.PlainStep``, without gradients.

    Everything that depends on a decoder state alone is computed once for all hypotheses that
    continue it.
    """

    packed: PackedDecoder
    # Whether annotations are projected before the search, so that contexts are sums of projected
    # ones. It takes one product per source token, not one per state: worth it for a beam.
    is_projected: bool

    def start(self, memory: Memory, state: DecoderState) -> FastState:
        annotations, keys, mask = memory
        if self.is_projected:
            projected = self.packed.context(annotations.flatten(0, 1))
            annotations = projected.unflatten(0, mask.shape)
        exp_keys = AdditiveEnergies.exp_of_twice(keys, out=torch.empty_like(keys))
        scoring = AdditiveEnergies(exp_keys, self.packed.v)
        return FastState(
            self.packed, Sources(annotations, exp_keys, mask, scoring), state.recurrent
        )

    def __call__(self, tokens: Tensor, state: FastState) -> tuple[Tensor, FastState, Tensor]:
        packed, decoder = self.packed, self.packed.decoder
        sentences = state.sentences
        before = [tensor for tensor in state.recurrent if tensor is not None]
        weights, sums = self._attend(before[0], state)
        if state.parents is not None:
            weights, sums, *before = (
                x.index_select(0, state.parents) for x in (weights, sums, *before)
            )
            sentences = _lookup(sentences, state.parents)
        token_sums = packed.token(tokens)
        sums[:, -token_sums.shape[1] :] += token_sums

        gates, output_sums = sums.tensor_split([-decoder.output.hidden_layer.out_features], dim=1)
        after = [torch.empty_like(tensor) for tensor in before]
        KERNELS[type(decoder.cell)].forward(
            CellStep(
                units_first(gates),
                [*map(units_first, before)],
                [*map(units_first, after)],
                packed.new,
            )
        )
        output_sums += packed.output((before if decoder.output_state == "previous" else after)[0])
        logits = packed.logits(decoder.output.activate(output_sums))
        new = FastState(packed, state.sources, RecurrentState(*after), sentences)
        return logits, new, weights

    def _attend(self, hidden: Tensor, state: FastState) -> tuple[Tensor, Tensor]:
        """Compute the weights (U, S) of decoder states (U, H), and their part of the sums."""
        packed, sentences = self.packed, state.sentences
        annotations, exp_keys, mask, scoring = state.sources
        if sentences is not None:
            exp_keys, mask = (x.index_select(0, sentences) for x in (exp_keys, mask))
            # Keys that were copied for this step alone serve as the buffer, too.
            scoring = AdditiveEnergies(exp_keys, packed.v, buffer=exp_keys)
        query, state_sums = packed.state(hidden).tensor_split([len(packed.v)], dim=1)
        energies = scoring.energies(AdditiveEnergies.exp_of_twice(query, out=query))
        weights = masked_softmax(energies, mask)
        context = contexts(weights, annotations, sentences)
        context_sums = context if self.is_projected else packed.context(context)
        own = packed.num_own
        sums = torch.cat([state_sums[:, :own], context_sums], dim=1)
        sums[:, own : state_sums.shape[1]] += state_sums[:, own:]
        return weights, sums


def make_fast_step(decoder: Decoder, beam_size: int) -> DecoderStep:
    """Build the step of a search for a supported decoder.

    The plain step is used in training and where gradients are wanted.
    """
    if decoder.training or torch.is_grad_enabled():
        return make_plain_step(decoder, beam_size)
    return FastStep(PackedDecoder.pack(decoder), is_projected=beam_size > 1)


def contexts(weights: Tensor, annotations: Tensor, sentences: Tensor | None) -> Tensor:
    """Sum annotations (B, S, C) by the weights (U, S) of states that read ``sentences`` (U,)."""
    if sentences is None:
        return torch.bmm(weights.unsqueeze(1), annotations).squeeze(1)
    # One product per sentence, of K rows: the largest number of states of any sentence. The
    # annotations are not copied.
    order = sentences.argsort(stable=True)
    counts = sentences.bincount(minlength=len(annotations))
    begin = counts.cumsum(0) - counts
    nth = torch.empty_like(order)  # number of the state within its sentence
    nth[order] = torch.arange(len(order), device=order.device) - begin[sentences[order]]
    most = int(counts.max())
    indices = sentences * most + nth
    rows = weights.new_zeros(len(annotations) * most, weights.shape[1])
    rows[indices] = weights
    sums = torch.bmm(rows.unflatten(0, (-1, most)), annotations)
    return sums.flatten(0, 1).index_select(0, indices)


def units_first(rows: Tensor) -> Tensor:
    """View (N, H) as a cell kernel wants it, (1, H, N)."""
    return rows.t().unsqueeze(0)
