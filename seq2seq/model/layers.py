"""Bidirectional recurrent layers: what an encoder reads a sentence with."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seq2seq.model.cells import PaperGRUCell, RecurrentState


class LibraryLayers(nn.Module):
    """Bidirectional GRU or LSTM layers, by torch's own kernels."""

    def __init__(
        self,
        kind: type[nn.GRU] | type[nn.LSTM],
        input_size: int,
        hidden_size: int,
        num_layers: int,
        dropout: float,
    ):
        super().__init__()
        # torch warns of a dropout between layers where there is only one.
        between = dropout if num_layers > 1 else 0.0
        self.rnn = kind(
            input_size,
            hidden_size,
            num_layers,
            batch_first=True,
            dropout=between,
            bidirectional=True,
        )

    def forward(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, E) -> annotations (B, S, C) and the backward direction's last state."""
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


class PaperGRULayers(nn.Module):
    """Bidirectional layers of the paper's GRU, which no library kernel computes."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int, dropout: float):
        super().__init__()
        sizes = [input_size] + [2 * hidden_size] * (num_layers - 1)
        self.input_layers = nn.ModuleList(
            nn.Linear(size, PaperGRUCell.num_gates * hidden_size) for size in sizes for _ in "fb"
        )
        self.cells = nn.ModuleList(PaperGRUCell(hidden_size) for _ in self.input_layers)
        self.dropout = nn.Dropout(dropout)
        self.hidden_size = hidden_size

    def _read(self, direction: int, inputs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """One layer in one direction (odd: from the last position to the first)."""
        gates = self.input_layers[direction](inputs)
        state = RecurrentState(inputs.new_zeros(inputs.shape[0], self.hidden_size))
        positions = range(inputs.shape[1])
        states: list[Tensor] = [state.hidden] * inputs.shape[1]
        for j in reversed(positions) if direction % 2 else positions:
            there = mask[:, j, None]
            new = self.cells[direction](gates[:, j], state).hidden
            state = RecurrentState(torch.where(there, new, state.hidden))
            states[j] = torch.where(there, new, 0.0)
        return torch.stack(states, dim=1), state.hidden

    def forward(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, E) -> annotations (B, S, C) and the backward direction's last state."""
        outputs, final = embedded, embedded
        for layer in range(0, len(self.cells), 2):
            inputs = self.dropout(outputs) if layer else outputs
            forward, _ = self._read(layer, inputs, mask)
            backward, final = self._read(layer + 1, inputs, mask)
            outputs = torch.cat([forward, backward], dim=-1)
        return outputs, final


def build_layers(
    cell: str, input_size: int, hidden_size: int, num_layers: int, dropout: float
) -> LibraryLayers | PaperGRULayers:
    """The recurrent layers that ``model.cell`` asks for."""
    if cell == "paper_gru":
        return PaperGRULayers(input_size, hidden_size, num_layers, dropout)
    kind = {"gru": nn.GRU, "lstm": nn.LSTM}[cell]
    return LibraryLayers(kind, input_size, hidden_size, num_layers, dropout)
