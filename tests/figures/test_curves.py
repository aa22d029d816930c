import numpy as np
import pytest
from matplotlib.text import Text

from seq2seq.evaluation.significance import Estimate, LengthBin
from seq2seq.figures.curves import Curve, length_figure
from seq2seq.figures.style import figure_image

pytestmark = pytest.mark.filterwarnings("error")
BOUNDED = pytest.mark.guarantee(
    "The size of a figure is bounded, whatever the sentence, and nothing in it is clipped."
)


def bins(scores, counts=None, edges=(10, 20, 30)):
    """Make a bin for every score; without a score it is empty unless ``counts`` differs."""
    counts = counts or [0 if score is None else 50 for score in scores]
    firsts, lasts = [0, *(edge + 1 for edge in edges)], [*edges, None]
    return [
        LengthBin(
            first,
            last,
            count,
            first + 5.0 if count else None,
            None if score is None else Estimate(score, score - 3, score + 2),
        )
        for first, last, count, score in zip(firsts, lasts, counts, scores, strict=True)
    ]


FALLING, STEADY = bins([40, 30, 20, 10]), bins([42, 41, 40, 38])


def draw(*curves, title="title"):
    figure = length_figure(curves, title)
    figure_image(figure)
    return figure


def written(figure):
    (axes,) = figure.axes
    texts = [axes._left_title, *axes.texts, *figure.texts]
    return {text.get_text(): text for text in texts if text.get_text()}


def lines(figure):
    return [line for line in figure.axes[0].lines if line.get_marker() not in ("None", "")]


def box(text):
    """Return the extent of a text without the line that may lead to it."""
    return Text.get_window_extent(text)


def test_lines_and_bands_show_the_bins():
    figure = draw(Curve("a", FALLING), Curve("b", STEADY, dashed=True))
    assert [line.get_linestyle() for line in lines(figure)] == ["-", "--"]
    for line, drawn in zip(lines(figure), (FALLING, STEADY), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [each.mean_length for each in drawn])
        np.testing.assert_array_equal(line.get_ydata(), [each.bleu.score for each in drawn])
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    for each in FALLING:
        heights = band[band[:, 0] == each.mean_length, 1]
        assert (heights.min(), heights.max()) == (each.bleu.low, each.bleu.high)
    borders = [line.get_xdata()[0] for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    assert borders == [10.5, 20.5, 30.5]


def test_bin_without_a_score_interrupts_the_line():
    (line,) = lines(draw(Curve("a", bins([40, None, 20, 10]))))
    assert np.isnan(line.get_ydata()).tolist() == [False, True, False, False]


def test_bins_without_sentences_at_the_ends_are_left_out():
    figure = draw(Curve("a", bins([None, 30, 20, None])))
    assert len(lines(figure)[0].get_xdata()) == 2
    assert "11–20" in written(figure)
    assert "> 30" not in written(figure)


@BOUNDED
@pytest.mark.parametrize("edges", [(1, 2, 10000), (1000, 1001, 1002), (0, 100, 101)])
def test_width_is_bounded_for_any_bins(edges):
    figure = length_figure([Curve("a", bins([40, 30, 20, 10], edges=edges))], "")
    assert figure.bbox.width < 1600


@BOUNDED
@pytest.mark.parametrize(
    ("edges", "number"),
    [((10, 20, 30), 1), ((2, 3, 4), 2), ((8, 200, 201), 14), ((0, 1, 5000), 2)],
)
def test_no_texts_touch_or_are_clipped(edges, number):
    """This holds even if all lines end at one point."""
    drawn = bins([60, 50, 40, 30], [12345, 1, 67890, 77], edges)
    names = [f"$ystem number {index}$" for index in range(number)]
    figure = draw(*(Curve(name, drawn) for name in names), title="a long title " * 20)
    texts = written(figure)
    assert {*names, *(each.label for each in drawn), "12,345", "1", "67,890", "77"} <= set(texts)
    boxes = [box(text) for text in texts.values()]
    for index, each in enumerate(boxes):
        assert figure.bbox.x0 <= each.x0 <= each.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= each.y0 <= each.y1 <= figure.bbox.y1
        assert not any(each.overlaps(other) for other in boxes[:index])


def test_names_stand_at_the_ends_of_their_lines_where_there_is_room():
    scores = (10, 38, 30, 20)
    figure = draw(*(Curve(f"{score} BLEU", bins([50, 45, 40, score])) for score in scores))
    for score in scores:
        wanted = figure.axes[0].transData.transform((0, score))[1]
        extent = box(written(figure)[f"{score} BLEU"])
        assert (extent.y0 + extent.y1) / 2 == pytest.approx(wanted, abs=2)


def test_thirty_curves_all_look_different():
    figure = length_figure([Curve(str(index), FALLING) for index in range(30)], "")
    assert len({(line.get_color(), line.get_marker()) for line in lines(figure)}) == 30


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        ([FALLING, bins([4, 3, 2, 1], [50, 50, 50, 51])], "same sentences in the same bins"),
        ([FALLING, bins([None] * 4, [50] * 4)], r"no bin of \['1'\] has a BLEU"),
        ([], "nothing to draw"),
    ],
)
def test_curves_that_cannot_be_compared_are_refused(curves, message):
    with pytest.raises(ValueError, match=message):
        length_figure([Curve(str(index), drawn) for index, drawn in enumerate(curves)], "")
