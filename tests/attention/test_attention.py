"""Attention pooling: what a score, a way of weighing and a weighted sum make together.

What holds for every attention alike stands in ``test_family``.
"""

import doctest
import inspect

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seq2seq.attention import masking, pooling, scoring, sequences, weighing
from seq2seq.attention.build import build_attention
from seq2seq.attention.distribution import (
    Hard,
    LocalMonotonic,
    LocalPredictive,
    Monotonic,
    Past,
    Soft,
)
from seq2seq.attention.pooling import Attention, MultiHeadAttention, NoAttention
from seq2seq.attention.scoring import (
    SCORES,
    AdditiveScore,
    BilinearScore,
    DotScore,
    ScaledDotScore,
)
from seq2seq.attention.sequences import BidirectionalAttention, SelfAttention
from seq2seq.config.model import AttentionConfig

B, Q, S, H, C, A = 3, 4, 5, 4, 6, 7
MASK = torch.arange(S) < torch.tensor([[5], [2], [1]])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def lively(attention):
    """With parameters of about 1: tanh and softmax are then far from linear."""
    for parameter in attention.parameters():
        nn.init.normal_(parameter)
    return attention.double()


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def attend(attention, query, annotations, mask, past=None):
    return attention(query, attention.project(annotations), annotations, mask, past)


ONE_HEAD = {
    "additive": lambda: Attention(AdditiveScore(H, C, A)),
    "bilinear, hard": lambda: Attention(BilinearScore(H, C, A), Hard(1.0)),
}
MANY_HEADS = {
    "two heads, additive": lambda: MultiHeadAttention(
        [AdditiveScore(3, 3, A) for _ in range(2)], H, C
    ),
    "three heads, scaled dot, hard": lambda: MultiHeadAttention(
        [ScaledDotScore(2, 2, A) for _ in range(3)], H, C, Hard(1.0)
    ),
}


@pytest.mark.parametrize("name", ONE_HEAD)
def test_the_context_is_the_weighted_sum_of_the_annotations(name):
    attention, annotations = lively(ONE_HEAD[name]()), random(B, S, C)
    context, weights = attend(attention, random(B, H), annotations, MASK)
    for b in range(B):
        assert_close(context[b], sum(weights[b, j] * annotations[b, j] for j in range(S)))


@pytest.mark.parametrize("name", ONE_HEAD | MANY_HEADS)
@pytest.mark.parametrize("of_a_query", [False, True], ids=["one mask", "a mask for each query"])
def test_many_queries_at_once_are_many_queries_one_by_one(name, of_a_query):
    attention = lively((ONE_HEAD | MANY_HEADS)[name]()).eval()
    queries, annotations = random(B, Q, H), random(B, S, C)
    masks = torch.rand(B, Q, S) > 0.4 if of_a_query else MASK.unsqueeze(1).expand(B, Q, S)
    context, weights = attend(attention, queries, annotations, masks if of_a_query else MASK)
    for q in range(Q):
        alone = attend(attention, queries[:, q], annotations, masks[:, q])
        assert_close(context[:, q], alone[0])
        assert_close(weights[:, q], alone[1])


@pytest.mark.parametrize(
    "weighing", [LocalMonotonic(2), LocalPredictive(H, A, 2), Monotonic(0.0)], ids=type
)
@pytest.mark.parametrize("num_queries", [1, S, Q])
def test_many_queries_are_refused_where_each_has_a_place_of_its_own(weighing, num_queries):
    """With as many queries as source positions nothing else would stop them: shapes agree."""
    attention = Attention(BilinearScore(H, H, A), weighing)
    annotations = torch.randn(B, S, H)
    with pytest.raises(ValueError, match=rf"{type(weighing).__name__} takes one query"):
        attend(
            attention,
            torch.randn(B, num_queries, H),
            annotations,
            MASK,
            attention.start(annotations),
        )


# Coverage


def test_coverage_is_that_of_see_et_al():
    """Equation 11, e_ij = v . tanh(W_h h_j + W_s s_i + w_c c_ij), c_ij = sum_{i'<i} a_i'j, one
    pair at a time over several target positions."""
    attention = lively(Attention(AdditiveScore(H, C, A), coverage=True))
    annotations, queries = random(1, S, C), random(4, 1, H)
    score, w_c = attention.score, attention.coverage_layer.weight.detach().numpy()[:, 0]
    w_s, w_h, v = (
        layer.weight.detach().numpy()
        for layer in (score.query_layer, score.key_layer, score.energy_layer)
    )
    past, c = attention.start(annotations), np.zeros(S)
    for query in queries:
        energies = [
            v[0] @ np.tanh(w_h @ annotations[0, j].numpy() + w_s @ query[0].numpy() + w_c * c[j])
            for j in range(3)
        ]
        a = np.exp(energies) / np.exp(energies).sum()
        _, weights = attend(attention, query, annotations, torch.arange(S)[None] < 3, past)
        assert_close(weights[0, :3], torch.from_numpy(a))
        past = past.then(weights)
        c[:3] += a


def test_without_an_effect_on_the_keys_coverage_changes_nothing():
    plain = lively(Attention(BilinearScore(H, C, A)))
    covering = Attention(plain.score, coverage=True).double()
    nn.init.zeros_(covering.coverage_layer.weight)
    query, annotations = random(B, H), random(B, S, C)
    past = Past(random(B, S), random(B, S), torch.tensor([1, 2, 3]))
    found = attend(covering, query, annotations, MASK, past)
    for one, other in zip(found, attend(plain, query, annotations, MASK), strict=True):
        assert_close(one, other)


@pytest.mark.parametrize(
    ("attention", "looks_back"),
    [
        (Attention(AdditiveScore(H, C, A)), False),
        (Attention(AdditiveScore(H, C, A), Hard(1.0)), False),
        (Attention(AdditiveScore(H, C, A), LocalPredictive(H, A, 2)), False),
        (Attention(AdditiveScore(H, C, A), LocalMonotonic(2)), True),
        (Attention(AdditiveScore(H, C, A), Monotonic(0.0)), True),
        (Attention(AdditiveScore(H, C, A), coverage=True), True),
        (MultiHeadAttention([AdditiveScore(C, C, A)], H, C), False),
        (NoAttention(), False),
    ],
)
def test_a_past_is_kept_for_those_that_look_back_to_it(attention, looks_back):
    past = attention.start(torch.randn(B, S, C))
    assert (past is not None) == looks_back
    if past is not None:
        assert past.previous.shape == past.coverage.shape == (B, S)
        assert past.position.tolist() == [0] * B


# Several heads


@pytest.mark.parametrize("num_heads", [1, 2, 3, 6])
def test_heads_with_scaled_dot_products_are_those_of_torch(num_heads):
    """torch.nn.MultiheadAttention projects the values before it sums them, we after."""
    units = C // num_heads
    ours = lively(MultiHeadAttention([ScaledDotScore(units, units, 0)] * num_heads, C, C))
    theirs = nn.MultiheadAttention(C, num_heads, bias=False, batch_first=True).double()
    values = torch.cat([layer.weight for layer in ours.value_layers])
    theirs.load_state_dict(
        {
            "in_proj_weight": torch.cat([ours.query_layer.weight, ours.key_layer.weight, values]),
            "out_proj.weight": ours.context_layer.weight,
        }
    )
    queries, annotations = random(B, Q, C), random(B, S, C)
    context, weights = attend(ours, queries, annotations, MASK)
    expected = theirs(queries, annotations, annotations, key_padding_mask=~MASK)
    assert_close(context, expected[0])
    assert_close(weights, expected[1])


@pytest.mark.parametrize("name", SCORES)
def test_each_head_is_an_attention_of_its_own_to_projected_annotations(name):
    """c = O [c^1; c^2], head n attending with Q_n s, K_n h_j and V_n h_j."""
    scores = [SCORES[name](3, 3, A) for _ in range(2)]
    attention = lively(MultiHeadAttention(scores, H, C))
    query, annotations = random(B, H), random(B, S, C)
    queries = attention.query_layer(query).split(3, dim=-1)
    keys = attention.key_layer(annotations).split(3, dim=-1)
    heads = [
        Attention(score)(query_n, score.project(key_n), value_layer(annotations), MASK)
        for score, query_n, key_n, value_layer in zip(
            scores, queries, keys, attention.value_layers, strict=True
        )
    ]
    context, weights = attend(attention, query, annotations, MASK)
    together = torch.cat([context_n for context_n, _ in heads], dim=-1)
    assert_close(context, together @ attention.context_layer.weight.T)
    assert_close(weights, sum(weights_n for _, weights_n in heads) / 2)
    each = attention.head_weights(query, attention.project(annotations), MASK)
    assert_close(each, torch.stack([weights_n for _, weights_n in heads]))


def test_one_head_with_identity_matrices_is_single_attention():
    score = lively(BilinearScore(C, C, A))
    single, several = Attention(score), MultiHeadAttention([score], C, C).double()
    for layer in (*several.value_layers, several.query_layer, several.key_layer):
        nn.init.eye_(layer.weight)
    nn.init.eye_(several.context_layer.weight)
    query, annotations = random(B, C), random(B, S, C)
    found = attend(several, query, annotations, MASK)
    for one, other in zip(found, attend(single, query, annotations, MASK), strict=True):
        assert_close(one, other)


def test_heads_that_do_not_divide_an_annotation_are_refused():
    with pytest.raises(ValueError, match="4 heads must divide the 6 units"):
        MultiHeadAttention([DotScore(1, 1, 0)] * 4, H, C)


# No attention


def test_without_attention_the_context_is_the_end_of_either_direction():
    """Whatever the query: [forward state at the last token; backward state at the first]."""
    annotations = random(B, S, C)
    for _ in range(3):
        context, weights = attend(NoAttention(), random(B, H), annotations, MASK)
        assert (weights == 0).all()
        for b, last in enumerate([4, 1, 0]):
            assert torch.equal(context[b, : C // 2], annotations[b, last, : C // 2])
            assert torch.equal(context[b, C // 2 :], annotations[b, 0, C // 2 :])


# From settings, and as documented


WEIGHINGS = {
    "soft": Soft,
    "local_m": LocalMonotonic,
    "local_p": LocalPredictive,
    "hard": Hard,
    "monotonic": Monotonic,
}


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("weighing", WEIGHINGS)
def test_settings_become_their_parts(name, weighing):
    own = {"window": 3, "temperature": 0.7, "noise": 0.3}  # none of them a default
    config = AttentionConfig(name, size=A, weighing=weighing, max_positions=9, **own)
    attention = build_attention(config, query_size=C, annotation_size=C)
    assert type(attention.score) is SCORES[name]
    assert type(attention.weighing) is WEIGHINGS[weighing]
    for key in own:
        assert getattr(attention.weighing, key, own[key]) == own[key]
    units = {"location": 9, "additive": A, "normed_additive": A, "concat": A, "bilinear": C}
    shapes = [layer.weight.shape for layer in attention.score.children()]
    assert not shapes or units[name] in {shape[0] for shape in shapes}


@pytest.mark.parametrize("weighing", ["soft", "local_m", "local_p"])
@pytest.mark.parametrize("normalisation", masking.NORMALISERS)
def test_a_normalisation_is_the_one_asked_for(weighing, normalisation):
    config = AttentionConfig(weighing=weighing, normalisation=normalisation)
    attention = build_attention(config, query_size=H, annotation_size=C)
    assert attention.weighing.normalise is masking.NORMALISERS[normalisation]


def test_heads_share_no_parameters():
    config = AttentionConfig(heads=3, size=A)
    attention = build_attention(config, query_size=H, annotation_size=C)
    assert len(attention.scores) == 3
    assert len({id(parameter) for parameter in attention.parameters()}) == 3 * 3 + 3 + 3


def test_an_unknown_scoring_function_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"model\.attention\.name='aditive'") as error:
        build_attention(AttentionConfig(name="aditive"), query_size=H, annotation_size=C)
    assert all(name in str(error.value) for name in [*SCORES, "none"])


def test_an_unknown_way_of_weighing_is_refused():
    with pytest.raises(ValueError, match=r"model\.attention\.weighing='sfot' is unknown"):
        build_attention(AttentionConfig(weighing="sfot"), query_size=H, annotation_size=C)


@pytest.mark.parametrize(
    "settings",
    [
        {"heads": 2, "coverage": True},
        {"heads": 2, "weighing": "local_p"},
        {"name": "location", "coverage": True},
        {"weighing": "hard", "normalisation": "sparsemax"},
    ],
)
def test_parts_that_do_not_go_together_are_refused_also_outside_of_a_run(settings):
    """Not built without the part that does not fit."""
    with pytest.raises(ValueError, match=rf"model\.attention\.{list(settings)[-1]}="):
        build_attention(AttentionConfig(**settings), query_size=C, annotation_size=C)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Attention, ["source_mask"]),
        (MultiHeadAttention, ["source_mask"]),
        (NoAttention, ["source_mask"]),
        (SelfAttention, ["mask"]),
        (BidirectionalAttention, ["first_mask", "second_mask"]),
    ],
)
def test_there_is_no_way_to_attend_without_a_mask(kind, names):
    parameters = inspect.signature(kind.forward).parameters
    assert all(parameters[name].default is inspect.Parameter.empty for name in names)


PARTS = [masking, scoring, weighing, pooling, sequences]
EXAMPLES = [
    example
    for part in PARTS
    for example in doctest.DocTestFinder(exclude_empty=True).find(part)
    if example.examples
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_of_a_docstring_gives_what_it_says(example):
    for part in PARTS:
        example.globs |= vars(part)
    example.globs |= {"torch": torch}
    failed, tried = doctest.DocTestRunner().run(example)
    assert tried > 0
    assert failed == 0


def test_the_classes_that_others_build_with_have_an_example():
    named = {example.name.rpartition(".")[2] for example in EXAMPLES}
    assert {"Attention", "SelfAttention", "BidirectionalAttention"} <= named


@pytest.mark.parametrize("way", [Monotonic(0.0), LocalMonotonic(2), LocalPredictive(H, A, 2)])
def test_heads_take_ways_of_weighing_that_need_no_past(way):
    with pytest.raises(ValueError, match=f"not by {type(way).__name__}"):
        MultiHeadAttention([DotScore(3, 3, 0) for _ in range(2)], H, 6, way)


def test_who_looks_back_must_be_told_of_the_past():
    attention = Attention(AdditiveScore(H, C, A), coverage=True)
    query, annotations = torch.randn(B, H), torch.randn(B, S, C)
    with pytest.raises(ValueError, match=r"attention\.start\(annotations\)"):
        attend(attention, query, annotations, MASK)


@pytest.mark.parametrize(
    "attention", [Attention(AdditiveScore(H, C, A), coverage=True), NoAttention()]
)
def test_one_query_a_sentence_is_one(attention):
    queries, annotations = torch.randn(B, S, H), torch.randn(B, S, C)
    keys, past = attention.project(annotations), Past.none(annotations)
    with pytest.raises(ValueError, match="takes one query"):
        attention(queries, keys, annotations, MASK, past)


def test_lengths_are_no_mask():
    with pytest.raises(TypeError, match="must be boolean"):
        attend(NoAttention(), torch.randn(B, H), torch.randn(B, S, C), MASK.sum(dim=1))
