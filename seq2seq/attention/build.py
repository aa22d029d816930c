"""From the settings ``model.attention.*`` to an attention."""

from seq2seq.attention.distribution import (
    Hard,
    LocalMonotonic,
    LocalPredictive,
    Monotonic,
    Soft,
    Weighing,
)
from seq2seq.attention.pooling import Attention, MultiHeadAttention, NoAttention
from seq2seq.attention.scoring import SCORES
from seq2seq.config.model import AttentionConfig

AnyAttention = Attention | MultiHeadAttention | NoAttention


def build_weighing(config: AttentionConfig, query_size: int) -> Weighing:
    """The way of weighing that ``model.attention.weighing`` asks for."""
    match config.weighing:
        case "soft":
            return Soft(config.normalisation)
        case "local_m":
            return LocalMonotonic(config.window, config.normalisation)
        case "local_p":
            return LocalPredictive(query_size, config.size, config.window, config.normalisation)
        case "hard":
            return Hard(config.temperature)
        case "monotonic":
            return Monotonic(config.noise)
    raise ValueError(f"model.attention.weighing={config.weighing!r} is unknown.")


def build_attention(config: AttentionConfig, query_size: int, annotation_size: int) -> AnyAttention:
    """The attention that ``model.attention`` describes.

    Raises:
        ValueError: there is no such attention, or its parts do not go together.
    """
    config.check()
    if config.name == "none":
        return NoAttention()
    if config.name not in SCORES:
        raise ValueError(
            f"model.attention.name={config.name!r} is unknown; choose one of "
            f"{sorted([*SCORES, 'none'])}, or add a class to SCORES in seq2seq.attention.scoring."
        )
    kind = SCORES[config.name]
    size = config.max_positions if config.name == "location" else config.size
    weighing = build_weighing(config, query_size)
    if config.heads == 1:
        return Attention(kind(query_size, annotation_size, size), weighing, config.coverage)
    units = annotation_size // config.heads
    scores = [kind(units, units, size) for _ in range(config.heads)]
    return MultiHeadAttention(scores, query_size, annotation_size, weighing)
