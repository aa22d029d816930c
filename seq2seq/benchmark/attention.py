"""Benchmark of additive attention alone, forward and backward, for several sizes."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from seq2seq.benchmark.memory import peak_memory
from seq2seq.benchmark.timing import Clock, interleave, spread
from seq2seq.benchmark.workload import BATCH_SIZE
from seq2seq.config.model import AttentionConfig, ModelConfig, OutputConfig
from seq2seq.config.scripts import BenchmarkConfig
from seq2seq.data.vocabulary import BOS
from seq2seq.fast.accelerate import accelerate
from seq2seq.model.build import build_model
from seq2seq.model.cells import RecurrentState
from seq2seq.model.decoder import DecoderState, Memory

STATE_SIZE = 8


class Size(NamedTuple):
    """Sizes of one measurement, by the letters of ``seq2seq``."""

    source: int  # S
    target: int  # T
    attention: int  # A
    annotation: int  # C


def grid(config: BenchmarkConfig) -> list[Size]:
    """Return a first size, and others that differ from it in S, T or A alone."""
    model, shortest = config.model, config.lengths[0]
    base = Size(shortest, shortest, model.attention.size, 2 * model.encoder_size)
    others = [base._replace(source=length) for length in config.lengths[1:]]
    others += [base._replace(target=length) for length in config.lengths[1:]]
    others += [base._replace(attention=size) for size in (base.attention // 2, 2 * base.attention)]
    return [base, *(size for size in others if size.attention)]


def build_attention_step(size: Size, is_fast: bool, device: torch.device) -> Callable[[], float]:
    """Build a function that runs a decoder forward and backward, and returns the seconds.

    Embeddings, states and outputs have ``STATE_SIZE`` units, so that nearly all of the time is that
    of the attention. With ``is_fast`` the decoder is accelerated.
    """
    small = ModelConfig(
        embedding_size=STATE_SIZE,
        encoder_size=size.annotation // 2,
        decoder_size=STATE_SIZE,
        dropout=0.0,
        attention=AttentionConfig(size=size.attention),
        output=OutputConfig(size=STATE_SIZE),
    )
    model = build_model(small, BOS + 2, BOS + 2)
    decoder = (accelerate(model) if is_fast else model).decoder.to(device)
    annotations = torch.randn(BATCH_SIZE, size.source, size.annotation, device=device)
    annotations.requires_grad_()
    mask = torch.ones(BATCH_SIZE, size.source, dtype=torch.bool, device=device)
    state = DecoderState(RecurrentState(torch.zeros(BATCH_SIZE, STATE_SIZE, device=device)), None)
    target_in = torch.full((BATCH_SIZE, size.target), BOS, device=device)

    def step() -> float:
        clock = Clock(device)
        memory = Memory(annotations, decoder.attention.project(annotations), mask)
        features, _, _ = decoder.features(target_in, memory, state)
        features.sum().backward()
        decoder.zero_grad()
        annotations.grad = None
        clock.lap("attention")
        return clock.total

    return step


def attend_once(size: Size, is_fast: bool, device: torch.device) -> None:
    """Run one step in a process whose memory is measured."""
    build_attention_step(size, is_fast, device)()


def measure_attention(config: BenchmarkConfig, device: torch.device) -> list[dict[str, Any]]:
    """Measure the seconds, and with the part ``memory`` the memory, of each size."""
    ways = {"plain": False, "fast": True}
    tasks = {
        (size, way): build_attention_step(size, is_fast, device)
        for size in grid(config)
        for way, is_fast in ways.items()
    }
    found = interleave(tasks, config.repeats)
    rows = []
    for size in grid(config):
        row: dict[str, Any] = {"size": size._asdict()}
        for way, is_fast in ways.items():
            row[way] = {"seconds": spread(found[size, way])}
            if "memory" in config.parts:
                measure = partial(peak_memory, attend_once, threads=config.threads)
                row[way]["memory"] = measure(size, is_fast, device)
        rows.append(row)
    return rows
