"""Deep output: state, previous word and context become logits over the vocabulary."""

import torch
from torch import Tensor, nn

from seq2seq.model.dropout import Dropout


class DeepOutput(nn.Module):
    """Deep output (Bahdanau et al. 2015, arXiv:1409.0473, appendix A.2.2; Pascanu et al. 2014).

        t_i = f(U_o s + V_o E y_{i-1} + C_o c_i)        (O units)
        logits_i = W_o t_i + b_o

    ``f`` is ``maxout`` over pairs of units, as in the paper, or ``tanh``, as in Luong et al. 2015.
    The paper writes ``s_{i-1}`` for ``s``; which state comes in is the decoder's choice.
    """

    def __init__(
        self,
        input_sizes: tuple[int, int, int],
        output_size: int,
        vocabulary_size: int,
        activation: str,
        dropout: float,
    ):
        """``input_sizes``: units of the state, the embedding and the context."""
        super().__init__()
        self.input_sizes = input_sizes
        width = output_size * (2 if activation == "maxout" else 1)
        self.hidden_layer = nn.Linear(sum(input_sizes), width)
        self.logits_layer = nn.Linear(output_size, vocabulary_size)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, state: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """(..., H), (..., E), (..., C) -> logits (..., V)."""
        return self.logits_layer(self.features(state, embedded, context))

    def features(self, state: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """``t_i``, all but the last layer: (..., H), (..., E), (..., C) -> (..., O)."""
        hidden = self.hidden_layer(torch.cat([state, embedded, context], dim=-1))
        return self.dropout(self.activate(hidden))

    def activate(self, hidden: Tensor) -> Tensor:
        """``f``: (..., O), or of maxout (..., 2 * O), -> (..., O)."""
        if self.activation == "maxout":
            return hidden.unflatten(-1, (-1, 2)).amax(dim=-1)
        return torch.tanh(hidden)

    def weights(self) -> tuple[Tensor, ...]:
        """``U_o``, ``V_o`` and ``C_o``, which lie side by side in ``hidden_layer``."""
        return self.hidden_layer.weight.split(self.input_sizes, dim=1)
