"""All parts of a benchmark, one after another."""

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seq2seq.benchmark.attention import measure_attention
from seq2seq.benchmark.decoding import measure_decoding
from seq2seq.benchmark.loading import measure_loading
from seq2seq.benchmark.training import measure_training
from seq2seq.config.scripts import BenchmarkConfig
from seq2seq.device import environment, select_device, set_threads

log = logging.getLogger(__name__)


def run_benchmark(config: BenchmarkConfig, folder: Path) -> dict[str, Any]:
    """Measure the parts that were asked for; JSON-able, all times in seconds, memory in bytes.

    Args:
        config: what to measure.
        folder: for what is written meanwhile.

    Raises:
        ValueError: there is no such device, or no such model.
    """
    set_threads(config.threads)
    device = select_device(config.device)
    result: dict[str, Any] = {
        "settings": asdict(config),
        "environment": environment(device),
    }
    # ``memory`` belongs to each of the others, ``peak`` to the training that is held against it.
    if {"training", "peak"} & {*config.parts}:
        if "training" in config.parts:
            log.info("training: %d turns of %d updates each way", config.repeats, config.updates)
        else:
            log.info("matrix products")
        result["training"] = measure_training(config, device)
    if "attention" in config.parts:
        log.info("attention")
        result["attention"] = measure_attention(config, device)
    if "decoding" in config.parts:
        log.info("decoding: %d sentences", config.sentences)
        result["decoding"] = measure_decoding(config, device)
    if "loading" in config.parts:
        log.info("loading: %d and %d pairs", config.small_pairs, config.large_pairs)
        result["loading"] = measure_loading(config, folder)
    return result
