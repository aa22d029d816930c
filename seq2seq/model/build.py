"""Builds and initializes the model that the settings ``model.*`` describe."""

from collections.abc import Callable
from enum import Enum, auto

from torch import Tensor, nn

from seq2seq.attention.build import build_attention
from seq2seq.attention.scoring import Score
from seq2seq.config.model import ModelConfig
from seq2seq.config.registry import Registry
from seq2seq.model.cells import CELLS, RecurrentCell
from seq2seq.model.decoder import Decoder
from seq2seq.model.encoder import CellLayers, Encoder, Layers, LibraryLayers
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.output import DeepOutput


class Role(Enum):
    """Use of a parameter, which decides its initial values."""

    VECTOR = auto()  # biases and other parameters of fewer than two dimensions
    RECURRENT = auto()  # matrices of a recurrent cell, the gates stacked
    EMBEDDING = auto()
    ENERGY = auto()  # v_a: from the hidden layer of a scoring function to an energy
    SCORE = auto()  # other matrices of a scoring function
    MATRIX = auto()  # every other matrix


def parameter_roles(model: nn.Module) -> dict[Tensor, Role]:
    """Return the role of every parameter, in the order of ``model.parameters()``."""
    roles: dict[Tensor, Role] = dict.fromkeys(model.parameters(), Role.MATRIX)
    for module in model.modules():
        match module:
            case nn.Embedding():
                roles[module.weight] = Role.EMBEDDING
            case RecurrentCell():
                roles.update(dict.fromkeys(module.parameters(), Role.RECURRENT))
            case nn.RNNBase():
                for name, parameter in module.named_parameters():
                    if name.startswith("weight_hh"):
                        roles[parameter] = Role.RECURRENT
            case Score():
                roles.update(dict.fromkeys(module.parameters(), Role.SCORE))
                if isinstance(energy_layer := getattr(module, "energy_layer", None), nn.Linear):
                    roles[energy_layer.weight] = Role.ENERGY
    roles.update({parameter: Role.VECTOR for parameter in roles if parameter.dim() < 2})
    return roles


def _uniform(parameter: Tensor, role: Role) -> None:
    nn.init.uniform_(parameter, -0.1, 0.1)


def _paper(parameter: Tensor, role: Role) -> None:
    match role:
        case Role.VECTOR | Role.ENERGY:
            nn.init.zeros_(parameter)
        case Role.RECURRENT:
            _orthogonal_gates(parameter)
        case Role.SCORE:
            nn.init.normal_(parameter, std=0.001)
        case Role.EMBEDDING | Role.MATRIX:
            nn.init.normal_(parameter, std=0.01)


def _xavier(parameter: Tensor, role: Role) -> None:
    match role:
        case Role.VECTOR:
            nn.init.zeros_(parameter)
        case Role.RECURRENT:
            _orthogonal_gates(parameter)
        case Role.EMBEDDING:
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
        case Role.ENERGY | Role.SCORE | Role.MATRIX:
            nn.init.xavier_uniform_(parameter)


def _orthogonal_gates(parameter: Tensor) -> None:
    """Make the square matrix of each gate orthogonal."""
    for gate in parameter.data.split(parameter.shape[1]):
        nn.init.orthogonal_(gate)


INITIALIZATIONS: Registry[Callable[[Tensor, Role], None]] = Registry(
    "model.initialization", {"uniform": _uniform, "paper": _paper, "xavier": _xavier}
)


def initialize(model: nn.Module, scheme: str) -> None:
    """Set every parameter in place.

    Args:
        model: the model.
        scheme: ``uniform``: all parameters from U(-0.1, 0.1), as GroundHog's successors and Luong
            et al. 2015. ``paper``: Bahdanau et al. 2015, appendix B.1: recurrent matrices
            orthogonal, W_a and U_a from N(0, 0.001^2), v_a and biases 0, the others from
            N(0, 0.01^2). ``xavier``: matrices Glorot-uniform, recurrent ones orthogonal,
            embeddings N(0, 1 / E), biases 0.

    Raises:
        ValueError: the scheme is unknown.
    """
    set_parameter = INITIALIZATIONS.get_entry(scheme)
    for parameter, role in parameter_roles(model).items():
        set_parameter(parameter, role)


def build_layers(
    cell: type[RecurrentCell], input_size: int, hidden_size: int, num_layers: int, dropout: float
) -> Layers:
    """Build the encoder layers of a cell, with torch's kernels where torch has some."""
    kind = CellLayers if cell.library is None else LibraryLayers
    return kind(cell, input_size, hidden_size, num_layers, dropout)


def build_model(
    config: ModelConfig, source_vocabulary_size: int, target_vocabulary_size: int
) -> EncoderDecoder:
    """Build and initialize a model.

    Raises:
        ValueError: a setting has an unknown value, or two settings contradict each other.
    """
    cell = CELLS.get_entry(config.cell)
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
        cell, config.embedding_size, config.encoder_size, config.encoder_layers, config.dropout
    )
    output = DeepOutput(
        state_size=config.decoder_size,
        embedding_size=config.embedding_size,
        context_size=annotation_size,
        size=config.output.size,
        vocabulary_size=target_vocabulary_size,
        activation=config.output.activation,
        dropout=config.dropout,
    )
    decoder = Decoder(
        target_embedding,
        cell(config.decoder_size),
        build_attention(config.attention, config.decoder_size, annotation_size),
        output,
        annotation_size=annotation_size,
        final_size=config.encoder_size,
        dropout=config.dropout,
        output_state=config.output.state,
    )
    if config.tie_embeddings != "none":
        output.logits_layer.weight = target_embedding.weight
    model = EncoderDecoder(Encoder(source_embedding, layers, config.dropout), decoder)
    initialize(model, config.initialization)
    return model
