"""RNN decoder with attention: one target position after another."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from seq2seq.attention.build import AnyAttention
from seq2seq.attention.distribution import AttentionHistory
from seq2seq.model.cells import RecurrentCell, RecurrentState
from seq2seq.model.dropout import Dropout
from seq2seq.model.encoder import EncoderOutput
from seq2seq.model.output import DeepOutput


class Memory(NamedTuple):
    """Everything the decoder may read of the source; constant over the target positions."""

    annotations: Tensor  # (B, S, C)
    keys: Tensor  # (B, S, A)
    mask: Tensor  # True at tokens, (B, S)

    def select(self, rows: Tensor) -> "Memory":
        """Select sentences by index (N,); an index may occur more than once."""
        return Memory(*(tensor.index_select(0, rows) for tensor in self))


class DecoderState(NamedTuple):
    """State that one target position passes on to the next."""

    recurrent: RecurrentState
    history: AttentionHistory | None  # of an attention that needs earlier weights

    @property
    def hidden(self) -> Tensor:
        """``s_i``, (B, H)."""
        return self.recurrent.hidden

    def select(self, rows: Tensor) -> "DecoderState":
        """Select rows by index (N,); an index may occur more than once."""
        history = None if self.history is None else self.history.select(rows)
        return DecoderState(self.recurrent.select(rows), history)


class Unrolled(NamedTuple):
    """Results of all target positions."""

    hiddens: Tensor  # s_1 to s_T, (B, T, H)
    contexts: Tensor  # (B, T, C)
    weights: Tensor  # (B, T, S)
    last: DecoderState  # s_T


class Decoder(nn.Module):
    """RNN decoder with attention (Bahdanau et al. 2015, arXiv:1409.0473, appendix A.2.2).

        s_0 = tanh(W_s backward_h_1)
        c_i = attention(s_{i-1}, h)                 the query is the *previous* state
        s_i = cell(W E y_{i-1} + C c_i, s_{i-1})    the context enters every gate
        logits_i = output(s, E y_{i-1}, c_i)        s: s_{i-1} as in the paper, or s_i

    (Luong et al. 2015 attend with the new state, which is a different model.)

    Args:
        embedding: target embeddings.
        cell: recurrent cell of H units.
        attention: attention over the annotations.
        output: output layer.
        annotation_size: units of an annotation, C.
        final_size: units of the encoder's final state.
        dropout: probability that a unit of an embedding is zeroed.
        output_state: the state that the output layer reads, ``current`` or ``previous``.

    Attributes:
        unroll: runs all target positions. It may be replaced by a function with the same results.
        make_step: builds the step of a search; see ``PlainStep``. It may be replaced likewise.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        cell: RecurrentCell,
        attention: AnyAttention,
        output: DeepOutput,
        *,
        annotation_size: int,
        final_size: int,
        dropout: float,
        output_state: str,
    ):
        super().__init__()
        num_units = cell.num_gates * cell.state_size
        self.embedding = embedding
        self.initial_layer = nn.Linear(final_size, cell.state_size)
        self.input_layer = nn.Linear(embedding.embedding_dim, num_units)
        self.context_layer = nn.Linear(annotation_size, num_units, bias=False)
        self.cell = cell
        self.attention = attention
        self.output = output
        self.dropout = Dropout(dropout)
        self.output_state = output_state
        self.unroll: UnrollFunction = unroll
        self.make_step: Callable[[Decoder, int], DecoderStep] = make_plain_step

    def initial_state(self, encoded: EncoderOutput) -> DecoderState:
        """Compute ``s_0``."""
        hidden = torch.tanh(self.initial_layer(encoded.final)).to(self.initial_layer.weight.dtype)
        history = self.attention.initial_history(encoded.annotations)
        return DecoderState(self.cell.initial_state(hidden), history)

    def memory(self, encoded: EncoderOutput) -> Memory:
        """Project the annotations to keys, once for all target positions."""
        keys = self.attention.project(encoded.annotations)
        return Memory(encoded.annotations, keys, encoded.mask)

    def attend_and_advance(
        self, gates: Tensor, state: DecoderState, memory: Memory
    ) -> tuple[DecoderState, Tensor, Tensor]:
        """Advance by one position, except for the output layer.

        Args:
            gates: contribution of the previous tokens to the gates, (B, G*H).
            state: ``s_{i-1}``.
            memory: the source.

        Returns:
            The state ``s_i``, the context (B, C) and the attention weights (B, S).
        """
        context, weights = self.attention(
            state.hidden, memory.keys, memory.annotations, memory.mask, state.history
        )
        recurrent = self.cell(gates + self.context_layer(context), state.recurrent)
        history = None if state.history is None else state.history.append(weights)
        return DecoderState(recurrent, history), context, weights

    def step(
        self, tokens: Tensor, state: DecoderState, memory: Memory
    ) -> tuple[Tensor, DecoderState, Tensor]:
        """Decode one target position.

        Args:
            tokens: ids of the previous tokens, (B,).
            state: ``s_{i-1}``.
            memory: the source.

        Returns:
            Logits (B, V), the state ``s_i`` and the attention weights (B, S).
        """
        embedded = self.dropout(self.embedding(tokens))
        new, context, weights = self.attend_and_advance(self.input_layer(embedded), state, memory)
        read = state.hidden if self.output_state == "previous" else new.hidden
        return self.output(read, embedded, context), new, weights

    def forward(
        self, target_in: Tensor, memory: Memory, state: DecoderState
    ) -> tuple[Tensor, DecoderState, Tensor]:
        """Decode all target positions with teacher forcing; equals repeated calls of ``step``.

        Args:
            target_in: ids that start with BOS, (B, T).
            memory: the source.
            state: ``s_0``.

        Returns:
            Logits (B, T, V), the last state and the attention weights (B, T, S).
        """
        features, last, weights = self.features(target_in, memory, state)
        return self.output.logits_layer(features), last, weights

    def features(
        self, target_in: Tensor, memory: Memory, state: DecoderState
    ) -> tuple[Tensor, DecoderState, Tensor]:
        """Run ``forward`` without the last layer: features (B, T, O) instead of logits."""
        # Computations that do not depend on the state run once for all positions: the token part of
        # the gates before the loop, the output layer after it.
        embedded = self.dropout(self.embedding(target_in))
        hiddens, contexts, weights, last = self.unroll(self, embedded, memory, state)
        if self.output_state == "previous":
            hiddens = torch.cat([state.hidden.unsqueeze(1), hiddens[:, :-1]], dim=1)
        return self.output.features(hiddens, embedded, contexts), last, weights


UnrollFunction = Callable[[Decoder, Tensor, Memory, DecoderState], Unrolled]


def unroll(decoder: Decoder, embedded: Tensor, memory: Memory, state: DecoderState) -> Unrolled:
    """Run all target positions one after another, with derivatives by autograd.

    Args:
        decoder: the decoder.
        embedded: embeddings of the previous tokens, (B, T, E).
        memory: the source.
        state: ``s_0``.
    """
    hiddens, contexts, alignment = [], [], []
    for gates in decoder.input_layer(embedded).unbind(dim=1):
        state, context, weights = decoder.attend_and_advance(gates, state, memory)
        hiddens.append(state.hidden)
        contexts.append(context)
        alignment.append(weights)
    return Unrolled(
        torch.stack(hiddens, dim=1),
        torch.stack(contexts, dim=1),
        torch.stack(alignment, dim=1),
        state,
    )


class DecoderStep(Protocol):
    """One target position of every hypothesis of a search."""

    def start(self, memory: Memory, state: DecoderState) -> Any:
        """Return the state of a search: one hypothesis per sentence.

        It has a method ``select``, which selects hypotheses by index.
        """

    def __call__(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any, Tensor]:
        """Return logits (N, V), the next state and weights (N, S) of N hypotheses.

        Args:
            tokens: id of the last token of each hypothesis, (N,).
            state: from ``start``, or from the previous position.
        """


class PlainState(NamedTuple):
    """State of a search with ``PlainStep``."""

    decoder: DecoderState  # one row per hypothesis
    memory: Memory  # likewise
    sources: Memory  # one row per sentence
    sentences: Tensor  # sentence of each hypothesis, (N,)

    def select(self, rows: Tensor) -> "PlainState":
        """Select hypotheses by index (N,); an index may occur more than once."""
        sentences, memory = self.sentences.index_select(0, rows), self.memory
        # Until a hypothesis finishes, those of a sentence only replace each other: its memory, the
        # largest part of the state, need not be copied.
        if not torch.equal(sentences, self.sentences):
            memory = self.sources.select(sentences)
        return PlainState(self.decoder.select(rows), memory, self.sources, sentences)


class PlainStep(NamedTuple):
    """``Decoder.step`` as the step of a search."""

    decoder: Decoder

    def start(self, memory: Memory, state: DecoderState) -> PlainState:
        sentences = torch.arange(len(memory.mask), device=memory.mask.device)
        return PlainState(state, memory, memory, sentences)

    def __call__(self, tokens: Tensor, state: PlainState) -> tuple[Tensor, PlainState, Tensor]:
        logits, new, weights = self.decoder.step(tokens, state.decoder, state.memory)
        return logits, state._replace(decoder=new), weights


def make_plain_step(decoder: Decoder, beam_size: int) -> DecoderStep:
    """Build the step of a search; the number of hypotheses does not matter to it."""
    return PlainStep(decoder)
