"""Bidirectional RNN encoder: source ids to one annotation per token."""

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seq2seq.model.cells import RecurrentCell, RecurrentState
from seq2seq.model.dropout import Dropout


class LibraryLayers(nn.Module):
    """Bidirectional recurrent layers computed by torch's own kernels.

    Args:
        cell: a cell that has a ``library`` module.
        input_size: units of an input, E.
        hidden_size: units of each direction, C / 2.
        num_layers: number of layers.
        dropout: probability between layers.
    """

    def __init__(
        self,
        cell: type[RecurrentCell],
        input_size: int,
        hidden_size: int,
        num_layers: int,
        dropout: float,
    ):
        super().__init__()
        assert cell.library is not None
        self.cell = cell
        self.rnn = cell.library(
            input_size,
            hidden_size,
            num_layers,
            batch_first=True,
            # With one layer torch warns that its dropout would have no effect.
            dropout=dropout if num_layers > 1 else 0.0,
            bidirectional=True,
        )

    def forward(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Read embeddings (B, S, E).

        Returns:
            Annotations (B, S, C) and the final state of the backward direction (B, C / 2).
        """
        # Packed, so that no direction reads padding: the backward one would start in it.
        packed = pack_padded_sequence(
            embedded, mask.sum(dim=1).cpu(), batch_first=True, enforce_sorted=False
        )
        outputs, state = self.rnn(packed)
        annotations, _ = pad_packed_sequence(
            outputs, batch_first=True, total_length=embedded.shape[1]
        )
        hidden = state[0] if isinstance(state, tuple) else state
        return annotations, hidden[-1]


class CellLayers(nn.Module):
    """Bidirectional recurrent layers of any ``RecurrentCell``; arguments as ``LibraryLayers``."""

    def __init__(
        self,
        cell: type[RecurrentCell],
        input_size: int,
        hidden_size: int,
        num_layers: int,
        dropout: float,
    ):
        super().__init__()
        self.cell = cell
        sizes = [input_size] + [2 * hidden_size] * (num_layers - 1)
        # Forward and backward direction of the first layer, then of the second, and so on.
        self.input_layers = nn.ModuleList(
            nn.Linear(size, cell.num_gates * hidden_size) for size in sizes for _ in range(2)
        )
        self.cells = nn.ModuleList(cell(hidden_size) for _ in self.input_layers)
        self.dropout = nn.Dropout(dropout)

    def _read(self, direction: int, inputs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Read one layer in one direction; odd directions start at the last position.

        Returns:
            Hidden states (B, S, H), zero at padding, and the final one (B, H).
        """
        cell = cast(RecurrentCell, self.cells[direction])
        gates = self.input_layers[direction](inputs)
        state = cell.initial_state(inputs.new_zeros(inputs.shape[0], cell.state_size))
        positions = range(inputs.shape[1])
        hiddens: list[Tensor] = [state.hidden] * inputs.shape[1]
        for j in reversed(positions) if direction % 2 else positions:
            is_token = mask[:, j, None]
            new = cell(gates[:, j], state)
            hiddens[j] = torch.where(is_token, new.hidden, 0.0)
            state = _where(is_token, new, state)
        return torch.stack(hiddens, dim=1), state.hidden

    def forward(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Read embeddings, as ``LibraryLayers.forward``."""
        outputs, final = embedded, embedded
        for layer in range(0, len(self.cells), 2):
            inputs = self.dropout(outputs) if layer else outputs
            forward, _ = self._read(layer, inputs, mask)
            backward, final = self._read(layer + 1, inputs, mask)
            outputs = torch.cat([forward, backward], dim=-1)
        return outputs, final


def _where(rows: Tensor, new: RecurrentState, old: RecurrentState) -> RecurrentState:
    """Return the new state in some rows (B, 1) and the old one in the others."""
    hidden = torch.where(rows, new.hidden, old.hidden)
    if new.cell is None or old.cell is None:
        return RecurrentState(hidden)
    return RecurrentState(hidden, torch.where(rows, new.cell, old.cell))


Layers = LibraryLayers | CellLayers
ReadFunction = Callable[[Layers, Tensor, Tensor], tuple[Tensor, Tensor]]


def read(layers: Layers, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Call the layers: embeddings (B, S, E) to annotations and final state."""
    return layers(embedded, mask)


class EncoderOutput(NamedTuple):
    """Encoded sentences of a batch."""

    annotations: Tensor  # h_j = [forward; backward], (B, S, C); 0 at padding
    final: Tensor  # state of the backward direction at the first token, (B, C / 2)
    mask: Tensor  # True at tokens, (B, S)


class Encoder(nn.Module):
    """Bidirectional RNN encoder (Bahdanau et al. 2015, arXiv:1409.0473, section 3.2).

        h_j = [forward state at j; backward state at j]

    The annotations of a sentence do not depend on the padding after it.

    Attributes:
        read: runs the layers. It may be replaced by a function with the same results; it is not a
            module, so that the names of the parameters stay.
    """

    def __init__(self, embedding: nn.Embedding, layers: Layers, dropout: float):
        super().__init__()
        self.embedding = embedding
        self.layers = layers
        self.dropout = Dropout(dropout)
        self.read: ReadFunction = read

    def forward(self, source: Tensor, source_mask: Tensor) -> EncoderOutput:
        """Encode a batch of sentences.

        Args:
            source: ids, (B, S).
            source_mask: True at tokens, (B, S); each row has at least one.
        """
        embedded = self.dropout(self.embedding(source))
        annotations, final = self.read(self.layers, embedded, source_mask)
        return EncoderOutput(annotations, final, source_mask)
