"""Ways of weighing: from the energies of all source positions to the attention weights.

Whatever the way, weights are 0 at padding, and a row sums to 1, or to 0 where there is no token.
What a way must know of earlier target positions it is told, in ``Past``; it remembers nothing.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq.attention.masking import NORMALISERS, masked_softmax


class Past(NamedTuple):
    """Where the decoder has looked so far in each sentence."""

    previous: Tensor  # weights of the target position before; 0 before the first, (B, S)
    coverage: Tensor  # sum of the weights of all positions before, (B, S)
    position: Tensor  # target positions so far, (B,)

    @classmethod
    def none(cls, annotations: Tensor) -> "Past":
        """Before the first target position of annotations (B, S, C)."""
        zeros = annotations.new_zeros(annotations.shape[:2])
        return cls(zeros, zeros, torch.zeros(len(zeros), dtype=torch.long, device=zeros.device))

    def then(self, weights: Tensor) -> "Past":
        """After one more position, which looked at ``weights`` (B, S)."""
        return Past(weights, self.coverage + weights, self.position + 1)

    def select(self, rows: Tensor) -> "Past":
        """The past of some sentences, repeated or left out as ``rows`` (N,) says."""
        return Past(*(part.index_select(0, rows) for part in self))


class Weighing(nn.Module):
    """What every way of weighing offers."""

    looks_back = False  # whether it needs the past
    one_query = True  # whether it takes one query a sentence only

    def forward(
        self, energies: Tensor, source_mask: Tensor, query: Tensor, past: Past | None
    ) -> Tensor:
        """Weights of one target position.

        Args:
            energies: (B, S); also (B, Q, S) unless ``one_query``.
            source_mask: True at tokens, broadcastable to ``energies``.
            query: what was asked, (B, H).
            past: where the decoder has looked so far, if ``looks_back``.

        Returns:
            Weights of the shape of ``energies``.
        """
        raise NotImplementedError


class Soft(Weighing):
    """Soft, global attention: every token gets a share (Bahdanau et al. 2015, equation 6).

    ``normalisation`` names the function of ``masking`` that makes shares of energies.
    """

    one_query = False

    def __init__(self, normalisation: str = "softmax"):
        super().__init__()
        self.normalise = NORMALISERS[normalisation]

    def forward(
        self, energies: Tensor, source_mask: Tensor, query: Tensor, past: Past | None
    ) -> Tensor:
        return self.normalise(energies, source_mask)


class LocalMonotonic(Weighing):
    """Local attention, local-m (Luong et al. 2015, arXiv:1508.04025, section 3.2).

        p_i = i                                 target position i is aligned to source position i
        a_ij = softmax_j(e_ij)                  over |j - p_i| <= window, else 0

    Beyond the end of the source, where the paper's window would be empty, p_i stays at the last
    token.
    """

    looks_back = True

    def __init__(self, window: int, normalisation: str = "softmax"):
        super().__init__()
        self.window = window
        self.normalise = NORMALISERS[normalisation]

    def forward(
        self, energies: Tensor, source_mask: Tensor, query: Tensor, past: Past | None
    ) -> Tensor:
        assert past is not None
        center = torch.minimum(past.position, _last_token(source_mask))
        near = _distance(energies, center).abs() <= self.window
        return self.normalise(energies, source_mask & near)


class LocalPredictive(Weighing):
    """Local attention, local-p (Luong et al. 2015, arXiv:1508.04025, equations 9 and 10).

        p_i = (S - 1) sigmoid(v . tanh(W s))    S tokens, counted from 0
        a_ij = softmax_j(e_ij - (j - p_i)^2 / (2 sigma^2))      sigma = window / 2
                                                over |j - p_i| <= window, else 0

    Luong et al. multiply by the Gaussian after the softmax, and their weights sum to less than 1;
    here it enters the energies, which is the same but for a row's sum: theirs made 1.
    """

    def __init__(self, query_size: int, size: int, window: int, normalisation: str = "softmax"):
        super().__init__()
        self.window = window
        self.normalise = NORMALISERS[normalisation]
        self.query_layer = nn.Linear(query_size, size, bias=False)
        self.position_layer = nn.Linear(size, 1, bias=False)

    def center(self, query: Tensor, source_mask: Tensor) -> Tensor:
        """``p_i``, a real number: (B, H), (B, S) -> (B,)."""
        share = torch.sigmoid(self.position_layer(torch.tanh(self.query_layer(query)))).squeeze(-1)
        return share * _last_token(source_mask)

    def forward(
        self, energies: Tensor, source_mask: Tensor, query: Tensor, past: Past | None
    ) -> Tensor:
        distance = _distance(energies, self.center(query, source_mask))
        near = distance.abs() <= self.window
        closeness = -2 * (distance / self.window).square()
        return self.normalise(energies + closeness, source_mask & near)


class Hard(Weighing):
    """Hard, stochastic attention: one token and no other (Xu et al. 2015, arXiv:1502.03044,
    section 4.1), trained with the straight-through Gumbel-softmax estimator (Jang et al. 2017,
    arXiv:1611.01144, section 2.2) instead of REINFORCE.

        j* = argmax_j(e_ij + g_j)       g_j from Gumbel(0, 1), so that j* follows softmax_j(e_ij)
        a_ij = 1 where j = j*, else 0

    Backwards it is softmax_j((e_ij + g_j) / temperature). Evaluation draws nothing: j* is the
    token of the largest energy.
    """

    one_query = False

    def __init__(self, temperature: float):
        super().__init__()
        self.temperature = temperature

    def forward(
        self, energies: Tensor, source_mask: Tensor, query: Tensor, past: Past | None
    ) -> Tensor:
        if self.training:
            energies = (
                energies - torch.empty_like(energies).exponential_().log()
            ) / self.temperature
        shares = masked_softmax(energies, source_mask)
        best = shares.argmax(dim=-1, keepdim=True)
        one = torch.zeros_like(shares).scatter(-1, best, 1.0).masked_fill(shares == 0, 0.0)
        # Grouped so that forwards it is exactly 0 or 1, whatever the rounding.
        return one + (shares - shares.detach()) if self.training else one


class Monotonic(Weighing):
    """Monotonic attention (Raffel et al. 2017, arXiv:1704.00784, algorithm 1 and equation 8).

        p_ij = sigmoid(e_ij + r)                        chance of stopping at j once j is reached
        a_ij = p_ij sum_{k<=j} a_{i-1,k} prod_{k<=l<j} (1 - p_il)

    r is learnt and begins at -1. The search for a token begins where the last one ended, from left
    to right. Training has the expected weights, with noise from N(0, noise^2) added to the energies
    so that p learns to be 0 or 1; evaluation stops at the first token with p >= 1/2, which is the
    same formula with p rounded. Where Raffel et al. look at nothing if no token stops the search,
    here the last one does, so that a row sums to 1.

    The products are a matrix (B, S, S) each step: exact where dividing by running products, the
    paper's way in linear space, would divide by 0.
    """

    looks_back = True
    initial_offset = -1.0  # p of 0.27: the search begins by looking further than the next token

    def __init__(self, noise: float):
        super().__init__()
        self.noise = noise
        self.offset = nn.Parameter(torch.zeros(()))

    def forward(
        self, energies: Tensor, source_mask: Tensor, query: Tensor, past: Past | None
    ) -> Tensor:
        assert past is not None
        energies = energies + self.initial_offset + self.offset
        if self.training:
            stop = torch.sigmoid(energies + self.noise * torch.randn_like(energies))
        else:
            stop = (energies >= 0).to(energies.dtype)
        stop = stop.masked_fill(~source_mask, 0.0)
        places = torch.arange(energies.shape[1], device=energies.device)
        first = (places == 0).to(energies.dtype)
        begun = torch.where((past.position == 0).unsqueeze(1), first, past.previous)
        # passing[k, j]: a search that began at k reaches j.
        later = places > places.unsqueeze(1)
        going_on = (1 - stop).roll(1, dims=1).unsqueeze(1)
        passing = torch.where(later, going_on, 1.0).cumprod(dim=2).triu()
        reached = torch.bmm(begun.unsqueeze(1), passing).squeeze(1)
        at_last = places == _last_token(source_mask).unsqueeze(1)
        return (reached * stop.masked_fill(at_last, 1.0)).masked_fill(~source_mask, 0.0)


def _last_token(source_mask: Tensor) -> Tensor:
    """Position of the last token of each row, 0 where there is none: (B, S) -> (B,)."""
    places = torch.arange(source_mask.shape[1], device=source_mask.device)
    return (places * source_mask).amax(dim=1)


def _distance(energies: Tensor, center: Tensor) -> Tensor:
    """From ``center`` (B,) to each source position of ``energies`` (B, S): (B, S)."""
    return torch.arange(energies.shape[1], device=energies.device) - center.unsqueeze(1)
