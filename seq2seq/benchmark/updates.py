"""Implementations of one update of the parameters, with a clock for its phases.

All classes compute the same function of batch and parameters; so does the one in ``tutorial``.
"""

import torch
from torch import Tensor

from seq2seq.benchmark.timing import Clock
from seq2seq.benchmark.workload import VOCABULARY_SIZES
from seq2seq.config.model import ModelConfig
from seq2seq.config.training import OptimConfig
from seq2seq.data.batching import Batch
from seq2seq.fast.accelerate import accelerate
from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.precision import select_precision
from seq2seq.randomness import seed_everything
from seq2seq.training.loss import chunked_cross_entropy, count_tokens, token_cross_entropy
from seq2seq.training.optim import build_optimizer

PHASES = ("encoder", "decoder", "loss", "backward", "clip", "optimizer")
MAX_NORM = 1.0


class Update:
    """The implementation of the trainer: hand-written derivatives, logits are not stored."""

    meaning = "fast path, float32"
    precision_name = "fp32"

    def __init__(self, config: ModelConfig, device: torch.device, seed: int):
        """Build model and optimizer; all classes start from the same parameters and random state.

        Raises:
            ValueError: the device does not support the precision.
        """
        self.precision = select_precision(self.precision_name, device)
        seed_everything(seed)
        self.model = self.build_model(config).to(device).train()
        self.optimizer = self.build_optimizer()

    def build_model(self, config: ModelConfig) -> EncoderDecoder:
        """Build an accelerated model."""
        return accelerate(build_model(config, *VOCABULARY_SIZES))

    def build_optimizer(self) -> torch.optim.Optimizer:
        """Build fused Adam with a learning rate of 1e-3."""
        return build_optimizer(OptimConfig(), self.model.parameters())

    def loss(self, batch: Batch, clock: Clock) -> Tensor:
        """Return the mean loss per target token in nats, timing encoder, decoder and loss."""
        memory, state = self.model.start(batch.source, batch.source_mask)
        clock.lap("encoder")
        features, _, _ = self.model.decoder.features(batch.target_in, memory, state)
        clock.lap("decoder")
        loss = chunked_cross_entropy(features, self.model.output_layer, batch.target_out)
        mean = loss.objective / count_tokens(batch.target_out)
        clock.lap("loss")
        return mean

    def __call__(self, batch: Batch, clock: Clock) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with self.precision.autocast():
            loss = self.loss(batch, clock)
        loss.backward()
        clock.lap("backward")
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)
        clock.lap("clip")
        self.optimizer.step()
        clock.lap("optimizer")


class LowUpdate(Update):
    """The fast path in bfloat16, which some devices do not support."""

    meaning = "fast path, bfloat16"
    precision_name = "bf16"


class PlainUpdate(Update):
    """The plain model with autograd."""

    meaning = "plain step, autograd"

    def build_model(self, config: ModelConfig) -> EncoderDecoder:
        return build_model(config, *VOCABULARY_SIZES)

    def loss(self, batch: Batch, clock: Clock) -> Tensor:
        memory, state = self.model.start(batch.source, batch.source_mask)
        clock.lap("encoder")
        logits, _, _ = self.model.decoder(batch.target_in, memory, state)
        clock.lap("decoder")
        loss = token_cross_entropy(logits, batch.target_out)
        mean = loss.objective / count_tokens(batch.target_out)
        clock.lap("loss")
        return mean
