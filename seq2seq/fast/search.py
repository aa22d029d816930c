"""The steps of a search with additive attention."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq.attention.masking import masked_softmax
from seq2seq.attention.scoring import AdditiveScore
from seq2seq.fast.cells import STEPPERS, Step
from seq2seq.fast.decoder import AdditiveSteps
from seq2seq.fast.recurrence import decoder_weights
from seq2seq.model.cells import RecurrentState
from seq2seq.model.decoder import Decoder, DecoderState, Memory
from seq2seq.model.products import packed_linear

Product = Callable[[Tensor], Tensor]


class WordSums:
    """What each word adds to the sums of a step: computed once, when it is first read."""

    def __init__(self, embedding: nn.Embedding, weight: Tensor, bias: Tensor):
        """(V, E), and the linear layer from it to the sums."""
        self.embedding, self.product = embedding, packed_linear(weight, bias)
        # Of words that are never read, the system hands out no memory.
        self.sums = weight.new_empty(embedding.num_embeddings, len(weight))
        self.is_known = torch.zeros(len(self.sums), dtype=torch.bool, device=weight.device)

    def __call__(self, tokens: Tensor) -> Tensor:
        known = self.is_known[tokens]
        if not known.all():
            new = tokens[~known].unique()
            # Two threads may both do so; they write the same.
            self.sums[new] = self.product(self.embedding(new))
            self.is_known[new] = True
        return self.sums.index_select(0, tokens)


class Layers(NamedTuple):
    """What a decoder multiplies at each step, laid out once for all batches of a search.

    All sums of a step lie side by side, (N, R + O): the gates, then the hidden layer of the output.
    The first P of them receive U s, the last G*H + O word and context: by one product each.
    """

    decoder: Decoder
    score: AdditiveScore
    new: Tensor | None  # U_n of the paper's GRU, (1, H, H)
    num_own: int  # gates that receive U s alone, which are the first ones
    state: Product  # [W_q; U] s + b, (H) -> (A + P)
    word: Product  # [W; V_o] E y + b, ids (N,) -> (N, G*H + O)
    context: Product  # [C; C_o], (C) -> (G*H + O)
    shown: Product  # U_o, (H) -> (O)
    logits: Product  # (O) -> (V)

    @classmethod
    def of(cls, decoder: Decoder) -> "Layers":
        """Those of a decoder whose weights stay as they are."""
        score, output = decoder.attention.score, decoder.output
        assert isinstance(score, AdditiveScore)
        of_state, bias, new = decoder_weights(decoder.cell, decoder.input_layer)
        of_shown, of_word, of_context = output.weights()
        query, (state,), context = score.query_layer.weight, of_state, decoder.context_layer.weight
        # Each sum has its bias once, the first ones with the state.
        with_state, with_word = bias.flatten().split([len(state), bias.numel() - len(state)])
        no_query = bias.new_zeros(len(query))
        no_gates = bias.new_zeros(len(context) - len(with_word))
        return cls(
            decoder,
            score,
            new,
            bias.numel() - len(context),
            packed_linear(torch.cat([query, state]), torch.cat([no_query, with_state])),
            WordSums(
                decoder.embedding,
                torch.cat([decoder.input_layer.weight, of_word]),
                torch.cat([no_gates, with_word, output.hidden_layer.bias]),
            ),
            packed_linear(torch.cat([context, of_context])),
            packed_linear(of_shown.contiguous()),
            packed_linear(output.logits_layer.weight, output.logits_layer.bias),
        )


class FastSteps(NamedTuple):
    """``PlainSteps`` of an attention and a cell that ``fast.decoder`` computes, without gradients.

    What U states say is copied to the N hypotheses that continue them, not computed again.
    """

    layers: Layers
    memory: Memory  # its keys are e^{2 k}; annotations are [C; C_o] h if ``is_projected``
    is_projected: bool
    scoring: AdditiveSteps  # of the memory as it is

    @classmethod
    def of(cls, layers: Layers, is_projected: bool, memory: Memory) -> "FastSteps":
        """Prepare for one batch of sentences.

        Args:
            layers: of the decoder.
            is_projected: whether contexts are sums of annotations that were projected before. It
                takes a product a source word, not one a state: worth it in a beam.
            memory: of the sentences.
        """
        annotations, keys, mask = memory
        if is_projected:
            annotations = layers.context(annotations.flatten(0, 1)).unflatten(0, mask.shape)
        exp_keys = AdditiveSteps.exp_of_twice(keys, out=torch.empty_like(keys))
        scoring = scoring_of(layers.score, exp_keys)
        return cls(layers, Memory(annotations, exp_keys, mask), is_projected, scoring)

    def select(self, sentences: Tensor) -> "FastSteps":
        """Those of some sentences, (B,)."""
        memory = self.memory.select(sentences)
        return self._replace(memory=memory, scoring=scoring_of(self.layers.score, memory.keys))

    def step(
        self,
        tokens: Tensor,
        states: DecoderState,
        sentences: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> tuple[Tensor, DecoderState, Tensor]:
        """As ``PlainSteps.step``."""
        layers, decoder = self.layers, self.layers.decoder
        before = [part for part in states.recurrent if part is not None]
        weights, sums = self._look(before[0], sentences)
        if rows is not None:
            weights, sums, *before = (x.index_select(0, rows) for x in (weights, sums, *before))
        of_words = layers.word(tokens)
        sums[:, -of_words.shape[1] :] += of_words

        gates, of_output = sums.tensor_split([-decoder.output.hidden_layer.out_features], dim=1)
        after = [torch.empty_like(part) for part in before]
        STEPPERS[type(decoder.cell)].forward(
            Step(columns(gates), [*map(columns, before)], [*map(columns, after)], layers.new)
        )
        of_output += layers.shown((before if decoder.output_state == "previous" else after)[0])
        logits = layers.logits(decoder.output.activate(of_output))
        return logits, DecoderState(RecurrentState(*after), None), weights

    def _look(self, hidden: Tensor, sentences: Tensor | None) -> tuple[Tensor, Tensor]:
        """Where states (U, H) look, (U, S), and the sums with all that they know, (U, R + O)."""
        layers, (annotations, exp_keys, mask), scoring = self.layers, self.memory, self.scoring
        if sentences is not None:
            exp_keys, mask = (part.index_select(0, sentences) for part in (exp_keys, mask))
            # Keys that were copied for this step alone lend their place.
            scoring = scoring_of(layers.score, exp_keys, room=exp_keys)
        query, of_state = layers.state(hidden).tensor_split([layers.score.key_size], dim=1)
        energies = scoring.energies(AdditiveSteps.exp_of_twice(query, out=query))
        weights = masked_softmax(energies, mask)
        context = contexts(weights, annotations, sentences)
        of_context = context if self.is_projected else layers.context(context)
        own = layers.num_own
        sums = torch.cat([of_state[:, :own], of_context], dim=1)
        sums[:, own : of_state.shape[1]] += of_state[:, own:]
        return weights, sums


def contexts(weights: Tensor, annotations: Tensor, sentences: Tensor | None) -> Tensor:
    """Sums (U, C) of annotations (B, S, C) by weights (U, S) of states that read ``sentences``."""
    if sentences is None:
        return torch.bmm(weights.unsqueeze(1), annotations).squeeze(1)
    # A product for each sentence, of K rows: as many as any has states. Nothing is copied.
    order = sentences.argsort(stable=True)
    counts = sentences.bincount(minlength=len(annotations))
    begin = counts.cumsum(0) - counts
    nth = torch.empty_like(order)  # of the states of its sentence
    nth[order] = torch.arange(len(order), device=order.device) - begin[sentences[order]]
    most = int(counts.max())
    places = sentences * most + nth
    rows = weights.new_zeros(len(annotations) * most, weights.shape[1])
    rows[places] = weights
    sums = torch.bmm(rows.unflatten(0, (-1, most)), annotations)
    return sums.flatten(0, 1).index_select(0, places)


def scoring_of(score: AdditiveScore, exp_keys: Tensor, room: Tensor | None = None) -> AdditiveSteps:
    """Energies by ``e^{2 k}``; ``room`` as ``AdditiveSteps`` has it."""
    return AdditiveSteps(exp_keys, score.energy_layer.weight[0], room)


def columns(rows: Tensor) -> Tensor:
    """(N, H) as a stepper has it: (1, H, N), in the same memory."""
    return rows.t().unsqueeze(0)
