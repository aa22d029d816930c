"""The attention decoder: one target position after another, each looking at the source."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq.attention.build import AnyAttention
from seq2seq.attention.distribution import Past
from seq2seq.attention.pooling import Attention
from seq2seq.fast.decoder import attend_and_advance, is_supported
from seq2seq.model.cells import RecurrentCell, RecurrentState
from seq2seq.model.dropout import Dropout
from seq2seq.model.encoder import Encoded
from seq2seq.model.output import DeepOutput


class Memory(NamedTuple):
    """All that the decoder may read of the source; the same at every target position."""

    annotations: Tensor  # (B, S, C)
    keys: Tensor  # (B, S, A)
    mask: Tensor  # True at tokens, (B, S)

    def select(self, rows: Tensor) -> "Memory":
        """The memory of some sentences, repeated or left out as ``rows`` (N,) says."""
        return Memory(*(part.index_select(0, rows) for part in self))


class DecoderState(NamedTuple):
    """What one target position hands to the next."""

    recurrent: RecurrentState
    past: Past | None  # where it has looked, for an attention that looks back

    @property
    def hidden(self) -> Tensor:
        """``s_i``, (B, H)."""
        return self.recurrent.hidden

    def select(self, rows: Tensor) -> "DecoderState":
        """The state of some rows, repeated or left out as ``rows`` (N,) says."""
        past = None if self.past is None else self.past.select(rows)
        return DecoderState(self.recurrent.select(rows), past)


class Unrolled(NamedTuple):
    """What all positions give."""

    hiddens: Tensor  # s_1 to s_T, (B, T, H)
    contexts: Tensor  # (B, T, C)
    weights: Tensor  # (B, T, S)
    last: DecoderState


class Decoder(nn.Module):
    """RNN decoder with attention (Bahdanau et al. 2015, arXiv:1409.0473, appendix A.2.2).

        s_0 = tanh(W_s backward_h_1)
        c_i = attention(s_{i-1}, h)                 the query is the *previous* state
        s_i = cell(W E y_{i-1} + C c_i, s_{i-1})    the context enters every gate
        logits_i = output(s, E y_{i-1}, c_i)        s: s_{i-1} as in the paper, or s_i

    (Luong et al. 2015 attend with the new state; that is another model.)
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        cell: RecurrentCell,
        attention: AnyAttention,
        output: DeepOutput,
        sizes: tuple[int, int, int],
        dropout: float,
        output_state: str,
    ):
        """``sizes``: units of the decoder state, the annotations, the encoder's final state.

        Set ``is_fast`` to False, and all positions run by autograd, as any other attention's do.
        """
        super().__init__()
        state_size, annotation_size, final_size = sizes
        num_units = cell.num_gates * state_size
        self.embedding = embedding
        self.initial_layer = nn.Linear(final_size, state_size)
        self.input_layer = nn.Linear(embedding.embedding_dim, num_units)
        self.context_layer = nn.Linear(annotation_size, num_units, bias=False)
        self.cell = cell
        self.attention = attention
        self.output = output
        self.dropout = Dropout(dropout)
        self.output_state = output_state
        self.is_fast = is_supported(attention, cell)

    def initial_state(self, encoded: Encoded) -> DecoderState:
        """``s_0`` of the paper, which has looked nowhere."""
        hidden = torch.tanh(self.initial_layer(encoded.final)).to(self.initial_layer.weight.dtype)
        recurrent = self.cell.start(hidden)
        return DecoderState(recurrent, self.attention.start(encoded.annotations))

    def memory(self, encoded: Encoded) -> Memory:
        """The annotations with their keys, projected here and never again."""
        keys = self.attention.project(encoded.annotations)
        return Memory(encoded.annotations, keys, encoded.mask)

    def _attend_and_advance(
        self, gates: Tensor, state: DecoderState, memory: Memory, rows: Tensor | None = None
    ) -> tuple[DecoderState, Tensor, Tensor]:
        """One position from the words' share of the gates (N, G*H), rows as for ``step``: next
        state, context, weights."""
        context, weights = self.attention(
            state.hidden, memory.keys, memory.annotations, memory.mask, state.past
        )
        context_gates, products = self.context_layer(context), self.cell.recur(state.recurrent)
        if rows is not None:
            state = state.select(rows)
            context, weights, context_gates, products = (
                part.index_select(0, rows) for part in (context, weights, context_gates, products)
            )
        recurrent = self.cell.advance(gates + context_gates, products, state.recurrent)
        past = None if state.past is None else state.past.then(weights)
        return DecoderState(recurrent, past), context, weights

    def step(
        self, tokens: Tensor, state: DecoderState, memory: Memory, rows: Tensor | None = None
    ) -> tuple[Tensor, DecoderState, Tensor]:
        """One target position.

        Several words may follow one state: where it looks, and what it adds to the gates, is
        computed once for all of them.

        Args:
            tokens: ids of the previous word, (N,).
            state: ``s_{i-1}``.
            memory: the source, a row for each state.
            rows: the state that each word follows, (N,); by default each its own.

        Returns:
            Logits (N, V), the state ``s_i``, and the attention weights (N, S).
        """
        # Many hypotheses end in the same few words.
        words, places = tokens.unique(return_inverse=True)
        embedded = self.dropout(self.embedding(words))
        gates, embedded = (
            part.index_select(0, places) for part in (self.input_layer(embedded), embedded)
        )
        new, context, weights = self._attend_and_advance(gates, state, memory, rows)
        shown = new.hidden
        if self.output_state == "previous":
            shown = state.hidden if rows is None else state.hidden.index_select(0, rows)
        return self.output(shown, embedded, context), new, weights

    def forward(
        self, target_in: Tensor, memory: Memory, state: DecoderState
    ) -> tuple[Tensor, DecoderState, Tensor]:
        """All target positions under teacher forcing: what ``step`` would give, in turn.

        Args:
            target_in: ids that start with BOS, (B, T).
            memory: the source.
            state: ``s_0``.

        Returns:
            Logits (B, T, V), the last state, and the attention weights (B, T, S).
        """
        features, last, weights = self.features(target_in, memory, state)
        return self.output.logits_layer(features), last, weights

    def features(
        self, target_in: Tensor, memory: Memory, state: DecoderState
    ) -> tuple[Tensor, DecoderState, Tensor]:
        """``forward`` without the last layer: (B, T, O) instead of logits."""
        embedded = self.dropout(self.embedding(target_in))
        # What no state decides runs once for all positions: the inputs' share of the gates
        # before the loop, the output layer after it.
        unroll = self._unroll_fast if self.is_fast else self._unroll
        hiddens, contexts, weights, last = unroll(embedded, memory, state)
        if self.output_state == "previous":
            hiddens = torch.cat([state.hidden.unsqueeze(1), hiddens[:, :-1]], dim=1)
        return self.output.features(hiddens, embedded, contexts), last, weights

    def _unroll(self, embedded: Tensor, memory: Memory, state: DecoderState) -> Unrolled:
        """All positions in turn, by autograd: the reference."""
        hiddens, contexts, alignment = [], [], []
        for gates_i in self.input_layer(embedded).unbind(dim=1):
            state, context, weights = self._attend_and_advance(gates_i, state, memory)
            hiddens.append(state.hidden)
            contexts.append(context)
            alignment.append(weights)
        return Unrolled(
            torch.stack(hiddens, dim=1),
            torch.stack(contexts, dim=1),
            torch.stack(alignment, dim=1),
            state,
        )

    def _unroll_fast(self, embedded: Tensor, memory: Memory, state: DecoderState) -> Unrolled:
        """The same by hand-written derivatives."""
        assert isinstance(self.attention, Attention)  # as ``is_supported`` said
        layers = self.input_layer, self.context_layer
        unrolled = attend_and_advance(
            embedded, state.recurrent, memory, self.cell, self.attention, layers
        )
        last = DecoderState(unrolled.last, None)
        return Unrolled(unrolled.hiddens, unrolled.contexts, unrolled.weights, last)


class PlainSteps(NamedTuple):
    """The steps of a search: U states of B sentences at a time, which N hypotheses continue."""

    decoder: Decoder
    memory: Memory  # a row for each sentence

    def select(self, sentences: Tensor) -> "PlainSteps":
        """Those of some sentences, (B,)."""
        return self._replace(memory=self.memory.select(sentences))

    def step(
        self,
        tokens: Tensor,
        states: DecoderState,
        sentences: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> tuple[Tensor, DecoderState, Tensor]:
        """One target position, as ``Decoder.step``.

        Args:
            tokens: ids of the previous words, (N,).
            states: one for each of U rows.
            sentences: the one that each state reads, (U,); by default each its own.
            rows: the state that each word follows, (N,); by default each its own.
        """
        memory = self.memory if sentences is None else self.memory.select(sentences)
        return self.decoder.step(tokens, states, memory, rows)
