"""The steps of a search with additive attention."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2seq.attention.masking import masked_softmax
from seq2seq.attention.scoring import AdditiveScore
from seq2seq.model.decoder import Decoder, DecoderState, Memory
from seq2seq.model.fast.cells import STEPPERS, Step
from seq2seq.model.fast.decoder import AdditiveSteps
from seq2seq.model.fast.recurrence import decoder_weights
from seq2seq.model.recurrence import RecurrentState

CHUNK_WORDS = 512


class FastSteps(NamedTuple):
    """``PlainSteps`` of an attention and a cell that ``fast.decoder`` computes, without gradients.

    All sums of a step lie side by side, (N, R + O): the gates, then the hidden layer of the output.
    The last G*H + O receive words and context by one product each. What U states say is copied to
    the N hypotheses that continue them, not computed again.
    """

    decoder: Decoder
    memory: Memory  # its keys are e^{2 k}
    score: AdditiveScore
    scoring: AdditiveSteps  # of the memory as it is
    bias: Tensor  # of all sums, (R + O,)
    state: Tensor  # U, (P, H)
    new: Tensor | None  # U_n of the paper's GRU, (1, H, H)
    word: Tensor  # [W; V_o], (G*H + O, E)
    context: Tensor  # [C; C_o], (G*H + O, C)

    @classmethod
    def of(cls, decoder: Decoder, memory: Memory) -> "FastSteps":
        """Prepare for one batch of sentences."""
        weights = decoder_weights(decoder.cell, decoder.input_layer)
        _, of_word, of_context = decoder.output.weights()
        score = decoder.attention.score
        assert isinstance(score, AdditiveScore)
        exp_keys = AdditiveSteps.exp_of_twice(memory.keys, out=torch.empty_like(memory.keys))
        return cls(
            decoder,
            memory._replace(keys=exp_keys),
            score,
            scoring_of(score, exp_keys),
            torch.cat([weights.bias.flatten(), decoder.output.hidden_layer.bias]),
            weights.state[0],
            weights.new,
            torch.cat([decoder.input_layer.weight, of_word]),
            torch.cat([decoder.context_layer.weight, of_context]),
        )

    def select(self, sentences: Tensor) -> "FastSteps":
        """Those of some sentences, (B,)."""
        memory = self.memory.select(sentences)
        return self._replace(memory=memory, scoring=scoring_of(self.score, memory.keys))

    def step(
        self,
        tokens: Tensor,
        states: DecoderState,
        sentences: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> tuple[Tensor, DecoderState, Tensor]:
        """As ``PlainSteps.step``."""
        decoder = self.decoder
        before = [part for part in states.recurrent if part is not None]
        weights, sums = self._look(before[0], sentences)
        if rows is not None:
            weights, sums, *before = (x.index_select(0, rows) for x in (weights, sums, *before))
        # Many hypotheses end in the same few words.
        words, places = tokens.unique(return_inverse=True)
        of_words = F.linear(decoder.embedding(words), self.word)
        sums[:, -len(self.word) :] += of_words.index_select(0, places)

        of_output = sums[:, -decoder.output.hidden_layer.out_features :]
        gates = sums[:, : -of_output.shape[1]]
        after = [torch.empty_like(part) for part in before]
        STEPPERS[type(decoder.cell)].forward(
            Step(columns(gates), [*map(columns, before)], [*map(columns, after)], self.new)
        )
        shown = before[0] if decoder.output_state == "previous" else after[0]
        of_output.addmm_(shown, decoder.output.weights()[0].t())
        logits = self._logits(decoder.output.activate(of_output))
        return logits, DecoderState(RecurrentState(*after), None), weights

    def _look(self, hidden: Tensor, sentences: Tensor | None) -> tuple[Tensor, Tensor]:
        """Where states (U, H) look, (U, S), and the sums with all that they know, (U, R + O)."""
        memory, scoring = self.memory, self.scoring
        if sentences is not None:
            memory = memory.select(sentences)
            # Keys that were copied for this step alone lend their place.
            scoring = scoring_of(self.score, memory.keys, room=memory.keys)
        query = self.score.query_layer(hidden)
        energies = scoring.energies(AdditiveSteps.exp_of_twice(query, out=query))
        weights = masked_softmax(energies, memory.mask)
        context = torch.bmm(weights.unsqueeze(1), memory.annotations).squeeze(1)
        sums = self.bias.repeat(len(hidden), 1)
        sums[:, : len(self.state)].addmm_(hidden, self.state.t())
        sums[:, -len(self.context) :].addmm_(context, self.context.t())
        return weights, sums

    def _logits(self, features: Tensor) -> Tensor:
        """(N, O) -> (N, V)."""
        layer = self.decoder.output.logits_layer
        logits = features.new_empty(len(features), layer.out_features)
        # For 200 rows MKL takes a third longer in one go.
        for first in range(0, layer.out_features, CHUNK_WORDS):
            words = slice(first, first + CHUNK_WORDS)
            torch.addmm(layer.bias[words], features, layer.weight[words].t(), out=logits[:, words])
        return logits


def scoring_of(score: AdditiveScore, exp_keys: Tensor, room: Tensor | None = None) -> AdditiveSteps:
    """Energies by ``e^{2 k}``; ``room`` as ``AdditiveSteps`` has it."""
    return AdditiveSteps(exp_keys, score.energy_layer.weight[0], room)


def columns(rows: Tensor) -> Tensor:
    """(N, H) as a stepper has it: (1, H, N), in the same memory."""
    return rows.t().unsqueeze(0)
