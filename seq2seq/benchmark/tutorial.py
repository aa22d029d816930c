"""An update as tutorials on attention write it: the same model, at a higher cost.

All computations run within the loop over the target positions: every step projects the keys again,
computes the tokens' part of the gates and runs the output layer, and all logits are kept.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.benchmark.timing import Clock
from seq2seq.benchmark.updates import PlainUpdate
from seq2seq.config.model import ModelConfig
from seq2seq.data.batching import Batch
from seq2seq.data.vocabulary import PAD
from seq2seq.model.decoder import Decoder, DecoderState
from seq2seq.model.dropout import Dropout
from seq2seq.model.encoder import EncoderOutput


class TutorialUpdate(PlainUpdate):
    """Uses autograd, plain cross-entropy, and the dropout and Adam of torch."""

    meaning = "as the tutorials do it"

    def __init__(self, config: ModelConfig, device: torch.device, seed: int):
        super().__init__(config, device, seed)
        use_library_dropout(self.model)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def loss(self, batch: Batch, clock: Clock) -> Tensor:
        encoded = self.model.encoder(batch.source, batch.source_mask)
        clock.lap("encoder")
        logits = decode(self.model.decoder, batch.target_in, encoded)
        clock.lap("decoder")
        loss = F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD)
        clock.lap("loss")
        return loss


def use_library_dropout(model: nn.Module) -> None:
    """Replace our dropout with the slower one of torch."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, Dropout):
                setattr(module, name, nn.Dropout(child.p))


def decode(decoder: Decoder, target_in: Tensor, encoded: EncoderOutput) -> Tensor:
    """Compute the logits (B, T, V) of ``target_in`` (B, T), as ``decoder.forward``."""
    state, logits = decoder.initial_state(encoded), []
    for tokens in target_in.unbind(dim=1):
        embedded = decoder.dropout(decoder.embedding(tokens))
        keys = decoder.attention.project(encoded.annotations)
        context, weights = decoder.attention(
            state.hidden, keys, encoded.annotations, encoded.mask, state.history
        )
        gates = decoder.input_layer(embedded) + decoder.context_layer(context)
        recurrent = decoder.cell(gates, state.recurrent)
        history = None if state.history is None else state.history.append(weights)
        read = state.hidden if decoder.output_state == "previous" else recurrent.hidden
        logits.append(decoder.output(read, embedded, context))
        state = DecoderState(recurrent, history)
    return torch.stack(logits, dim=1)
