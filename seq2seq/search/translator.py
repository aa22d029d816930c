"""Translates sentences, and scores given translations."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2seq.config.training import DecodingConfig
from seq2seq.data.batching import collate, pad_sources
from seq2seq.data.codec import Codec, Encoded
from seq2seq.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK
from seq2seq.device import map_single_threaded
from seq2seq.model.decoder import DecoderStep
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.search.beam import beam_search
from seq2seq.search.greedy import greedy_search
from seq2seq.search.hypothesis import Hypothesis, Limits, length_penalty

POSITIONS = 256  # target positions whose logits are in memory together when scoring
END = SPECIALS[EOS]


class Translation(NamedTuple):
    """A target sentence and its alignment to the source."""

    text: str  # detokenized
    score: float  # log_prob / length_penalty(len(tokens))
    log_prob: float  # of all tokens, in nats
    source_tokens: list[str]  # S of them, including EOS
    tokens: list[str]  # T of them, including EOS
    alignment: NDArray[np.float32]  # weights, (T, S); rows sum to 1, or to 0 without attention


class Translator:
    """A model with the codecs of its two languages.

    Args:
        model: the model; translating switches it to evaluation for the time.
        source: codec of the source language.
        target: codec of the target language.
        config: settings of the search.
    """

    def __init__(self, model: EncoderDecoder, source: Codec, target: Codec, config: DecodingConfig):
        self.model = model
        self.source = source
        self.target = target
        self.config = config

    def translate(self, sentences: Sequence[str]) -> list[Translation]:
        """Translate sentences, in their order; the translation of a blank one is empty."""
        return [best[0] for best in self.translate_num_best(sentences, 1)]

    def translate_num_best(
        self, sentences: Sequence[str], num_best: int
    ) -> list[list[Translation]]:
        """Return up to ``num_best`` translations of each sentence, best first."""
        sources = self.source.encode(sentences)
        lengths = [(len(source.ids),) for source in sources]
        with self._evaluating():
            step = self.model.make_step(self.config.beam_size)

            def search(rows: list[int]) -> list[list[Translation]]:
                found = self._search([sources[row].ids for row in rows], step, num_best)
                return [
                    [self._translation(sources[row].tokens, hypothesis) for hypothesis in best]
                    for row, best in zip(rows, found, strict=True)
                ]

            results = self._in_batches(lengths, search)
        empty = Translation("", 0.0, 0.0, [END], [END], np.ones((1, 1), np.float32))
        return [
            best if source.ids else [empty] for source, best in zip(sources, results, strict=True)
        ]

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Translation]:
        """Score and align given translations (forced decoding).

        Args:
            pairs: source sentences and their translations.
        """
        sources = self.source.encode([source for source, _ in pairs])
        targets = self.target.encode([target for _, target in pairs])

        def score(rows: list[int]) -> list[Translation]:
            scored = self._score(
                [sources[row].ids for row in rows], [targets[row].ids for row in rows]
            )
            return [
                self._scored_translation(pairs[row][1], sources[row], targets[row], *result)
                for row, result in zip(rows, scored, strict=True)
            ]

        lengths = [
            (len(target.ids), len(source.ids))
            for source, target in zip(sources, targets, strict=True)
        ]
        with self._evaluating():
            return self._in_batches(lengths, score)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Switch off dropout and gradients."""
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.inference_mode():
                yield
        finally:
            self.model.train(was_training)

    def _in_batches(self, lengths: Sequence[tuple[int, ...]], work: Callable) -> list:
        """Call ``work`` on batches of similar length, and restore the order of the results."""
        order = sorted(range(len(lengths)), key=lambda row: lengths[row])
        results: list = [None] * len(order)
        size = self.config.batch_size
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        batches.reverse()  # the longest first, so that no thread waits for one at the end
        map_batches = map_single_threaded if self.model.device.type == "cpu" else map
        # Inference mode is set for each thread separately.
        found = map_batches(torch.inference_mode()(work), batches)
        for rows, batch_results in zip(batches, found, strict=True):
            for row, result in zip(rows, batch_results, strict=True):
                results[row] = result
        return results

    def _search(
        self, sources: list[list[int]], step: DecoderStep, num_best: int
    ) -> list[list[Hypothesis]]:
        """Find hypotheses for one batch of sentences."""
        config, device = self.config, self.model.device
        source, mask = pad_sources(sources)
        start = step.start(*self.model.start(source.to(device), mask.to(device)))
        # Depends on the sentence alone: the other sentences of the batch must not matter.
        max_lengths = [
            int(config.max_length_factor * len(ids)) + config.max_length_extra for ids in sources
        ]
        limits = Limits(BOS, EOS, max_lengths, config.length_penalty)
        step_function = partial(_log_prob_step, step)
        if config.beam_size == 1:
            return [[best] for best in greedy_search(step_function, start, limits, device)]
        return beam_search(step_function, start, limits, config.beam_size, num_best, device)

    def _score(
        self, sources: list[list[int]], targets: list[list[int]]
    ) -> list[tuple[float, NDArray[np.float32]]]:
        """Return the log-probability and the padded weights (T, S) of each pair of one batch."""
        model, batch = self.model, collate(sources, targets).to(self.model.device)
        start = model.start(batch.source, batch.source_mask)
        features, _, weights = model.decoder.features(batch.target_in, *start)
        real = batch.target_out != PAD
        log_probs = torch.zeros_like(batch.target_out, dtype=torch.float64)
        log_probs[real] = self._log_probs(features[real], batch.target_out[real]).double()
        return list(zip(log_probs.sum(dim=1).tolist(), weights.float().cpu().numpy(), strict=True))

    def _log_probs(self, features: Tensor, ids: Tensor) -> Tensor:
        """Return the log-probabilities (N,) of ids (N,), given features (N, O)."""
        found = []
        # All logits at once would be the largest tensor in memory.
        for rows, chosen in zip(features.split(POSITIONS), ids.split(POSITIONS), strict=True):
            log_probs = self.model.output_layer(rows).float().log_softmax(dim=-1)
            found.append(log_probs.gather(1, chosen.unsqueeze(1)).squeeze(1))
        return torch.cat(found)

    def _scored_translation(
        self,
        text: str,
        source: Encoded,
        target: Encoded,
        log_prob: float,
        weights: NDArray[np.float32],
    ) -> Translation:
        """Build the translation of a given text from its padded weights."""
        source_tokens, tokens = [*source.tokens, END], [*target.tokens, END]
        return Translation(
            text,
            log_prob / length_penalty(len(tokens), self.config.length_penalty),
            log_prob,
            source_tokens,
            tokens,
            weights[: len(tokens), : len(source_tokens)],
        )

    def _translation(self, source: list[str], hypothesis: Hypothesis) -> Translation:
        """Turn a hypothesis into text."""
        # A copy, so that a translation does not keep the weights of its whole batch in memory.
        weights = hypothesis.weights[:, : len(source) + 1].float().cpu().numpy().copy()
        tokens = self.target.vocabulary.tokens(hypothesis.tokens)
        written = tokens[:-1]
        if self.config.replace_unknown and source:
            words = weights[:, : len(source)]
            best = words.argmax(axis=1)
            written = [
                source[best[i]] if id == UNK and words[i].any() else token
                for i, (id, token) in enumerate(zip(hypothesis.tokens, written, strict=False))
            ]
        return Translation(
            self.target.decode(written),
            hypothesis.score,
            hypothesis.log_prob,
            [*source, END],
            tokens,
            weights,
        )


def _log_prob_step(step: DecoderStep, tokens: Tensor, state: Any) -> tuple[Tensor, Any, Tensor]:
    """Return log-probabilities instead of logits; PAD and BOS are never generated."""
    logits, state, weights = step(tokens, state)
    log_probs = logits.float().log_softmax(dim=-1)
    for id in (PAD, BOS):  # indexing with a list would create a tensor in every step
        log_probs[:, id] = float("-inf")
    return log_probs, state, weights
