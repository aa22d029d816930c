"""Settings of a model. ``conf/`` only gives values."""

from dataclasses import dataclass

from seq2seq.config.schema import group, setting


@dataclass
class AttentionConfig:
    name: str = setting(
        "additive",
        "scoring function; with none, there is no attention and all target positions have the same "
        "context",
        decides="parameters",
    )
    size: int = setting(
        256,
        "units of the hidden layer, if the scoring function or the mode has one",
        decides="parameters",
        at_least=1,
    )
    mode: str = setting(
        "soft",
        "source positions that get weights: all (soft), a window around the diagonal (local_m) or "
        "around a predicted position (local_p), one position, sampled during training (hard), or "
        "the position at which a scan from left to right stops (monotonic)",
        decides="parameters",
    )
    normalization: str = setting(
        "softmax",
        "function that turns energies into weights, in the modes soft, local_m and local_p",
        decides="parameters",
    )
    heads: int = setting(1, "attention heads", decides="parameters", at_least=1)
    coverage: bool = setting(
        False, "add a coverage term, the sum of earlier weights, to the score", decides="parameters"
    )
    window: int = setting(
        10,
        "positions on either side of the center (local attention)",
        decides="parameters",
        at_least=1,
    )
    temperature: float = setting(
        1.0, "Gumbel-softmax temperature (hard attention)", decides="parameters", above=0
    )
    noise: float = setting(
        1.0,
        "standard deviation of the noise added to energies in training (monotonic attention)",
        decides="parameters",
        at_least=0,
    )
    max_positions: int = setting(
        100,
        "source positions that location scoring distinguishes",
        decides="parameters",
        at_least=1,
    )


@dataclass
class OutputConfig:
    activation: str = setting(
        "maxout",
        "activation of the deep-output layer",
        decides="parameters",
        choices=("maxout", "tanh"),
    )
    size: int = setting(256, "units of the deep-output layer", decides="parameters", at_least=1)
    state: str = setting(
        "current",
        "decoder state that the deep-output layer reads; the paper uses previous",
        decides="parameters",
        choices=("current", "previous"),
    )


@dataclass
class ModelConfig:
    cell: str = setting(
        "gru",
        "recurrent cell; paper_gru applies the reset gate before the product",
        decides="parameters",
    )
    embedding_size: int = setting(
        256, "units of a word embedding", decides="parameters", at_least=1
    )
    encoder_size: int = setting(
        256, "units of an encoder layer in each direction", decides="parameters", at_least=1
    )
    encoder_layers: int = setting(1, "encoder layers", decides="parameters", at_least=1)
    decoder_size: int = setting(512, "units of the decoder state", decides="parameters", at_least=1)
    dropout: float = setting(
        0.2, "probability that a unit is zeroed", decides="parameters", at_least=0, at_most=0.99
    )
    tie_embeddings: str = setting(
        "none",
        "share the matrix of the output layer with the target embedding (target), or with both "
        "embeddings (all)",
        decides="parameters",
        choices=("none", "target", "all"),
    )
    initialization: str = setting(
        "uniform",
        "scheme for the initial values of parameters",
        decides="parameters",
    )
    attention: AttentionConfig = group(AttentionConfig, comparable=True)
    output: OutputConfig = group(OutputConfig)

    def check(self) -> None:
        if self.tie_embeddings != "none" and self.output.size != self.embedding_size:
            raise ValueError(
                f"model.tie_embeddings={self.tie_embeddings} shares a matrix between embedding "
                f"and output, so model.output.size={self.output.size} must equal "
                f"model.embedding_size={self.embedding_size}."
            )
