"""Scoring functions: measure how well a query matches a key.

A scoring function has two halves. ``project`` depends on the keys only and runs once per sentence.
``forward`` compares queries with the projected keys and runs at every step. Neither keeps state.

Learned scalars (a width, a gain) are stored as logarithms: 0 stands for the usual value, so any
initialization scheme suits them.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.config.model import AttentionConfig
from seq2seq.config.registry import Registry


class Score(nn.Module):
    """Base class of scoring functions."""

    sees_keys = True  # whether the energies depend on the keys
    compares_units = False  # whether queries and keys must have the same number of units

    @classmethod
    def from_config(cls, config: AttentionConfig, query_size: int, key_size: int) -> "Score":
        """Build the scoring function from its settings; by default it has none.

        Args:
            config: the settings ``model.attention.*``.
            query_size: units of a query, H.
            key_size: units of a key before projection, C.
        """
        return cls()

    def projected_size(self, key_size: int) -> int:
        """Return K, the units of a projected key, for keys of ``key_size`` units."""
        return key_size

    def project(self, keys: Tensor) -> Tensor:
        """Compute the half that needs no query: (B, S, C) -> projected keys (B, S, K)."""
        return keys

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Compute energies for one query per sentence or for several.

        Args:
            query: (B, H), or (B, Q, H).
            keys: projected keys, (B, S, K).

        Returns:
            Energies, (B, S), or (B, Q, S).

        Raises:
            ValueError: the scoring function compares units, and their numbers differ.
        """
        if self.compares_units and query.shape[-1] != keys.shape[-1]:
            raise ValueError(
                f"{type(self).__name__} compares unit by unit: queries of {query.shape[-1]} and "
                f"keys of {keys.shape[-1]} units must have the same number."
            )
        if query.dim() == 2:
            return self.energies(query.unsqueeze(1), keys).squeeze(1)
        return self.energies(query, keys)

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        """Compute energies of several queries: (B, Q, H), (B, S, K) -> (B, Q, S)."""
        raise NotImplementedError


class HiddenLayerScore(Score):
    """Base class of scoring functions with a hidden layer of ``hidden_size`` units, A."""

    def __init__(self, query_size: int, key_size: int, hidden_size: int):
        super().__init__()
        self.hidden_size = hidden_size

    @classmethod
    def from_config(cls, config: AttentionConfig, query_size: int, key_size: int) -> "Score":
        return cls(query_size, key_size, config.size)

    def projected_size(self, key_size: int) -> int:
        return self.hidden_size


class AdditiveScore(HiddenLayerScore):
    """Additive scoring (Bahdanau et al. 2015, arXiv:1409.0473, appendix A.1.2).

    e_ij = v . tanh(W s_{i-1} + U h_j)
    """

    def __init__(self, query_size: int, key_size: int, hidden_size: int):
        super().__init__(query_size, key_size, hidden_size)
        self.query_layer = nn.Linear(query_size, hidden_size, bias=False)
        self.key_layer = nn.Linear(key_size, hidden_size, bias=False)
        self.energy_layer = nn.Linear(hidden_size, 1, bias=False)

    def project(self, keys: Tensor) -> Tensor:
        """Compute ``U h_j``: (B, S, C) -> (B, S, A)."""
        return self.key_layer(keys)

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        hidden = torch.tanh(self.query_layer(query).unsqueeze(2) + keys.unsqueeze(1))
        return self.energy_layer(hidden).squeeze(-1)


class NormedAdditiveScore(HiddenLayerScore):
    """Additive scoring with a normalized v (weight normalization: Salimans and Kingma 2016,
    arXiv:1602.07868, equation 2; in attention: Raffel et al. 2017, arXiv:1704.00784, equation 16).

        e_ij = g v / |v| . tanh(W s_{i-1} + U h_j + b)      g = exp(log_gain) / sqrt(A)

    g starts at 1 / sqrt(A), as in Raffel et al.
    """

    def __init__(self, query_size: int, key_size: int, hidden_size: int):
        super().__init__(query_size, key_size, hidden_size)
        self.query_layer = nn.Linear(query_size, hidden_size)
        self.key_layer = nn.Linear(key_size, hidden_size, bias=False)
        self.direction = nn.Parameter(torch.randn(1, hidden_size))
        self.log_gain = nn.Parameter(torch.zeros(()))

    def project(self, keys: Tensor) -> Tensor:
        """Compute ``U h_j``: (B, S, C) -> (B, S, A)."""
        return self.key_layer(keys)

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        hidden = torch.tanh(self.query_layer(query).unsqueeze(2) + keys.unsqueeze(1))
        gain = self.log_gain.exp() / math.sqrt(self.hidden_size)
        return F.linear(hidden, gain * F.normalize(self.direction, dim=-1)).squeeze(-1)


class ConcatScore(HiddenLayerScore):
    """Concatenation (Luong et al. 2015, arXiv:1508.04025, section 3.1).

        e_ij = v . tanh(W [s; h_j])

    The same function as additive scoring, with the matrices W and U of the latter joined into one.
    A single matrix only means that both halves start from one distribution. The half that
    multiplies ``h_j`` runs once per sentence.
    """

    def __init__(self, query_size: int, key_size: int, hidden_size: int):
        super().__init__(query_size, key_size, hidden_size)
        self.sizes = query_size, key_size
        self.pair_layer = nn.Linear(query_size + key_size, hidden_size, bias=False)
        self.energy_layer = nn.Linear(hidden_size, 1, bias=False)

    def _halves(self) -> tuple[Tensor, ...]:
        return self.pair_layer.weight.split(self.sizes, dim=1)

    def project(self, keys: Tensor) -> Tensor:
        """Compute the half of ``W [s; h_j]`` that reads ``h_j``: (B, S, C) -> (B, S, A)."""
        return F.linear(keys, self._halves()[1])

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        hidden = F.linear(query, self._halves()[0]).unsqueeze(2) + keys.unsqueeze(1)
        return self.energy_layer(torch.tanh(hidden)).squeeze(-1)


class DotScore(Score):
    """Dot product (Luong et al. 2015, arXiv:1508.04025, section 3.1): e_ij = s . h_j

    Queries and keys need the same number of units.
    """

    compares_units = True

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(1, 2)


class ScaledDotScore(DotScore):
    """Scaled dot product (Vaswani et al. 2017, arXiv:1706.03762, equation 1).

        e_ij = s . h_j / sqrt(H)

    For random vectors of H units with variance 1, the energies have variance 1. Queries and keys
    need the same number of units.
    """

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        return super().energies(query / math.sqrt(query.shape[-1]), keys)


class BilinearScore(DotScore):
    """Bilinear, "general" or multiplicative (Luong et al. 2015, arXiv:1508.04025, section 3.1).

    e_ij = s . W h_j
    """

    compares_units = False  # W h_j has as many units as the query

    def __init__(self, query_size: int, key_size: int):
        super().__init__()
        self.key_layer = nn.Linear(key_size, query_size, bias=False)

    @classmethod
    def from_config(cls, config: AttentionConfig, query_size: int, key_size: int) -> "Score":
        return cls(query_size, key_size)

    def projected_size(self, key_size: int) -> int:
        return self.key_layer.out_features

    def project(self, keys: Tensor) -> Tensor:
        """Compute ``W h_j``: (B, S, C) -> (B, S, H)."""
        return self.key_layer(keys)


class CosineScore(DotScore):
    """Content-based addressing (Graves et al. 2014, arXiv:1410.5401, equations 5 and 6).

        e_ij = beta s . h_j / (|s| |h_j|)        beta = sqrt(H) exp(log_sharpness)

    A cosine lies in [-1, 1], a range too narrow for a softmax to discriminate; the learned
    sharpness beta widens it. At the start, energies of random vectors have variance 1. Queries and
    keys need the same number of units.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log_sharpness = nn.Parameter(torch.zeros(()))

    def project(self, keys: Tensor) -> Tensor:
        """Compute ``h_j / |h_j|``: (B, S, C) -> (B, S, C)."""
        return _direction(keys)

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        sharpness = math.sqrt(query.shape[-1]) * self.log_sharpness.exp()
        return super().energies(sharpness * _direction(query), keys)


def _direction(vectors: Tensor) -> Tensor:
    """Return ``x / |x|``, and 0 for a vector of zeros."""
    # In half precision, the smallest norm that normalize divides by would round to 0.
    wide = vectors.float() if vectors.dtype in (torch.float16, torch.bfloat16) else vectors
    return F.normalize(wide, dim=-1).to(vectors.dtype)


class GaussianScore(Score):
    """Gaussian kernel: attention pooling of Nadaraya (1964) and Watson (1964), learnable width.

        e_ij = -|(s - h_j) w|^2 / 2        w = exp(log_width)

    Despite its usual name, w is the inverse of the kernel's width: large w, narrow kernel. Queries
    and keys need the same number of units.
    """

    compares_units = True

    def __init__(self) -> None:
        super().__init__()
        self.log_width = nn.Parameter(torch.zeros(()))

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        # The expansion |s|^2 + |h|^2 - 2 s . h would need no tensor (B, Q, S, H), but it loses all
        # digits for long vectors that are close to each other.
        differences = query.unsqueeze(2) - keys.unsqueeze(1)
        return -(2 * self.log_width).exp() / 2 * differences.square().sum(dim=-1)


class LocationScore(Score):
    """Location-based (Luong et al. 2015, arXiv:1508.04025, equation 8): e_i = W s

    Row j of W scores source position j from the query alone. W has a row for each of the first
    ``max_positions`` positions. Later positions get the lowest finite energy, and so no weight
    next to any of the first.
    """

    sees_keys = False

    def __init__(self, query_size: int, max_positions: int):
        super().__init__()
        self.query_layer = nn.Linear(query_size, max_positions, bias=False)

    @classmethod
    def from_config(cls, config: AttentionConfig, query_size: int, key_size: int) -> "Score":
        return cls(query_size, config.max_positions)

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        energies = self.query_layer(query)[..., : keys.shape[1]]
        # Minus infinity instead would make its own gradient NaN.
        lowest = torch.finfo(energies.dtype).min
        return F.pad(energies, (0, keys.shape[1] - energies.shape[-1]), value=lowest)


class AverageScore(Score):
    """Average pooling: e_ij = 0, so that all tokens get the same weight, whatever the query.

    The baseline that an attention must beat.
    """

    sees_keys = False

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        return query.new_zeros(query.shape[0], query.shape[1], keys.shape[1])


# To add a scoring function, write a class above, and add a line here and, if it has settings of
# its own, a file to conf/model/attention. A plug-in calls SCORES.register("name", MyScore).
SCORES: Registry[type[Score] | None] = Registry(
    "model.attention.name",
    {
        "additive": AdditiveScore,
        "normed_additive": NormedAdditiveScore,
        "concat": ConcatScore,
        "dot": DotScore,
        "scaled_dot": ScaledDotScore,
        "bilinear": BilinearScore,
        "cosine": CosineScore,
        "gaussian": GaussianScore,
        "location": LocationScore,
        "average": AverageScore,
        "none": None,  # no scoring: NoAttention
    },
)
