"""Attention distributions: turn the energies of all source positions into attention weights.

In every mode, weights are 0 at padding, and a row sums to 1, or to 0 if it has no tokens. A
distribution keeps no state: information about earlier target positions is passed to it as an
``AttentionHistory``.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq.attention.masking import NORMALIZERS, masked_softmax
from seq2seq.config.model import AttentionConfig
from seq2seq.config.registry import Registry


class AttentionHistory(NamedTuple):
    """Attention weights of the target positions so far, for each sentence."""

    previous: Tensor  # weights of the previous target position; 0 before the first, (B, S)
    coverage: Tensor  # sum of the weights of all earlier positions, (B, S)
    position: Tensor  # number of target positions so far, (B,)

    @classmethod
    def empty(cls, values: Tensor) -> "AttentionHistory":
        """Return the history before the first target position, for values (B, S, C)."""
        zeros = values.new_zeros(values.shape[:2])
        return cls(zeros, zeros, torch.zeros(len(zeros), dtype=torch.long, device=zeros.device))

    def append(self, weights: Tensor) -> "AttentionHistory":
        """Return the history after one more position with ``weights`` (B, S)."""
        return AttentionHistory(weights, self.coverage + weights, self.position + 1)

    def select(self, rows: Tensor) -> "AttentionHistory":
        """Return the given rows (N,), which may repeat or omit sentences."""
        return AttentionHistory(*(tensor.index_select(0, rows) for tensor in self))


class Distribution(nn.Module):
    """Base class of attention distributions."""

    needs_history = False  # whether ``forward`` needs the history
    one_query = True  # whether it accepts only one query per sentence
    uses_normalization = False  # whether ``model.attention.normalization`` applies

    @classmethod
    def from_config(cls, config: AttentionConfig, query_size: int) -> "Distribution":
        """Build the distribution from its settings, for queries of ``query_size`` units."""
        raise NotImplementedError

    def forward(
        self, energies: Tensor, mask: Tensor, query: Tensor, history: AttentionHistory | None
    ) -> Tensor:
        """Compute the weights of one target position.

        Args:
            energies: (B, S); also (B, Q, S) unless ``one_query``.
            mask: True at tokens, broadcastable to ``energies``.
            query: (B, H), or (B, Q, H).
            history: weights of earlier target positions, if ``needs_history``.

        Returns:
            Weights in the shape of ``energies``.
        """
        raise NotImplementedError


class Soft(Distribution):
    """Soft, global attention: weights over all tokens (Bahdanau et al. 2015, equation 6).

    ``normalization`` names the function of ``masking`` that turns energies into weights.
    """

    one_query = False
    uses_normalization = True

    def __init__(self, normalization: str = "softmax"):
        super().__init__()
        self.normalize = NORMALIZERS.get_entry(normalization)

    @classmethod
    def from_config(cls, config: AttentionConfig, query_size: int) -> "Soft":
        return cls(config.normalization)

    def forward(
        self, energies: Tensor, mask: Tensor, query: Tensor, history: AttentionHistory | None
    ) -> Tensor:
        return self.normalize(energies, mask)


class LocalMonotonic(Distribution):
    """Local attention, local-m (Luong et al. 2015, arXiv:1508.04025, section 3.2).

        p_i = i                                 target position i is aligned to source position i
        a_ij = softmax_j(e_ij)                  over |j - p_i| <= window, else 0

    Past the end of the source, where the window of the paper would be empty, p_i stays at the last
    token.
    """

    needs_history = True
    uses_normalization = True

    def __init__(self, window: int, normalization: str = "softmax"):
        super().__init__()
        self.window = window
        self.normalize = NORMALIZERS.get_entry(normalization)

    @classmethod
    def from_config(cls, config: AttentionConfig, query_size: int) -> "LocalMonotonic":
        return cls(config.window, config.normalization)

    def forward(
        self, energies: Tensor, mask: Tensor, query: Tensor, history: AttentionHistory | None
    ) -> Tensor:
        assert history is not None
        center = torch.minimum(history.position, _last_token(mask))
        near = _distance(energies, center).abs() <= self.window
        return self.normalize(energies, mask & near)


class LocalPredictive(Distribution):
    """Local attention, local-p (Luong et al. 2015, arXiv:1508.04025, equations 9 and 10).

        p_i = (S - 1) sigmoid(v . tanh(W s))    S tokens, counted from 0
        a_ij = softmax_j(e_ij - (j - p_i)^2 / (2 sigma^2))      sigma = window / 2
                                                over |j - p_i| <= window, else 0

    Luong et al. multiply by the Gaussian after the softmax, so their weights sum to less than 1.
    Here the Gaussian enters the energies, which gives the same weights divided by their sum.
    """

    uses_normalization = True

    def __init__(
        self, query_size: int, hidden_size: int, window: int, normalization: str = "softmax"
    ):
        super().__init__()
        self.window = window
        self.normalize = NORMALIZERS.get_entry(normalization)
        self.query_layer = nn.Linear(query_size, hidden_size, bias=False)
        self.position_layer = nn.Linear(hidden_size, 1, bias=False)

    @classmethod
    def from_config(cls, config: AttentionConfig, query_size: int) -> "LocalPredictive":
        return cls(query_size, config.size, config.window, config.normalization)

    def center(self, query: Tensor, mask: Tensor) -> Tensor:
        """Predict ``p_i``, a real number: (B, H), (B, S) -> (B,)."""
        share = torch.sigmoid(self.position_layer(torch.tanh(self.query_layer(query)))).squeeze(-1)
        return share * _last_token(mask)

    def forward(
        self, energies: Tensor, mask: Tensor, query: Tensor, history: AttentionHistory | None
    ) -> Tensor:
        distance = _distance(energies, self.center(query, mask))
        near = distance.abs() <= self.window
        log_gaussian = -2 * (distance / self.window).square()
        return self.normalize(energies + log_gaussian, mask & near)


class Hard(Distribution):
    """Hard, stochastic attention: all weight on one token (Xu et al. 2015, arXiv:1502.03044,
    section 4.1), trained with the straight-through Gumbel-softmax estimator (Jang et al. 2017,
    arXiv:1611.01144, section 2.2) instead of REINFORCE.

        j* = argmax_j(e_ij + g_j)       g_j from Gumbel(0, 1), so that j* follows softmax_j(e_ij)
        a_ij = 1 where j = j*, else 0

    The backward pass uses the gradient of softmax_j((e_ij + g_j) / temperature). Evaluation is
    deterministic: j* is the token with the highest energy.
    """

    one_query = False

    def __init__(self, temperature: float):
        super().__init__()
        self.temperature = temperature

    @classmethod
    def from_config(cls, config: AttentionConfig, query_size: int) -> "Hard":
        return cls(config.temperature)

    def forward(
        self, energies: Tensor, mask: Tensor, query: Tensor, history: AttentionHistory | None
    ) -> Tensor:
        if self.training:
            energies = (
                energies - torch.empty_like(energies).exponential_().log()
            ) / self.temperature
        soft = masked_softmax(energies, mask)
        best = soft.argmax(dim=-1, keepdim=True)
        one_hot = torch.zeros_like(soft).scatter(-1, best, 1.0).masked_fill(soft == 0, 0.0)
        # The parentheses keep the forward value exactly 0 or 1 despite rounding.
        return one_hot + (soft - soft.detach()) if self.training else one_hot


class Monotonic(Distribution):
    """Monotonic attention (Raffel et al. 2017, arXiv:1704.00784, algorithm 1 and equation 8).

        p_ij = sigmoid(e_ij + r)                        chance of stopping at j once j is reached
        a_ij = p_ij sum_{k<=j} a_{i-1,k} prod_{k<=l<j} (1 - p_il)

    r is learned and starts at -1. The decoder scans the source from left to right, and each scan
    starts where the previous one stopped. In training, weights are the expected values, with noise
    from N(0, noise^2) added to the energies so that p learns to be 0 or 1. In evaluation, the scan
    stops at the first token with p >= 1/2, which is the same formula with p rounded. If no token
    stops the scan, Raffel et al. attend to nothing; here the scan stops at the last token, so that
    a row sums to 1.

    Each step computes the products as a matrix (B, S, S). The paper divides by running products
    instead, which would divide by 0 where a product vanishes.
    """

    needs_history = True
    initial_offset = -1.0  # p = 0.27, so that early scans reach past the next token

    def __init__(self, noise: float):
        super().__init__()
        self.noise = noise
        self.offset = nn.Parameter(torch.zeros(()))

    @classmethod
    def from_config(cls, config: AttentionConfig, query_size: int) -> "Monotonic":
        return cls(config.noise)

    def forward(
        self, energies: Tensor, mask: Tensor, query: Tensor, history: AttentionHistory | None
    ) -> Tensor:
        assert history is not None
        energies = energies + self.initial_offset + self.offset
        if self.training:
            stop = torch.sigmoid(energies + self.noise * torch.randn_like(energies))
        else:
            stop = (energies >= 0).to(energies.dtype)
        stop = stop.masked_fill(~mask, 0.0)
        indices = torch.arange(energies.shape[1], device=energies.device)
        first = (indices == 0).to(energies.dtype)
        start = torch.where((history.position == 0).unsqueeze(1), first, history.previous)
        # passing[k, j]: the probability that a scan that starts at k reaches j.
        later = indices > indices.unsqueeze(1)
        continuing = (1 - stop).roll(1, dims=1).unsqueeze(1)
        passing = torch.where(later, continuing, 1.0).cumprod(dim=2).triu()
        reached = torch.bmm(start.unsqueeze(1), passing).squeeze(1)
        at_last = indices == _last_token(mask).unsqueeze(1)
        return (reached * stop.masked_fill(at_last, 1.0)).masked_fill(~mask, 0.0)


def _last_token(mask: Tensor) -> Tensor:
    """Return the index of the last token of each row, 0 if there is none: (B, S) -> (B,)."""
    indices = torch.arange(mask.shape[1], device=mask.device)
    return (indices * mask).amax(dim=1)


def _distance(energies: Tensor, center: Tensor) -> Tensor:
    """Return each source position's distance from ``center`` (B,): (B, S)."""
    return torch.arange(energies.shape[1], device=energies.device) - center.unsqueeze(1)


# To add a mode, write a class above, and add a line here and a file to conf/model/attention.
MODES: Registry[type[Distribution]] = Registry(
    "model.attention.mode",
    {
        "soft": Soft,
        "local_m": LocalMonotonic,
        "local_p": LocalPredictive,
        "hard": Hard,
        "monotonic": Monotonic,
    },
)
