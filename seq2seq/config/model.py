"""Settings of a model. ``conf/`` only gives values."""

from dataclasses import dataclass

from seq2seq.config.schema import group, setting


@dataclass
class AttentionConfig:
    name: str = setting(
        "additive",
        "scoring function; none: no attention, one context for all positions",
        decides="parameters",
        choices=(
            "additive",
            "normed_additive",
            "concat",
            "dot",
            "scaled_dot",
            "bilinear",
            "cosine",
            "gaussian",
            "location",
            "average",
            "none",
        ),
    )
    size: int = setting(
        256, "units of a hidden layer, where there is one", decides="parameters", at_least=1
    )
    weighing: str = setting(
        "soft",
        "which source positions get weights: all, a window around the diagonal (local_m) or around "
        "a predicted position (local_p), one drawn at random (hard), the next one that stops a "
        "search from left to right (monotonic)",
        decides="parameters",
        choices=("soft", "local_m", "local_p", "hard", "monotonic"),
    )
    normalisation: str = setting(
        "softmax",
        "how energies become weights, of soft and local attention",
        decides="parameters",
        choices=("softmax", "sparsemax", "entmax15"),
    )
    heads: int = setting(1, "attentions side by side", decides="parameters", at_least=1)
    coverage: bool = setting(
        False, "let the sum of the weights given so far enter the score", decides="parameters"
    )
    window: int = setting(
        10, "of local attention: positions to either side", decides="parameters", at_least=1
    )
    temperature: float = setting(1.0, "of hard attention's gradient", decides="parameters", above=0)
    noise: float = setting(
        1.0, "added to monotonic attention's energies in training", decides="parameters", at_least=0
    )
    max_positions: int = setting(
        100, "source positions that location can tell apart", decides="parameters", at_least=1
    )

    def check(self) -> None:
        blind = self.name in ("location", "average", "none")
        if self.name == "none" and (self.weighing, self.normalisation) != ("soft", "softmax"):
            raise ValueError(
                f"model.attention.name=none weighs nothing: leave out model.attention.weighing="
                f"{self.weighing}, model.attention.normalisation={self.normalisation}."
            )
        if self.coverage and (blind or self.heads > 1):
            raise ValueError(
                f"model.attention.coverage=true needs one head and a scoring function that reads "
                f"keys, not model.attention.name={self.name}, model.attention.heads={self.heads}."
            )
        if self.heads > 1 and (self.name == "none" or self.weighing not in ("soft", "hard")):
            raise ValueError(
                f"model.attention.heads={self.heads} goes with model.attention.weighing=soft or "
                f"hard and some attention, not with weighing={self.weighing}, name={self.name}."
            )
        if self.normalisation != "softmax" and self.weighing in ("hard", "monotonic"):
            raise ValueError(
                f"model.attention.normalisation={self.normalisation} has no meaning with "
                f"model.attention.weighing={self.weighing}; leave it at softmax."
            )


@dataclass
class OutputConfig:
    activation: str = setting(
        "maxout", "of the deep output", decides="parameters", choices=("maxout", "tanh")
    )
    size: int = setting(256, "units of the deep output", decides="parameters", at_least=1)
    state: str = setting(
        "current",
        "decoder state that it reads; the paper: previous",
        decides="parameters",
        choices=("current", "previous"),
    )


@dataclass
class ModelConfig:
    cell: str = setting(
        "gru",
        "recurrent cell, encoder and decoder; paper_gru applies the reset gate before the product",
        decides="parameters",
        choices=("gru", "lstm", "paper_gru"),
    )
    embedding_size: int = setting(
        256, "units of a word embedding", decides="parameters", at_least=1
    )
    encoder_size: int = setting(
        256, "units of an encoder layer, in each direction", decides="parameters", at_least=1
    )
    encoder_layers: int = setting(1, "encoder layers", decides="parameters", at_least=1)
    decoder_size: int = setting(512, "units of the decoder state", decides="parameters", at_least=1)
    dropout: float = setting(
        0.2, "probability that a unit is zeroed", decides="parameters", at_least=0, at_most=0.99
    )
    tie_embeddings: str = setting(
        "none",
        "share the output layer with the target embedding "
        "(target), and both with the source embedding (all)",
        decides="parameters",
        choices=("none", "target", "all"),
    )
    initialization: str = setting(
        "uniform",
        "how parameters are initialized",
        decides="parameters",
        choices=("uniform", "paper", "xavier"),
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
        attention, annotation_size = self.attention, 2 * self.encoder_size
        same = ("dot", "scaled_dot", "cosine", "gaussian")
        if attention.heads > 1:
            if annotation_size % attention.heads:
                raise ValueError(
                    f"model.attention.heads={attention.heads} must divide 2 * "
                    f"model.encoder_size={annotation_size}."
                )
        elif attention.name in same and self.decoder_size != annotation_size:
            raise ValueError(
                f"model.attention.name={attention.name} compares state and annotation unit by "
                f"unit, so model.decoder_size={self.decoder_size} must equal 2 * "
                f"model.encoder_size={annotation_size}; bilinear needs no such equality."
            )
