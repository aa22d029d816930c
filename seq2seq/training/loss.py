"""Cross-entropy summed over real target tokens, in nats."""

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from seq2seq.data.vocabulary import PAD
from seq2seq.model.products import add_product, packed_linear, to_autocast
from seq2seq.training.task import Loss

CHUNK_LOGITS = 2**21  # 8 MiB of logits: about the size of a processor cache


def token_cross_entropy(logits: Tensor, target: Tensor, smoothing: float = 0.0) -> Loss:
    """Compute cross-entropy with label smoothing (Szegedy et al. 2016, arXiv:1512.00567, sec. 7).

        objective = (1 - eps) nll + eps * mean_v(-log p_v)

    Args:
        logits: (B, T, V).
        target: ids, (B, T); PAD is ignored.
        smoothing: eps, the probability spread evenly over the vocabulary.
    """
    real = target != PAD
    # Only real positions reach the softmax: padding would cost as much as tokens.
    log_probs = logits[real].float().log_softmax(dim=-1)
    nll = -log_probs.gather(-1, target[real].unsqueeze(-1)).sum()
    if smoothing == 0:
        return Loss(nll, nll)
    return Loss((1 - smoothing) * nll - smoothing * log_probs.mean(dim=-1).sum(), nll)


def chunked_cross_entropy(
    features: Tensor, layer: nn.Linear, target: Tensor, smoothing: float = 0.0
) -> Loss:
    """Compute ``token_cross_entropy`` of the logits ``layer(features)`` without storing them.

    Logits are computed for a chunk of positions at a time, and converted to gradients while they
    are still in the processor cache. Only ``objective`` has a gradient.

    Args:
        features: input of the output layer, (B, T, O).
        layer: the output layer, (O) -> (V).
        target: ids, (B, T); PAD is ignored.
        smoothing: eps, the probability spread evenly over the vocabulary.
    """
    real = target != PAD
    objective, nll = _ChunkedCrossEntropy.apply(
        features[real], layer.weight, layer.bias, target[real], smoothing
    )
    return Loss(objective, nll)


class _ChunkedCrossEntropy(Function):
    """Sums over N positions, computed together with their gradients:

        d objective / d logits = p - (1 - eps) onehot(target) - eps / V

    The last term is the same at every position and word, so it is added once to the sums. The
    division in p = e^x / z is applied to the few units of ``hidden`` rather than to V words.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, target, smoothing):
        low, chunk = to_autocast(weight), max(1, CHUNK_LOGITS // len(weight))
        needed = any(ctx.needs_input_grad)
        d_hidden, d_weight, d_bias = (
            torch.zeros_like(x, dtype=bias.dtype) for x in (hidden, weight, bias)
        )
        nll = torch.zeros((), dtype=torch.float64, device=hidden.device)
        mean = torch.zeros_like(nll)  # of -log p over the vocabulary, summed over positions
        logits_of = packed_linear(low, bias)
        for start in range(0, len(hidden), chunk):
            rows, ids = hidden[start : start + chunk], target[start : start + chunk].unsqueeze(1)
            x = logits_of(rows).to(bias.dtype)
            peak = x.amax(dim=1, keepdim=True)
            own = x.gather(1, ids) - peak
            if smoothing:
                mean += (peak.squeeze(1) - x.mean(dim=1)).sum()
            x.sub_(peak).exp_()
            z = x.sum(dim=1, keepdim=True)
            log_z = z.log()
            nll += (log_z - own).sum()
            if smoothing:
                mean += log_z.sum()
            if needed:
                x.scatter_add_(1, ids, (smoothing - 1) * z)
                add_product(d_hidden[start : start + chunk], x, low)
                d_hidden[start : start + chunk] /= z
                add_product(d_weight, x.t(), (rows / z).to(low.dtype))
                d_bias.addmv_(x.t(), z.squeeze(1).reciprocal())
            del x  # before the next chunk is computed
        if needed and smoothing:
            share = smoothing / len(weight)
            d_hidden -= share * weight.sum(dim=0)
            d_weight -= share * hidden.sum(dim=0)
            d_bias -= share * len(hidden)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.mark_non_differentiable(nll)
        return (1 - smoothing) * nll + smoothing * mean, nll

    @staticmethod
    @once_differentiable
    def backward(ctx, d_objective, d_nll):
        gradients = (gradient * d_objective.to(gradient.dtype) for gradient in ctx.saved_tensors)
        return *gradients, None, None


def count_tokens(target: Tensor) -> int:
    """Count the real target tokens, including EOS but not PAD or BOS."""
    return int(torch.count_nonzero(target != PAD))
