"""Puts the fast implementations into a model."""

from seq2seq.fast import decoder, encoder, search
from seq2seq.model.encoder_decoder import EncoderDecoder


def accelerate(model: EncoderDecoder) -> EncoderDecoder:
    """Replace the parts of a plain model that have a fast implementation, in place.

    The accelerated model computes the same functions of the same parameters. Parts that are not
    supported stay plain: other attentions than soft additive attention, and cells of plug-ins.
    """
    if encoder.is_supported(model.encoder):
        model.encoder.read = encoder.read
    if decoder.is_supported(model.decoder):
        model.decoder.unroll = decoder.unroll
        model.decoder.make_step = search.make_fast_step
    return model
