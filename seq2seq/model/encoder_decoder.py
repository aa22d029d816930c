"""The translation model: source ids and previous target ids in, logits out."""

import torch
from torch import Tensor, nn

from seq2seq.model.decoder import Decoder, DecoderState, DecoderStep, Memory
from seq2seq.model.encoder import Encoder


class EncoderDecoder(nn.Module):
    """RNNsearch (Bahdanau et al. 2015, arXiv:1409.0473): an encoder and an attentive decoder."""

    def __init__(self, encoder: Encoder, decoder: Decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.encoder.embedding.weight.device

    @property
    def output_layer(self) -> nn.Linear:
        """The last layer, which turns features (O) into logits (V)."""
        return self.decoder.output.logits_layer

    def start(self, source: Tensor, source_mask: Tensor) -> tuple[Memory, DecoderState]:
        """Encode the source.

        Args:
            source: ids, (B, S).
            source_mask: True at tokens, (B, S); each row has at least one.

        Returns:
            The memory that the decoder reads and its initial state.
        """
        encoded = self.encoder(source, source_mask)
        return self.decoder.memory(encoded), self.decoder.initial_state(encoded)

    def forward(
        self, source: Tensor, source_mask: Tensor, target_in: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute logits with teacher forcing.

        Args:
            source: ids, (B, S).
            source_mask: True at tokens, (B, S).
            target_in: ids that start with BOS, (B, T).

        Returns:
            Logits (B, T, V) and the attention weights (B, T, S).
        """
        memory, state = self.start(source, source_mask)
        logits, _, weights = self.decoder(target_in, memory, state)
        return logits, weights

    def features(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """Run ``forward`` without the last layer: (B, T, O), the input of ``output_layer``."""
        return self.decoder.features(target_in, *self.start(source, source_mask))[0]

    def make_step(self, beam_size: int) -> DecoderStep:
        """Build the step of a search with the current parameters."""
        return self.decoder.make_step(self.decoder, beam_size)
