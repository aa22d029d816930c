"""Deep output layer: decoder state, previous token and context to logits over the vocabulary."""

import torch
from torch import Tensor, nn

from seq2seq.model.dropout import Dropout


class DeepOutput(nn.Module):
    """Deep output (Bahdanau et al. 2015, arXiv:1409.0473, appendix A.2.2; Pascanu et al. 2014).

        t_i = f(U_o s + V_o E y_{i-1} + C_o c_i)        (O units)
        logits_i = W_o t_i + b_o

    ``f`` is ``maxout`` over pairs of units, as in the paper, or ``tanh``, as in Luong et al. 2015.
    The paper uses ``s_{i-1}`` for ``s``; the decoder chooses which state it passes.

    Args:
        state_size: units of a decoder state, H.
        embedding_size: units of a token embedding, E.
        context_size: units of a context, C.
        size: units of the last hidden layer, O.
        vocabulary_size: number of logits, V.
        activation: ``maxout`` or ``tanh``.
        dropout: probability that a unit of ``t_i`` is zeroed.
    """

    def __init__(
        self,
        *,
        state_size: int,
        embedding_size: int,
        context_size: int,
        size: int,
        vocabulary_size: int,
        activation: str,
        dropout: float,
    ):
        super().__init__()
        self.input_sizes = state_size, embedding_size, context_size
        width = size * (2 if activation == "maxout" else 1)
        self.hidden_layer = nn.Linear(sum(self.input_sizes), width)
        self.logits_layer = nn.Linear(size, vocabulary_size)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, state: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """Compute logits: (..., H), (..., E), (..., C) -> (..., V)."""
        return self.logits_layer(self.features(state, embedded, context))

    def features(self, state: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """Compute ``t_i``, which the last layer reads: (..., H), (..., E), (..., C) -> (..., O)."""
        hidden = self.hidden_layer(torch.cat([state, embedded, context], dim=-1))
        return self.dropout(self.activate(hidden))

    def activate(self, hidden: Tensor) -> Tensor:
        """Apply ``f``: (..., O), or (..., 2 * O) for maxout, -> (..., O)."""
        if self.activation == "maxout":
            return hidden.unflatten(-1, (-1, 2)).amax(dim=-1)
        return torch.tanh(hidden)

    def split_weight(self) -> tuple[Tensor, ...]:
        """Return ``U_o``, ``V_o`` and ``C_o``, the column blocks of ``hidden_layer.weight``."""
        return self.hidden_layer.weight.split(self.input_sizes, dim=1)
