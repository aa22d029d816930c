"""Cross-entropy that counts every real target token once."""

from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.data.vocabulary import PAD


class Loss(NamedTuple):
    """Sums over the real target tokens of a batch, in nats. Sums and counts, not means: batches
    differ in their number of tokens, so a mean of batch means would let each token of a short
    batch weigh more than one of a long batch."""

    objective: Tensor  # what is minimised, label smoothing included
    nll: Tensor  # negative log-likelihood, without it


def token_cross_entropy(logits: Tensor, target: Tensor, smoothing: float = 0.0) -> Loss:
    """Cross-entropy with label smoothing (Szegedy et al. 2016, arXiv:1512.00567, section 7).

        objective = (1 - eps) nll + eps * mean_v(-log p_v)

    Args:
        logits: (B, T, V).
        target: ids, (B, T); PAD counts nothing.
        smoothing: eps, the probability given to all words alike.
    """
    real = target != PAD
    # Only real positions reach the softmax: padding would cost as much as words.
    log_probs = logits[real].float().log_softmax(dim=-1)
    nll = -log_probs.gather(-1, target[real].unsqueeze(-1)).sum()
    if smoothing == 0:
        return Loss(nll, nll)
    return Loss((1 - smoothing) * nll - smoothing * log_probs.mean(dim=-1).sum(), nll)


def count_tokens(target: Tensor) -> int:
    """Real target tokens: EOS included, PAD and BOS not."""
    return int(torch.count_nonzero(target != PAD))
