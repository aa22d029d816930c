"""Build an attention from the settings ``model.attention.*``."""

from seq2seq.attention.distribution import MODES, Distribution
from seq2seq.attention.pooling import Attention, MultiHeadAttention, NoAttention
from seq2seq.attention.scoring import SCORES, Score
from seq2seq.config.model import AttentionConfig

AnyAttention = Attention | MultiHeadAttention | NoAttention


def build_attention(config: AttentionConfig, query_size: int, value_size: int) -> AnyAttention:
    """Build the attention that ``model.attention.*`` describes.

    Args:
        config: the settings.
        query_size: units of the decoder state, H.
        value_size: units of an encoder output, C.

    Raises:
        ValueError: a name is unknown, or the settings do not go together.
    """
    score, mode = SCORES.get_entry(config.name), MODES.get_entry(config.mode)
    _check_combination(config, score, mode)
    if score is None:
        return NoAttention()
    distribution = mode.from_config(config, query_size)
    if config.heads > 1:
        head_size = value_size // config.heads
        scores = [score.from_config(config, head_size, head_size) for _ in range(config.heads)]
        return MultiHeadAttention(scores, query_size, value_size, distribution)
    if score.compares_units and query_size != value_size:
        raise ValueError(
            f"model.attention.name={config.name} compares decoder state and encoder output unit by "
            f"unit, so model.decoder_size={query_size} must equal 2 * model.encoder_size="
            f"{value_size}; bilinear works with any sizes."
        )
    single = score.from_config(config, query_size, value_size)
    return Attention(
        single, distribution, single.projected_size(value_size) if config.coverage else None
    )


def _check_combination(
    config: AttentionConfig, score: type[Score] | None, mode: type[Distribution]
) -> None:
    """Refuse combinations that would ignore a setting."""
    defaults = AttentionConfig()
    changed = [
        f"model.attention.{key}={str(getattr(config, key)).lower()}"
        for key in ("mode", "normalization", "heads", "coverage")
        if getattr(config, key) != getattr(defaults, key)
    ]
    if score is None and changed:
        raise ValueError(
            f"model.attention.name={config.name} computes no weights: leave out "
            f"{', '.join(changed)}."
        )
    if config.coverage and (config.heads > 1 or not (score and score.sees_keys)):
        raise ValueError(
            f"model.attention.coverage=true needs one head and a scoring function that sees keys, "
            f"not model.attention.name={config.name}, model.attention.heads={config.heads}."
        )
    if config.normalization != "softmax" and not mode.uses_normalization:
        raise ValueError(
            f"model.attention.normalization={config.normalization} has no effect with "
            f"model.attention.mode={config.mode}; leave it at softmax."
        )
