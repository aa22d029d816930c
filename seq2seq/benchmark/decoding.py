"""Benchmark of greedy and beam search."""

from collections.abc import Callable
from typing import Any

import torch

from seq2seq.benchmark.timing import Clock, interleave, spread
from seq2seq.benchmark.workload import BATCH_SIZE, VOCABULARY_SIZES, draw_pairs
from seq2seq.config.model import ModelConfig
from seq2seq.config.scripts import BenchmarkConfig
from seq2seq.config.training import DecodingConfig
from seq2seq.data.codec import Codec
from seq2seq.data.tokenizer import build_tokenizer
from seq2seq.data.vocabulary import EOS, SPECIALS, Vocabulary
from seq2seq.fast.accelerate import accelerate
from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.randomness import seed_everything
from seq2seq.search.translator import Translator

SEARCHES = {"greedy": 1, "beam 5": 5}


def build_endless_model(config: ModelConfig, seed: int) -> EncoderDecoder:
    """Build an untrained model that never ends a sentence before its limit.

    Otherwise the cost would depend on when an untrained model happens to end. This one extends the
    whole beam to the limit of every sentence; a trained model finishes some hypotheses earlier.
    """
    seed_everything(seed)
    model = accelerate(build_model(config, *VOCABULARY_SIZES))
    with torch.no_grad():
        model.output_layer.bias[EOS] = -1e4
    return model.eval()


def numbered_codec(size: int) -> Codec:
    """Build a codec whose words are the decimal numbers of their ids."""
    words = [str(number) for number in range(len(SPECIALS), size)]
    return Codec(build_tokenizer("whitespace", "en"), Vocabulary([*SPECIALS, *words]))


def measure_decoding(config: BenchmarkConfig, device: torch.device) -> dict[str, Any]:
    """Measure the sentences per second of ``Translator.translate``, from text to text."""
    model = build_endless_model(config.model, config.seed).to(device)
    source, target = (numbered_codec(size) for size in VOCABULARY_SIZES)
    texts = [" ".join(map(str, ids)) for ids, _ in draw_pairs(config.sentences, config.seed)]

    def task(beam_size: int) -> Callable[[], float]:
        decoding = DecodingConfig(
            beam_size=beam_size, batch_size=BATCH_SIZE, max_length_factor=1.0, max_length_extra=1
        )
        translator = Translator(model, source, target, decoding)

        def translate() -> float:
            clock = Clock(device)
            translator.translate(texts)
            clock.lap("translate")
            return len(texts) / clock.total

        return translate

    found = interleave({name: task(size) for name, size in SEARCHES.items()}, config.repeats)
    return {name: {"sentences_per_second": spread(rates)} for name, rates in found.items()}
