"""Attention between whole sequences: self-attention, and attention between two sequences.

Modules for building other models; the translator asks one query per target position.
"""

from torch import Tensor, nn

from seq2seq.attention.masking import masked_softmax
from seq2seq.attention.pooling import Attention, MultiHeadAttention, weighted_sum
from seq2seq.attention.scoring import Score


class SelfAttention(nn.Module):
    """Self-attention (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.3): every position attends
    to all positions of its own sequence; queries, keys, and values come from one source.

    Args:
        attention: any soft or hard attention without coverage, for queries and values with the
            same number of units.
        causal: let a position attend only to itself and to earlier positions.

    Example:
        >>> heads = [ScaledDotScore() for _ in range(4)]
        >>> attention = SelfAttention(MultiHeadAttention(heads, query_size=8, value_size=8))
        >>> sequence, mask = torch.randn(3, 5, 8), torch.ones(3, 5, dtype=torch.bool)
        >>> contexts, weights = attention(sequence, mask)
        >>> contexts.shape, weights.shape
        (torch.Size([3, 5, 8]), torch.Size([3, 5, 5]))
    """

    def __init__(self, attention: Attention | MultiHeadAttention, causal: bool = False):
        super().__init__()
        self.attention = attention
        self.causal = causal

    def forward(self, sequence: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from every position.

        Args:
            sequence: (B, S, C).
            mask: True at tokens, (B, S).

        Returns:
            Contexts (B, S, C) and weights (B, S, S); both are 0 in the rows of padding.
        """
        # Padding attends to nothing either, so that a sum over positions is a sum over tokens.
        allowed = mask.unsqueeze(1) & mask.unsqueeze(2)
        if self.causal:
            allowed = allowed.tril()
        return self.attention(sequence, self.attention.project(sequence), sequence, allowed)


class BidirectionalAttention(nn.Module):
    """Attention between two sequences in both directions, from one matrix of energies (Parikh et
    al. 2016, arXiv:1606.01933, equation 2; Seo et al. 2017, arXiv:1611.01603, use the same two).

        e_ij = score(a_i, b_j)
        contexts of a_i: sum_j softmax_j(e_ij) b_j      what in b answers a_i
        contexts of b_j: sum_i softmax_i(e_ij) a_i      what in a answers b_j

    Example:
        >>> attention = BidirectionalAttention(BilinearScore(query_size=4, key_size=6))
        >>> first, second = torch.randn(2, 3, 4), torch.randn(2, 5, 6)
        >>> masks = torch.ones(2, 3, dtype=torch.bool), torch.ones(2, 5, dtype=torch.bool)
        >>> (for_first, weights), (for_second, _) = attention(first, second, *masks)
        >>> for_first.shape, for_second.shape, weights.shape
        (torch.Size([2, 3, 6]), torch.Size([2, 5, 4]), torch.Size([2, 3, 5]))
    """

    def __init__(self, score: Score):
        super().__init__()
        self.score = score

    def forward(
        self, first: Tensor, second: Tensor, first_mask: Tensor, second_mask: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Attend in both directions.

        Args:
            first: the queries of the scoring function, (B, M, D).
            second: the keys of the scoring function, (B, N, C).
            first_mask: True at tokens, (B, M).
            second_mask: True at tokens, (B, N).

        Returns:
            Contexts (B, M, C) and weights (B, M, N) for the first sequence, and contexts (B, N, D)
            and weights (B, N, M) for the second; all are 0 in the rows of padding.
        """
        energies = self.score(first, self.score.project(second))
        allowed = first_mask.unsqueeze(2) & second_mask.unsqueeze(1)
        forward = masked_softmax(energies, allowed)
        backward = masked_softmax(energies.transpose(1, 2), allowed.transpose(1, 2))
        return (weighted_sum(forward, second), forward), (weighted_sum(backward, first), backward)
