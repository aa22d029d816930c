"""Sentences in, translations out, in the order in which they came."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2seq.checkpoint import Checkpoint, load_checkpoint
from seq2seq.config.training import DecodingConfig
from seq2seq.data.batching import collate, pad_sources
from seq2seq.data.codec import Codec
from seq2seq.data.vocabulary import BOS, EOS, PAD, UNK
from seq2seq.device import one_thread_each
from seq2seq.fast.search import FastSteps
from seq2seq.model.decoder import DecoderState, Memory, PlainSteps
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.search.beam import beam_search
from seq2seq.search.greedy import greedy_search
from seq2seq.search.hypothesis import Hypothesis, Limits, length_penalty
from seq2seq.search.loading import build_stored_model, sides_of

Steps = PlainSteps | FastSteps
POSITIONS = 256  # whose logits are in memory together where all target words are given


class Translation(NamedTuple):
    """A target sentence, and where the model looked to write it."""

    text: str  # detokenised
    score: float  # log_prob / length_penalty(len(tokens))
    log_prob: float  # of all tokens, in nats
    source_tokens: list[str]  # S of them, EOS included
    tokens: list[str]  # T of them, EOS included
    alignment: NDArray[np.float32]  # weights, (T, S); each row sums to 1, to 0 without attention


class SearchState(NamedTuple):
    """State of a search in the model: N hypotheses, which continue U states, of B sentences.

    Hypotheses that differ in their last word alone continue the same state, and what a sentence
    says is kept once, however many states read it.
    """

    steps: Steps
    states: DecoderState  # a row for each, (U, H)
    sentences: Tensor | None = None  # the one that each state reads, (U,); None: its own
    rows: Tensor | None = None  # the state that each hypothesis continues, (N,); None: its own

    def select(self, rows: Tensor) -> "SearchState":
        rows = _through(self.rows, rows)
        states, followers = rows.unique(return_inverse=True)
        if len(states) < len(rows):
            sentences = _through(self.sentences, states)
            return SearchState(self.steps, self.states.select(states), sentences, followers)
        # Nobody shares, as in greedy search: one copy now saves one a step.
        steps = self.steps.select(_through(self.sentences, rows))
        return SearchState(steps, self.states.select(rows))

    def step(self, tokens: Tensor) -> tuple[Tensor, "SearchState", Tensor]:
        """Logits (N, V), the next state and attention weights (N, S) of every hypothesis."""
        logits, states, weights = self.steps.step(tokens, self.states, self.sentences, self.rows)
        sentences = self.sentences
        if self.rows is not None:
            sentences = _through(sentences, self.rows)
        return logits, SearchState(self.steps, states, sentences), weights


def _through(table: Tensor | None, rows: Tensor) -> Tensor:
    """``table[rows]``, where no table maps each row to itself."""
    return rows if table is None else table.index_select(0, rows)


class Translator:
    """A model with the tokenizers and vocabularies of its two sides."""

    def __init__(self, model: EncoderDecoder, source: Codec, target: Codec, config: DecodingConfig):
        self.model = model
        self.source = source
        self.target = target
        self.config = config

    def translate(self, sentences: Sequence[str]) -> list[Translation]:
        """Translation ``i`` is that of sentence ``i``; a blank sentence has an empty one."""
        return [best[0] for best in self.translate_num_best(sentences, 1)]

    def translate_num_best(
        self, sentences: Sequence[str], num_best: int
    ) -> list[list[Translation]]:
        """Up to ``num_best`` translations of each sentence, best first."""
        tokens = self.source.tokenizer.tokenize_many(sentences)
        lengths = [(len(ids),) for ids in tokens]
        with self._evaluating():
            steps_of = self.model.searcher(self.config.beam_size)

            def search(rows: list[int]) -> list[list[Translation]]:
                found = self._search([tokens[row] for row in rows], steps_of, num_best)
                return [
                    [self._translation(tokens[row], hypothesis) for hypothesis in best]
                    for row, best in zip(rows, found, strict=True)
                ]

            results = self._in_batches(lengths, search)
        nothing = Translation("", 0.0, 0.0, ["</s>"], ["</s>"], np.ones((1, 1), np.float32))
        return [best if source else [nothing] for source, best in zip(tokens, results, strict=True)]

    def force(self, pairs: Sequence[tuple[str, str]]) -> list[Translation]:
        """The model's own score and alignment of given translations (teacher forcing)."""
        sources = self.source.tokenizer.tokenize_many([source for source, _ in pairs])
        targets = self.target.tokenizer.tokenize_many([target for _, target in pairs])

        def score(rows: list[int]) -> list[Translation]:
            source_ids = [self.source.vocabulary.ids(sources[row]) for row in rows]
            target_ids = [self.target.vocabulary.ids(targets[row]) for row in rows]
            scored = self._force(source_ids, target_ids)
            return [
                Translation(
                    pairs[row][1],
                    log_prob / length_penalty(len(targets[row]) + 1, self.config.length_penalty),
                    log_prob,
                    [*sources[row], "</s>"],
                    [*targets[row], "</s>"],
                    weights[: len(targets[row]) + 1, : len(sources[row]) + 1],
                )
                for row, (log_prob, weights) in zip(rows, scored, strict=True)
            ]

        lengths = [
            (len(target), len(source)) for source, target in zip(sources, targets, strict=True)
        ]
        with self._evaluating():
            return self._in_batches(lengths, score)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Without dropout and gradients."""
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.inference_mode():
                yield
        finally:
            self.model.train(was_training)

    def _in_batches(self, lengths: Sequence[tuple[int, ...]], work: Callable) -> list:
        """Do ``work`` on batches of similar length, and put the results back in order."""
        order = sorted(range(len(lengths)), key=lambda row: lengths[row])
        results: list = [None] * len(order)
        size = self.config.batch_size
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        batches.reverse()  # the longest first: they leave no thread waiting at the end
        each = one_thread_each if self.model.device.type == "cpu" else map
        found = each(torch.inference_mode()(work), batches)  # which each thread has for itself
        for rows, of_batch in zip(batches, found, strict=True):
            for row, result in zip(rows, of_batch, strict=True):
                results[row] = result
        return results

    def _search(
        self, sources: list[list[str]], steps_of: Callable[[Memory], Steps], num_best: int
    ) -> list[list[Hypothesis]]:
        """Hypotheses for one batch of tokenised sentences."""
        device = self.model.device
        source, mask = pad_sources([self.source.vocabulary.ids(tokens) for tokens in sources])
        memory, state = self.model.start(source.to(device), mask.to(device))
        start = SearchState(steps_of(memory), state)
        # A function of the sentence alone: what shares its batch must not matter.
        max_lengths = [
            int(self.config.max_length_factor * len(tokens)) + self.config.max_length_extra
            for tokens in sources
        ]
        limits = Limits(BOS, EOS, max_lengths, self.config.length_penalty)
        if self.config.beam_size == 1:
            return [[best] for best in greedy_search(self._step, start, limits, device)]
        return beam_search(self._step, start, limits, self.config.beam_size, num_best, device)

    def _step(self, tokens: Tensor, state: SearchState) -> tuple[Tensor, SearchState, Tensor]:
        logits, state, weights = state.step(tokens)
        log_probs = logits.float().log_softmax(dim=-1)
        for never_written in (PAD, BOS):  # a list of both would be made a tensor at each step
            log_probs[:, never_written] = float("-inf")
        return log_probs, state, weights

    def _force(
        self, sources: list[list[int]], targets: list[list[int]]
    ) -> list[tuple[float, NDArray[np.float32]]]:
        """Log-probability and padded weights (T, S) of each pair of one batch."""
        model, batch = self.model, collate(sources, targets).to(self.model.device)
        start = model.start(batch.source, batch.source_mask)
        features, _, weights = model.decoder.features(batch.target_in, *start)
        real = batch.target_out != PAD
        log_probs = torch.zeros_like(batch.target_out, dtype=torch.float64)
        log_probs[real] = self._log_probs(features[real], batch.target_out[real]).double()
        return list(zip(log_probs.sum(dim=1).tolist(), weights.float().cpu().numpy(), strict=True))

    def _log_probs(self, features: Tensor, ids: Tensor) -> Tensor:
        """Log-probabilities (N,) of ids (N,), by what the output layer reads, (N, O)."""
        found = []
        # All logits at once would be the largest thing in memory.
        for rows, chosen in zip(features.split(POSITIONS), ids.split(POSITIONS), strict=True):
            log_probs = self.model.output_layer(rows).float().log_softmax(dim=-1)
            found.append(log_probs.gather(1, chosen.unsqueeze(1)).squeeze(1))
        return torch.cat(found)

    def _translation(self, source: list[str], hypothesis: Hypothesis) -> Translation:
        """A hypothesis as text."""
        # A copy, so that no translation keeps the weights of its whole batch.
        weights = hypothesis.weights[:, : len(source) + 1].float().cpu().numpy().copy()
        tokens = self.target.vocabulary.tokens(hypothesis.tokens)
        written = tokens[:-1]
        if self.config.replace_unknown and source:
            words = weights[:, : len(source)]
            looked = words.argmax(axis=1)
            written = [
                source[looked[i]] if id == UNK and words[i].any() else token
                for i, (id, token) in enumerate(zip(hypothesis.tokens, written, strict=False))
            ]
        text = self.target.tokenizer.detokenize(written)
        return Translation(
            text, hypothesis.score, hypothesis.log_prob, [*source, "</s>"], tokens, weights
        )


def load_translator(
    path: Path, config: DecodingConfig, device: torch.device
) -> tuple[Translator, Checkpoint]:
    """A translator from a checkpoint file alone, and the checkpoint (without its optimiser).

    Raises:
        ValueError, OSError: as ``load_checkpoint``; or it holds no model. Names the file.
    """
    checkpoint = load_checkpoint(path, parts=("model", "tokenizer"))
    source, target = sides_of(checkpoint)
    sizes = len(source.vocabulary), len(target.vocabulary)
    model = build_stored_model(checkpoint, sizes)
    return Translator(model.to(device).eval(), source, target, config), checkpoint
