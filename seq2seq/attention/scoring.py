"""Scoring functions: how well does a query match a key?

A scoring function has two halves. ``project`` is the part that only the keys decide; it runs
once a sentence. ``forward`` compares queries with the projected keys; it runs once a step.
Neither remembers anything.

Scalars that a scoring function learns (a width, a gain) are logarithms: 0 stands for the usual
value, and so any way of initialising the model suits them.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Score(nn.Module):
    """What every scoring function offers.

    Args:
        query_size: units of a query, H.
        annotation_size: units of an annotation, C.
        size: hidden units A of those that have a hidden layer, positions of ``LocationScore``.
    """

    key_size: int  # units of a projected key, K
    sees_keys = True  # whether the keys decide anything
    compares_units = False  # whether queries and annotations need the same number of units

    def __init__(self, query_size: int, annotation_size: int, size: int):
        super().__init__()
        if self.compares_units and query_size != annotation_size:
            raise ValueError(
                f"{type(self).__name__} compares unit by unit: queries of {query_size} and "
                f"annotations of {annotation_size} units must have the same number."
            )
        self.key_size = annotation_size

    def project(self, annotations: Tensor) -> Tensor:
        """The half that needs no query: (B, S, C) -> keys (B, S, K)."""
        return annotations

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Energies of one query a sentence, (B, H), (B, S, K) -> (B, S); or of many at once,
        (B, Q, H), (B, S, K) -> (B, Q, S)."""
        if query.dim() == 2:
            return self.energies(query.unsqueeze(1), keys).squeeze(1)
        return self.energies(query, keys)

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        """(B, Q, H), (B, S, K) -> (B, Q, S)."""
        raise NotImplementedError


class AdditiveScore(Score):
    """Additive scoring (Bahdanau et al. 2015, arXiv:1409.0473, appendix A.1.2).

    e_ij = v . tanh(W s_{i-1} + U h_j)
    """

    def __init__(self, query_size: int, annotation_size: int, size: int):
        super().__init__(query_size, annotation_size, size)
        self.key_size = size
        self.query_layer = nn.Linear(query_size, size, bias=False)
        self.key_layer = nn.Linear(annotation_size, size, bias=False)
        self.energy_layer = nn.Linear(size, 1, bias=False)

    def project(self, annotations: Tensor) -> Tensor:
        """``U h_j``: (B, S, C) -> (B, S, A)."""
        return self.key_layer(annotations)

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        hidden = torch.tanh(self.query_layer(query).unsqueeze(2) + keys.unsqueeze(1))
        return self.energy_layer(hidden).squeeze(-1)


class NormedAdditiveScore(Score):
    """Additive scoring with a normalised v (weight normalisation: Salimans and Kingma 2016,
    arXiv:1602.07868, equation 2; in attention: Raffel et al. 2017, arXiv:1704.00784, equation 16).

        e_ij = g v / |v| . tanh(W s_{i-1} + U h_j + b)      g = exp(log_gain) / sqrt(A)

    g begins at 1 / sqrt(A), as Raffel et al. have it.
    """

    def __init__(self, query_size: int, annotation_size: int, size: int):
        super().__init__(query_size, annotation_size, size)
        self.key_size = size
        self.query_layer = nn.Linear(query_size, size)
        self.key_layer = nn.Linear(annotation_size, size, bias=False)
        self.direction = nn.Parameter(torch.randn(1, size))
        self.log_gain = nn.Parameter(torch.zeros(()))

    def project(self, annotations: Tensor) -> Tensor:
        """``U h_j``: (B, S, C) -> (B, S, A)."""
        return self.key_layer(annotations)

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        hidden = torch.tanh(self.query_layer(query).unsqueeze(2) + keys.unsqueeze(1))
        gain = self.log_gain.exp() / math.sqrt(self.key_size)
        return F.linear(hidden, gain * F.normalize(self.direction, dim=-1)).squeeze(-1)


class ConcatScore(Score):
    """Concatenation (Luong et al. 2015, arXiv:1508.04025, section 3.1).

        e_ij = v . tanh(W [s; h_j])

    The same function as additive scoring, W being ``[W U]`` side by side. One matrix only means
    that both halves start from one distribution. The half of W that reads ``h_j`` runs once.
    """

    def __init__(self, query_size: int, annotation_size: int, size: int):
        super().__init__(query_size, annotation_size, size)
        self.key_size = size
        self.sizes = query_size, annotation_size
        self.pair_layer = nn.Linear(query_size + annotation_size, size, bias=False)
        self.energy_layer = nn.Linear(size, 1, bias=False)

    def _halves(self) -> tuple[Tensor, ...]:
        return self.pair_layer.weight.split(self.sizes, dim=1)

    def project(self, annotations: Tensor) -> Tensor:
        """The half of ``W [s; h_j]`` that reads ``h_j``: (B, S, C) -> (B, S, A)."""
        return F.linear(annotations, self._halves()[1])

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        hidden = F.linear(query, self._halves()[0]).unsqueeze(2) + keys.unsqueeze(1)
        return self.energy_layer(torch.tanh(hidden)).squeeze(-1)


class DotScore(Score):
    """Dot product (Luong et al. 2015, arXiv:1508.04025, section 3.1): e_ij = s . h_j

    Queries and annotations need the same number of units.
    """

    compares_units = True

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(1, 2)


class ScaledDotScore(DotScore):
    """Scaled dot product (Vaswani et al. 2017, arXiv:1706.03762, equation 1).

        e_ij = s . h_j / sqrt(H)

    Of random vectors of H units with variance 1, it has variance 1. Queries and annotations need
    the same number of units.
    """

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        return super().energies(query / math.sqrt(query.shape[-1]), keys)


class BilinearScore(DotScore):
    """Bilinear, "general" or multiplicative (Luong et al. 2015, arXiv:1508.04025, section 3.1).

    e_ij = s . W h_j
    """

    compares_units = False  # W h_j has those of the query

    def __init__(self, query_size: int, annotation_size: int, size: int):
        super().__init__(query_size, annotation_size, size)
        self.key_size = query_size
        self.key_layer = nn.Linear(annotation_size, query_size, bias=False)

    def project(self, annotations: Tensor) -> Tensor:
        """``W h_j``: (B, S, C) -> (B, S, H)."""
        return self.key_layer(annotations)


class CosineScore(DotScore):
    """Content-based addressing (Graves et al. 2014, arXiv:1410.5401, equations 5 and 6).

        e_ij = beta s . h_j / (|s| |h_j|)        beta = sqrt(H) exp(log_sharpness)

    A cosine lies in [-1, 1], too narrow for a softmax to choose by; the learnt sharpness beta
    widens it. At its start random vectors have energies of variance 1. Queries and annotations
    need the same number of units.
    """

    def __init__(self, query_size: int, annotation_size: int, size: int):
        super().__init__(query_size, annotation_size, size)
        self.log_sharpness = nn.Parameter(torch.zeros(()))

    def project(self, annotations: Tensor) -> Tensor:
        """``h_j / |h_j|``: (B, S, C) -> (B, S, C)."""
        return _direction(annotations)

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        sharpness = math.sqrt(query.shape[-1]) * self.log_sharpness.exp()
        return super().energies(sharpness * _direction(query), keys)


def _direction(vectors: Tensor) -> Tensor:
    """``x / |x|``, and 0 for 0."""
    # Not in half precision: the smallest length that normalize divides by would be 0 there.
    wide = vectors.float() if vectors.dtype in (torch.float16, torch.bfloat16) else vectors
    return F.normalize(wide, dim=-1).to(vectors.dtype)


class GaussianScore(Score):
    """Gaussian kernel: attention pooling of Nadaraya (1964) and Watson (1964), learnable width.

        e_ij = -|(s - h_j) w|^2 / 2        w = exp(log_width)

    Despite its usual name w is the inverse of the kernel's width: large w, narrow kernel. Queries
    and annotations need the same number of units.
    """

    compares_units = True

    def __init__(self, query_size: int, annotation_size: int, size: int):
        super().__init__(query_size, annotation_size, size)
        self.log_width = nn.Parameter(torch.zeros(()))

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        # Not |s|^2 + |h|^2 - 2 s . h, which needs no (B, Q, S, H) tensor, but of long vectors close
        # to each other leaves no digit.
        differences = query.unsqueeze(2) - keys.unsqueeze(1)
        return -(2 * self.log_width).exp() / 2 * differences.square().sum(dim=-1)


class LocationScore(Score):
    """Location-based (Luong et al. 2015, arXiv:1508.04025, equation 8): e_i = W s

    Row j of W scores source position j from the query alone. W has a row for each of the first
    ``size`` positions; those behind them have the lowest energy there is, and so no weight beside
    any of the first.
    """

    sees_keys = False

    def __init__(self, query_size: int, annotation_size: int, size: int):
        super().__init__(query_size, annotation_size, size)
        self.query_layer = nn.Linear(query_size, size, bias=False)

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        energies = self.query_layer(query)[..., : keys.shape[1]]
        # The lowest finite number: minus infinity would make NaN of its own gradient.
        lowest = torch.finfo(energies.dtype).min
        return F.pad(energies, (0, keys.shape[1] - energies.shape[-1]), value=lowest)


class AverageScore(Score):
    """Average pooling: e_ij = 0, so that all tokens weigh the same, whatever the query.

    The baseline without a cue of its own: what an attention must beat.
    """

    sees_keys = False

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        return query.new_zeros(query.shape[0], query.shape[1], keys.shape[1])


# A new scoring function is one class above, one line here, its name among the choices of
# seq2seq.config.AttentionConfig, and one file in conf/model/attention.
SCORES: dict[str, type[Score]] = {
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
}
