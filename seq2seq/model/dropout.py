"""Dropout whose random numbers do not cost more than the layer before it."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEVELS = 2**16  # of the probability: one random 64-bit number decides for four units


class Dropout(nn.Module):
    """``nn.Dropout``, at about a third of its time on a CPU.

    There, torch draws one number a unit in one thread. Here a unit takes 16 bits of one, so that
    it is zeroed with probability ``round(p * 2**16) / 2**16``.
    """

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Zero units of ``x``, of any shape, and scale the others up; nothing in evaluation."""
        if x.device.type != "cpu":
            return F.dropout(x, self.p, self.training)
        zeroed = round(self.p * LEVELS)
        if not self.training or not zeroed:
            return x
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64)
        words.random_(-(2**63), None)  # every bit, the sign's too
        draws = words.view(torch.int16)[: x.numel()].view(x.shape)
        kept = draws >= zeroed - LEVELS // 2
        return x * kept.to(x.dtype).mul_(LEVELS / (LEVELS - zeroed))

    def extra_repr(self) -> str:
        return f"p={self.p}"
