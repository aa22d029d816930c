"""Pooling, building from settings, and refusals; ``test_family`` has the common properties."""

import doctest

import numpy as np
import pytest
import torch
from inputs import lively, random
from torch import nn
from torch.testing import assert_close

from seq2seq.attention import pooling, scoring, sequences
from seq2seq.attention.build import build_attention
from seq2seq.attention.distribution import (
    MODES,
    AttentionHistory,
    Hard,
    LocalMonotonic,
    LocalPredictive,
    Monotonic,
    Soft,
)
from seq2seq.attention.masking import NORMALIZERS
from seq2seq.attention.pooling import Attention, MultiHeadAttention, NoAttention
from seq2seq.attention.scoring import (
    SCORES,
    BilinearScore,
    ScaledDotScore,
    Score,
)
from seq2seq.config.model import AttentionConfig

B, Q, S, H, C, A = 3, 4, 5, 4, 6, 7
MASK = torch.arange(S) < torch.tensor([[5], [2], [1]])
NAMES = [name for name, kind in SCORES.items() if kind is not None]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def attend(attention, query, values, mask, history=None):
    return attention(query, attention.project(values), values, mask, history)


def build(query_size=C, value_size=C, **options):
    config = AttentionConfig(**{"size": A, "max_positions": 9, **options})
    return build_attention(config, query_size, value_size)


# Single attention


@pytest.mark.parametrize(
    "options",
    [
        {"name": "additive"},
        {"name": "bilinear", "mode": "hard"},
        {"name": "additive", "heads": 2},
        {"name": "scaled_dot", "heads": 3, "mode": "hard"},
    ],
    ids=str,
)
@pytest.mark.parametrize("per_query", [False, True], ids=["one mask", "a mask per query"])
def test_several_queries_at_once_equal_single_queries(options, per_query):
    attention = lively(build(H, **options)).eval()
    queries, values = random(B, Q, H), random(B, S, C)
    masks = torch.rand(B, Q, S) > 0.4 if per_query else MASK.unsqueeze(1).expand(B, Q, S)
    context, weights = attend(attention, queries, values, masks if per_query else MASK)
    for q in range(Q):
        alone = attend(attention, queries[:, q], values, masks[:, q])
        assert_close(context[:, q], alone[0])
        assert_close(weights[:, q], alone[1])


def test_coverage_equals_equation_11_of_see_et_al():
    """e_ij = v . tanh(W_h h_j + W_s s_i + w_c c_ij), c_ij = sum_{i'<i} a_i'j, one pair at a time
    over several target positions."""
    attention = lively(build(H, coverage=True))
    values, queries = random(1, S, C), random(4, 1, H)
    score, w_c = attention.score, attention.coverage_layer.weight.detach().numpy()[:, 0]
    w_s, w_h, v = (
        layer.weight.detach().numpy()
        for layer in (score.query_layer, score.key_layer, score.energy_layer)
    )
    history, c = attention.initial_history(values), np.zeros(S)
    for query in queries:
        energies = [
            v[0] @ np.tanh(w_h @ values[0, j].numpy() + w_s @ query[0].numpy() + w_c * c[j])
            for j in range(3)
        ]
        a = np.exp(energies) / np.exp(energies).sum()
        _, weights = attend(attention, query, values, torch.arange(S)[None] < 3, history)
        assert_close(weights[0, :3], torch.from_numpy(a))
        history = history.append(weights)
        c[:3] += a


@pytest.mark.parametrize("name", [name for name in NAMES if SCORES[name].sees_keys])
def test_coverage_works_with_every_score_that_sees_keys(name):
    """With a coverage layer of zeros it changes nothing; otherwise it does."""
    covering, values, query = lively(build(name=name, coverage=True)), random(B, S, C), random(B, C)
    history = AttentionHistory(random(B, S), random(B, S), torch.tensor([1, 2, 3]))
    found = attend(covering, query, values, MASK, history)
    expected = attend(Attention(covering.score), query, values, MASK)
    assert (found[1] - expected[1]).abs().max() > 1e-3
    nn.init.zeros_(covering.coverage_layer.weight)
    found = attend(covering, query, values, MASK, history)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


# Several heads


@pytest.mark.parametrize("num_heads", [1, 2, 3, 6])
def test_scaled_dot_heads_equal_multi_head_attention_of_torch(num_heads):
    """torch.nn.MultiheadAttention projects the values before the sum, ours after it."""
    ours = lively(MultiHeadAttention([ScaledDotScore() for _ in range(num_heads)], C, C))
    theirs = nn.MultiheadAttention(C, num_heads, bias=False, batch_first=True).double()
    value_weight = torch.cat([layer.weight for layer in ours.value_layers])
    theirs.load_state_dict(
        {
            "in_proj_weight": torch.cat(
                [ours.query_layer.weight, ours.key_layer.weight, value_weight]
            ),
            "out_proj.weight": ours.context_layer.weight,
        }
    )
    queries, values = random(B, Q, C), random(B, S, C)
    context, weights = attend(ours, queries, values, MASK)
    expected = theirs(queries, values, values, key_padding_mask=~MASK)
    assert_close(context, expected[0])
    assert_close(weights, expected[1])


@pytest.mark.parametrize("name", NAMES)
def test_each_head_equals_a_single_attention_to_projected_values(name):
    """c = O [c^1; c^2], where head n attends with Q_n s, K_n h_j and V_n h_j."""
    attention = lively(build(H, name=name, heads=2))
    query, values = random(B, H), random(B, S, C)
    queries = attention.query_layer(query).split(3, dim=-1)
    keys = attention.key_layer(values).split(3, dim=-1)
    heads = [
        Attention(score)(query_n, score.project(key_n), value_layer(values), MASK)
        for score, query_n, key_n, value_layer in zip(
            attention.scores, queries, keys, attention.value_layers, strict=True
        )
    ]
    context, weights = attend(attention, query, values, MASK)
    concatenated = torch.cat([context_n for context_n, _ in heads], dim=-1)
    assert_close(context, concatenated @ attention.context_layer.weight.T)
    assert_close(weights, sum(weights_n for _, weights_n in heads) / 2)
    each = attention.head_weights(query, attention.project(values), MASK)
    assert_close(each, torch.stack([weights_n for _, weights_n in heads]))


# No attention


def test_without_attention_the_context_is_the_final_state_of_either_direction():
    """For any query: [forward state at the last token; backward state at the first]."""
    values = random(B, S, C)
    for _ in range(2):
        context, weights = attend(NoAttention(), random(B, H), values, MASK)
        assert (weights == 0).all()
        for b, last in enumerate([4, 1, 0]):
            assert torch.equal(context[b, : C // 2], values[b, last, : C // 2])
            assert torch.equal(context[b, C // 2 :], values[b, 0, C // 2 :])


# Building from settings


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_settings_choose_the_classes_and_their_sizes(name, mode, device):
    own = {"window": 3, "temperature": 0.7, "noise": 0.3}  # none of them a default
    with torch.device(device):
        attention = build(name=name, mode=mode, **own)
    assert type(attention.score) is SCORES[name]
    assert type(attention.distribution) is MODES[mode]
    for key in own:
        assert getattr(attention.distribution, key, own[key]) == own[key]
    sizes = {"location": 9, "additive": A, "normed_additive": A, "concat": A, "bilinear": C}
    shapes = [layer.weight.shape for layer in attention.score.children()]
    assert not shapes or sizes[name] in {shape[0] for shape in shapes}


@pytest.mark.parametrize("mode", ["soft", "local_m", "local_p"])
@pytest.mark.parametrize("normalization", NORMALIZERS)
def test_settings_choose_the_normalization(mode, normalization):
    attention = build(mode=mode, normalization=normalization)
    assert attention.distribution.normalize is NORMALIZERS[normalization]


def test_heads_do_not_share_parameters():
    attention = build(heads=3)
    assert len({id(parameter) for parameter in attention.parameters()}) == 3 * 3 + 3 + 3


class ManhattanScore(Score):
    """e_ij = -sum_k |s_k - h_jk|"""

    compares_units = True

    def energies(self, query, keys):
        return -torch.cdist(query, keys, p=1)


class Uniform(Soft):
    """Equal weights, whatever the energies."""

    def forward(self, energies, mask, query, history):
        return super().forward(torch.zeros_like(energies), mask, query, history)


def test_registered_plug_ins_are_built_and_checked_like_our_own():
    SCORES.register("manhattan", ManhattanScore)
    MODES.register("uniform", Uniform)
    try:
        attention = build(name="manhattan", mode="uniform")
        _, weights = attend(attention, torch.zeros(B, C), torch.randn(B, S, C), MASK)
        assert_close(weights, MASK / MASK.sum(dim=1, keepdim=True))
        with pytest.raises(ValueError, match=r"name=manhattan .* model\.decoder_size=4 must equal"):
            build(H, name="manhattan")
    finally:
        del SCORES._entries["manhattan"], MODES._entries["uniform"]


REFUSED = {
    "unknown name": ({"name": "aditive"}, ["name=aditive is unknown", *SCORES]),
    "unknown mode": ({"mode": "sfot"}, ["mode=sfot is unknown", *MODES]),
    "unknown normalization": (
        {"normalization": "max"},
        ["model.attention.normalization=max is unknown", *NORMALIZERS],
    ),
    "coverage with several heads": (
        {"heads": 2, "coverage": True},
        ["model.attention.coverage=true", "model.attention.heads=2"],
    ),
    "heads that do not divide": (
        {"heads": 4},
        ["model.attention.heads=4 must divide", "2 * model.encoder_size=6"],
    ),
    **{
        f"heads with {mode}": (
            {"heads": 2, "mode": mode},
            ["model.attention.heads=2", "model.attention.mode=soft or hard", f"mode={mode}"],
        )
        for mode in ("local_m", "local_p", "monotonic")
    },
    **{
        f"normalization with {mode}": (
            {"mode": mode, "normalization": "sparsemax"},
            ["model.attention.normalization=sparsemax", f"model.attention.mode={mode}"],
        )
        for mode in ("hard", "monotonic")
    },
    **{
        f"none with {key}": (
            {"name": "none", key: value},
            ["model.attention.name=none", f"model.attention.{key}={value}".lower()],
        )
        for key, value in {
            "heads": 2, "mode": "hard", "normalization": "sparsemax", "coverage": True
        }.items()
    },
    **{
        f"coverage of {name}": (
            {"name": name, "coverage": True},
            ["model.attention.coverage=true", f"model.attention.name={name}"],
        )
        for name in NAMES
        if not SCORES[name].sees_keys
    },
}  # fmt: skip


@pytest.mark.guarantee(
    "Impossible attention settings are refused in one line that names keys and values."
)
@pytest.mark.parametrize("case", REFUSED)
def test_impossible_combinations_are_refused_with_keys_and_values(case):
    options, expected = REFUSED[case]
    with pytest.raises(ValueError, match=r"model\.attention\.") as error:
        build(**options)
    assert all(text in str(error.value) for text in expected)
    assert "\n" not in str(error.value)


@pytest.mark.guarantee(
    "Impossible attention settings are refused in one line that names keys and values."
)
@pytest.mark.parametrize("name", NAMES)
def test_unequal_sizes_are_refused_exactly_where_units_are_compared(name):
    """Heads project both to one size."""
    attend(build(H, C, name=name, heads=2), torch.randn(B, H), torch.randn(B, S, C), MASK)
    if SCORES[name].compares_units:
        with pytest.raises(ValueError, match=rf"name={name} .*decoder_size=4 .*encoder_size=6;"):
            build(H, C, name=name)
    else:
        attend(build(H, C, name=name), torch.randn(B, H), torch.randn(B, S, C), MASK)


# Wrong calls


def test_missing_history_is_refused():
    attention = build(H, coverage=True)
    with pytest.raises(ValueError, match=r"attention\.initial_history\(values\)"):
        attend(attention, torch.randn(B, H), torch.randn(B, S, C), MASK)


@pytest.mark.parametrize(
    "attention",
    [
        *(
            Attention(BilinearScore(H, C), distribution)
            for distribution in (LocalMonotonic(2), LocalPredictive(H, A, 2), Monotonic(0.0))
        ),
        Attention(BilinearScore(H, C), Hard(1.0), coverage_size=H),
        NoAttention(),
    ],
)
@pytest.mark.parametrize("num_queries", [1, S, Q])
def test_several_queries_are_refused_where_one_is_accepted(attention, num_queries):
    """With as many queries as source positions, nothing else would: the shapes agree."""
    values = torch.randn(B, S, C)
    with pytest.raises(ValueError, match="takes one query"):
        attend(
            attention,
            torch.randn(B, num_queries, H),
            values,
            MASK,
            attention.initial_history(values),
        )


@pytest.mark.guarantee(
    "Attention requires a boolean mask, True at tokens; masks of zeros and ones are refused."
)
@pytest.mark.parametrize(
    "attention", [NoAttention(), build(H), build(H, heads=2)], ids=lambda one: type(one).__name__
)
def test_a_boolean_mask_is_required(attention):
    query, values = torch.randn(B, H), torch.randn(B, S, C)
    with pytest.raises(TypeError, match="must be boolean"):
        attend(attention, query, values, MASK.sum(dim=1))
    with pytest.raises(TypeError, match="mask"):
        attention(query, attention.project(values), values)


# Documentation


@pytest.mark.parametrize("module", [pooling, sequences], ids=lambda module: module.__name__)
def test_examples_in_docstrings_print_what_they_say(module):
    names = {"torch": torch, **vars(scoring), **vars(pooling), **vars(sequences)}
    result = doctest.testmod(module, globs=names)
    assert result.attempted > 0
    assert result.failed == 0
