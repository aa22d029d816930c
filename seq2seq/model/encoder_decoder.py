"""The whole translation model: source ids and previous target ids in, logits out."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from seq2seq.attention.build import build_attention
from seq2seq.config.model import ModelConfig
from seq2seq.fast.search import FastSteps, Layers
from seq2seq.model.cells import CELLS
from seq2seq.model.decoder import Decoder, DecoderState, Memory, PlainSteps
from seq2seq.model.encoder import Encoder
from seq2seq.model.layers import build_layers
from seq2seq.model.output import DeepOutput


class EncoderDecoder(nn.Module):
    """RNNsearch (Bahdanau et al. 2015, arXiv:1409.0473): an encoder, and a decoder that looks."""

    def __init__(self, encoder: Encoder, decoder: Decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return self.encoder.embedding.weight.device

    def start(self, source: Tensor, source_mask: Tensor) -> tuple[Memory, DecoderState]:
        """Read the source: what the decoder may look at, and its first state.

        Args:
            source: ids, (B, S).
            source_mask: True at tokens, (B, S); each row holds at least one.
        """
        encoded = self.encoder(source, source_mask)
        return self.decoder.memory(encoded), self.decoder.initial_state(encoded)

    def forward(
        self, source: Tensor, source_mask: Tensor, target_in: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Teacher forcing.

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
        """``forward`` without the last layer: (B, T, O), what ``output_layer`` reads."""
        return self.decoder.features(target_in, *self.start(source, source_mask))[0]

    def searcher(self, beam_size: int) -> Callable[[Memory], PlainSteps | FastSteps]:
        """What makes, of each batch, the steps of a search by the weights as they are now."""
        if self.decoder.is_fast and not (self.training or torch.is_grad_enabled()):
            return partial(FastSteps.of, Layers.of(self.decoder), beam_size > 1)
        return partial(PlainSteps, self.decoder)

    @property
    def output_layer(self) -> nn.Linear:
        """The last layer, (O) -> logits (V)."""
        return self.decoder.output.logits_layer


def initialise(model: nn.Module, scheme: str) -> None:
    """Set every parameter, in place.

    Args:
        model: the model.
        scheme: ``uniform``: everything from U(-0.1, 0.1), as GroundHog's successors and Luong et
            al. 2015 have it. ``paper``: Bahdanau et al. 2015, appendix B.1: recurrent matrices
            orthogonal, W_a and U_a from N(0, 0.001^2), v_a and biases 0, the rest from
            N(0, 0.01^2). ``xavier``: matrices Glorot-uniform, recurrent ones orthogonal,
            embeddings N(0, 1 / E), biases 0.
    """
    for name, parameter in model.named_parameters():
        if scheme == "uniform":
            nn.init.uniform_(parameter, -0.1, 0.1)
        elif parameter.dim() < 2 or (scheme == "paper" and "energy_layer" in name):
            nn.init.zeros_(parameter)
        elif "weight_hh" in name or "cell" in name:
            # Gates lie one below another: each of their square matrices is a rotation.
            for gate in parameter.data.split(parameter.shape[1]):
                nn.init.orthogonal_(gate)
        elif scheme == "paper":
            nn.init.normal_(parameter, std=0.001 if ".score" in name else 0.01)
        elif "embedding" in name:
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
        else:
            nn.init.xavier_uniform_(parameter)


def build_model(
    config: ModelConfig, source_vocabulary_size: int, target_vocabulary_size: int
) -> EncoderDecoder:
    """The model that ``model.*`` describes, initialised."""
    source_embedding = nn.Embedding(source_vocabulary_size, config.embedding_size)
    target_embedding = nn.Embedding(target_vocabulary_size, config.embedding_size)
    if config.tie_embeddings == "all":
        if source_vocabulary_size != target_vocabulary_size:
            raise ValueError(
                f"model.tie_embeddings=all needs one vocabulary for both languages, not two of "
                f"{source_vocabulary_size} and {target_vocabulary_size}; set "
                f"data.vocabulary.joint=true, or model.tie_embeddings=target."
            )
        target_embedding = source_embedding

    annotation_size = 2 * config.encoder_size
    layers = build_layers(
        config.cell,
        config.embedding_size,
        config.encoder_size,
        config.encoder_layers,
        config.dropout,
    )
    output = DeepOutput(
        (config.decoder_size, config.embedding_size, annotation_size),
        config.output.size,
        target_vocabulary_size,
        config.output.activation,
        config.dropout,
    )
    decoder = Decoder(
        target_embedding,
        CELLS[config.cell](config.decoder_size),
        build_attention(config.attention, config.decoder_size, annotation_size),
        output,
        (config.decoder_size, annotation_size, config.encoder_size),
        config.dropout,
        config.output.state,
    )
    if config.tie_embeddings != "none":
        output.logits_layer.weight = target_embedding.weight
    model = EncoderDecoder(Encoder(source_embedding, layers, config.dropout), decoder)
    initialise(model, config.initialisation)
    return model
