import logging

import matplotlib
import numpy as np
import pytest
from matplotlib.transforms import Bbox

from seq2seq.figures import style
from seq2seq.figures.heatmap import CAPTION, Panel, alignment_figure, panel_figure
from seq2seq.figures.style import COLORS, figure_image

ORDERS_TEXT = tuple(map(int, matplotlib.__version__.split(".")[:2])) >= (3, 11)
CELLS = pytest.mark.guarantee(
    "Label k stands at cell k, there are as many labels as tokens, and no padding is shown."
)
SUBSTITUTES = pytest.mark.guarantee(
    "A character that no font has is replaced by a unique label, with a single warning."
)
RIGHT_TO_LEFT = pytest.mark.guarantee(
    "Right-to-left text reads from the right, and its tokens keep their order."
)
BOUNDED = pytest.mark.guarantee(
    "The size of a figure is bounded, whatever the sentence, and nothing in it is clipped."
)
pytestmark = pytest.mark.filterwarnings("error")
LONG = "Donaudampfschifffahrtsgesellschaftskapitän"
SHAPES = [(10, 9), (3, 4), (1, 1), (16, 12), (12, 16), (2, 1), (5, 5)]


@pytest.fixture(autouse=True)
def no_warning_yet(monkeypatch):
    monkeypatch.setattr(style, "_missing_font_reported", False)


def words(count, prefix):
    return [f"{prefix}{index}" for index in range(count)]


def panel(num_source=10, num_target=9, title="a title", seed=0):
    weights = np.random.default_rng(seed).dirichlet(np.full(num_source, 0.3), size=num_target)
    return Panel(title, weights, words(num_source, "wort"), words(num_target, "word"))


def draw(source, target, title="title", **options):
    weights = np.random.default_rng(0).dirichlet(np.full(len(source), 0.3), size=len(target))
    return alignment_figure(weights, source, target, title, **options)


def matrices(figure):
    return [axes for axes in figure.axes if axes.images]


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def title_of(axes):
    return axes._left_title


def pixel(figure, pixels, axes, row, column):
    x, y = axes.transData.transform((column, row))
    return pixels[len(pixels) - 1 - int(y), int(x)].astype(int)


def assert_readable(figure):
    """Check that no label is clipped or touches its neighbor, and no panel another panel."""
    figure_image(figure)
    blocks = [text.get_window_extent() for text in figure.texts]
    for axes in matrices(figure):
        texts = [*axes.get_xticklabels(), *axes.get_yticklabels()]
        texts += [text for bar in axes.child_axes for text in bar.get_yticklabels()]
        boxes = [axes.images[0].get_window_extent(), *(t.get_window_extent() for t in texts)]
        if title_of(axes).get_text():
            title = title_of(axes).get_window_extent()
            assert title.y0 >= max(box.y1 for box in boxes)
            boxes.append(title)
        blocks.append(Bbox.union(boxes))
        cell = axes.images[0].get_window_extent().height / len(labels(axes.yaxis))
        assert max(text.get_window_extent().height for text in axes.get_yticklabels()) <= cell
    for index, block in enumerate(blocks):
        assert figure.bbox.x0 <= block.x0 <= block.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= block.y0 <= block.y1 <= figure.bbox.y1
        assert not any(block.overlaps(other) for other in blocks[:index])


@CELLS
@pytest.mark.parametrize(("num_source", "num_target"), [(1, 1), (2, 3), (10, 1), (80, 3)])
def test_label_k_sits_at_cell_k(num_source, num_target):
    source, target = words(num_source, "s"), words(num_target, "t")
    figure = draw(source, target)
    figure_image(figure)  # drawing must not replace the labels
    (axes,) = matrices(figure)
    assert list(axes.get_xticks()) == list(range(num_source))
    assert list(axes.get_yticks()) == list(range(num_target))
    assert (labels(axes.xaxis), labels(axes.yaxis)) == (source, target)


@CELLS
def test_panels_show_their_weights_and_labels_in_reading_order():
    """All cells have one size in whole pixels, all colors one scale from 0 to 1."""
    panels = [panel(*shape, seed=seed) for seed, shape in enumerate(SHAPES)]
    panels[3].weights[:] = 0  # a model without attention: a blank matrix
    figure = panel_figure(panels, 3)
    pixels = figure_image(figure)
    assert len(matrices(figure)) == len(panels)
    assert [text.get_text() for text in figure.texts] == [CAPTION]
    corners = []
    for axes, drawn in zip(matrices(figure), panels, strict=True):
        assert labels(axes.xaxis) == drawn.source_tokens
        assert labels(axes.yaxis) == drawn.target_tokens
        assert axes.images[0].get_clim() == (0, 1)
        for place in np.ndindex(*drawn.weights.shape):
            expected = COLORS(drawn.weights[place], bytes=True)[:3]
            assert abs(pixel(figure, pixels, axes, *place) - expected).max() <= 2
        box = axes.images[0].get_window_extent()
        size = np.divide(box.size, drawn.weights.shape[::-1])
        np.testing.assert_allclose(size, round(size[0]))
        np.testing.assert_allclose(
            size[0], matrices(figure)[0].images[0].get_window_extent().width / 10
        )
        corners.append((round(box.x0), round(box.y1)))
    for index, (left, top) in enumerate(corners):
        assert (left, top) == (corners[index % 3][0], corners[index - index % 3][1])
    assert corners[0][0] < corners[1][0] < corners[2][0]
    assert corners[0][1] > corners[3][1] > corners[6][1]


@BOUNDED
@pytest.mark.parametrize(
    ("source", "target", "title"),
    [
        (["a"], ["b"], ""),
        (words(12, "source"), words(12, "target"), "A title that is too long for a line " * 6),
        ([LONG] * 3, ["Etikettierung"], "x" * 300),
        (["short", "last", "Donaudampfschifffahrtskapitän"], ["y"], "lines\nof\n\nits own"),
        (words(90, "source"), words(3, "target"), "wide"),
        (words(3, "source"), words(100, "target"), "wide letters " + "W" * 120),
    ],
)  # fmt: skip
def test_nothing_is_clipped_and_no_labels_touch(source, target, title):
    assert_readable(draw(source, target, title))


@BOUNDED
@pytest.mark.parametrize(
    ("panels", "columns"),
    [
        ([panel(title=f"attention number {index}") for index in range(7)], 6),
        ([panel(*shape, title="a long title " * 9) for shape in SHAPES[:4]], 2),
        ([panel(1, 1, title="x" * 300), panel(1, 1, "W" * 40)], 2),
        ([panel(2, 3)], 4),
        ([panel(24, 45), panel(45, 3)], 2),
    ],
)
def test_no_panel_is_clipped_or_touches_another(panels, columns):
    assert_readable(panel_figure(panels, columns))


@BOUNDED
def test_size_is_bounded_for_long_and_for_many_sentences():
    assert max(draw(words(250, "s"), words(250, "t")).bbox.size) < 2000
    assert (panel_figure([panel()] * 18, 6).bbox.size <= (1920, 1080)).all()


@pytest.mark.parametrize(
    ("source", "target"), [(list("ab"), list("cde")), ([], ["a"]), (["a"], [])]
)
def test_weights_that_do_not_match_the_tokens_are_refused(source, target):
    weights = np.zeros((2, 3) if source and target else (len(target), len(source)))
    expected = f"cannot be drawn for {len(target)} target and {len(source)} source.*at least one"
    with pytest.raises(ValueError, match=expected):
        alignment_figure(weights, source, target, "")
    with pytest.raises(ValueError, match=expected):
        panel_figure([panel(), Panel("", weights, source, target)], 2)


@pytest.mark.parametrize(("number", "columns"), [(0, 2), (2, 0)])
def test_no_panels_or_columns_are_refused(number, columns):
    with pytest.raises(ValueError, match=f"{number} panels in {columns} columns"):
        panel_figure([panel()] * number, columns)


@SUBSTITUTES
def test_characters_without_a_font_are_replaced_with_one_warning(caplog):
    source, target = ["我", "爱", "你", "我们的公园", "他们的花园"], ["ich", "liebe", "dich"]
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            figure = draw(source, target, "我 爱 你", fonts=("DejaVu Sans", "No Such Font"))
            figure_image(figure)
    assert len(caplog.records) == 1
    assert "U+6211" in caplog.text
    (axes,) = matrices(figure)
    assert labels(axes.xaxis) == ["U+6211", "U+7231", "U+4F60", "[3]", "[4]"]
    assert labels(axes.yaxis) == target
    assert title_of(axes).get_text() == "U+6211 U+7231 U+4F60"


@SUBSTITUTES
def test_characters_with_a_font_are_kept_without_a_warning(caplog):
    tokens = ["über", "λόγος", "слово", "שלום", "سلام", "▁the", "don't", "—", "a\u200cb", "x̂"]
    figure = draw(tokens, tokens)
    figure_image(figure)
    (axes,) = matrices(figure)
    assert labels(axes.xaxis) == labels(axes.yaxis) == tokens
    assert not caplog.records


def test_invisible_and_long_tokens_become_readable(caplog):
    (axes,) = matrices(draw([" ", "\t", "a b", "\u200b", "\x07", "\u0301", LONG], ["x"]))
    *shown, shortened = labels(axes.xaxis)
    assert shown == ["␣", "␣", "a␣b", "U+200B", "U+0007", "◌\u0301"]
    assert shortened.startswith("Donaudampf")
    assert shortened.endswith("kapitän")
    assert not caplog.records  # these characters need no font


def test_dollar_signs_are_not_formulas():
    tokens = ["$x$", "$", "a_b^c", r"\frac", "$$"]
    figure = draw(tokens, tokens, "$x_1$ costs 5 $")
    figure_image(figure)
    (axes,) = matrices(figure)
    texts = [*axes.get_xticklabels(), *axes.get_yticklabels(), title_of(axes)]
    assert [text.get_text() for text in texts] == [*tokens, *tokens, "$x_1$ costs 5 $"]
    assert not any(text.get_parse_math() for text in texts)


@RIGHT_TO_LEFT
@pytest.mark.skipif(not ORDERS_TEXT, reason="matplotlib orders such text from 3.11 on")
def test_right_to_left_text_reads_from_the_right():
    """The reference figure draws the letters from left to right, in visual order."""
    drawn = []
    for text in ("שלום", "\u202dםולש\u202c", "\u202dשלום\u202c"):
        figure = draw(["a"], ["b"], "שלום")
        title_of(figure.axes[0]).set_text(text)
        drawn.append(figure_image(figure))
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()


@RIGHT_TO_LEFT
def test_right_to_left_tokens_stay_in_their_order():
    tokens = ["אני", "אוהב", "אותך"]
    (axes,) = matrices(draw(tokens, ["I", "love", "you"]))
    lefts = [label.get_window_extent().x0 for label in axes.get_xticklabels()]
    assert labels(axes.xaxis) == tokens
    assert lefts == sorted(lefts)
