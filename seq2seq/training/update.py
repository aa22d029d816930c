"""The gradient of one update."""

from collections.abc import Sequence

from seq2seq.data.batching import Batch
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.precision import Precision
from seq2seq.training.loss import chunked_cross_entropy, count_tokens


def accumulate(
    model: EncoderDecoder, batches: Sequence[Batch], smoothing: float, precision: Precision
) -> tuple[float, int]:
    """Add the gradient of the mean loss over the tokens of all batches, so that four small ones
    equal a large one.

    Returns:
        Their summed negative log-likelihood, in nats, and their target tokens, EOS included.
        ``precision.scaler`` has scaled the gradient; nothing else has.
    """
    num_tokens = sum(count_tokens(batch.target_out) for batch in batches)
    nll = 0.0
    for batch in batches:
        with precision.autocast():
            features = model.features(batch.source, batch.source_mask, batch.target_in)
            loss = chunked_cross_entropy(features, model.output_layer, batch.target_out, smoothing)
        precision.scaler.scale(loss.objective / num_tokens).backward()
        nll += loss.nll.item()
    return nll, num_tokens
