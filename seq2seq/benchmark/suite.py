"""Runs all parts of the benchmark."""

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
    """Run the parts of the benchmark that ``config.parts`` names.

    The result can be written as JSON; times are in seconds, memory in bytes.

    Args:
        config: settings of the benchmark.
        folder: for temporary files.

    Raises:
        ValueError: the device or the model does not exist.
    """
    set_threads(config.threads)
    device = select_device(config.device)
    result: dict[str, Any] = {
        "settings": asdict(config),
        "environment": environment(device),
    }
    # ``memory`` is measured with each of the others, ``peak`` with training.
    if {"training", "peak"} & {*config.parts}:
        if "training" in config.parts:
            log.info(
                "training: %d turns of %d updates for each variant", config.repeats, config.updates
            )
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
