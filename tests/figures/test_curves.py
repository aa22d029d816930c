import numpy as np
import pytest
from matplotlib.colors import to_rgb

from seq2seq.evaluation.significance import Estimate, LengthBin
from seq2seq.figures.curves import PALETTE, Curve, length_figure
from seq2seq.figures.style import figure_image

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


def texts(figure):
    (axes,) = figure.axes
    written = [axes._left_title, *axes.texts, *axes.get_yticklabels(), *figure.texts]
    return [text for text in written if text.get_text()]


def curves_of(figure):
    return [line for line in figure.axes[0].lines if line.get_marker() not in ("None", "")]


def test_points_stand_at_mean_length_and_score_between_the_borders_of_their_bins():
    figure = draw(Curve("a", FALLING), Curve("b", STEADY, dashed=True))
    solid, dashed = curves_of(figure)
    assert (solid.get_linestyle(), dashed.get_linestyle()) == ("-", "--")
    for line, drawn in ((solid, FALLING), (dashed, STEADY)):
        np.testing.assert_array_equal(line.get_xdata(), [each.mean_length for each in drawn])
        np.testing.assert_array_equal(line.get_ydata(), [each.bleu.score for each in drawn])
    borders = [line.get_xdata()[0] for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    assert borders == [10.5, 20.5, 30.5]


@BOUNDED
@pytest.mark.parametrize("edges", [(1, 2, 10000), (1000, 1001, 1002), (0, 100, 101)])
def test_width_is_bounded_for_any_bins(edges):
    figure = length_figure([Curve("a", bins([40, 30, 20, 10], edges=edges))], "")
    assert figure.bbox.width < 1600


def test_band_is_the_interval():
    figure = draw(Curve("a", FALLING))
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    for each in FALLING:
        heights = band[band[:, 0] == each.mean_length, 1]
        assert (heights.min(), heights.max()) == (each.bleu.low, each.bleu.high)


def test_bin_without_a_score_interrupts_the_line():
    (line,) = curves_of(draw(Curve("a", bins([40, None, 20, 10]))))
    assert np.isnan(line.get_ydata()).tolist() == [False, True, False, False]


def test_bins_without_sentences_at_the_ends_are_left_out():
    figure = draw(Curve("a", bins([None, 30, 20, None])))
    (line,) = curves_of(figure)
    assert len(line.get_xdata()) == 2
    written = [text.get_text() for text in texts(figure)]
    assert "11–20" in written
    assert "> 30" not in written


def test_every_bin_and_curve_is_labeled_once():
    counts = [7, 1234, 33, 5]
    curves = [Curve(name, bins(range(40, 20, -5), counts)) for name in "abc"]
    written = [text.get_text() for text in texts(draw(*curves))]
    for expected in ["≤ 10", "11–20", "21–30", "> 30", "7", "1,234", "33", "5", *"abc"]:
        assert written.count(expected) == 1


@pytest.mark.parametrize(
    ("edges", "number"),
    [((10, 20, 30), 1), ((2, 3, 4), 2), ((8, 200, 201), 14), ((0, 1, 5000), 2)],
)
def test_no_texts_touch_or_are_clipped(edges, number):
    """Holds also when all lines end at one point."""
    drawn = bins([60, 50, 40, 30], [12345, 1, 67890, 50], edges)
    names = [f"$ystem number {index}" for index in range(number)]
    figure = draw(*(Curve(name, drawn) for name in names), title="a long title " * 20)
    found = [text for text in texts(figure) if text not in figure.axes[0].get_yticklabels()]
    boxes = [text.get_tightbbox() for text in found if text.get_text() not in names]
    boxes += [
        super(type(text), text).get_window_extent() for text in found if text.get_text() in names
    ]
    for index, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 <= box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:index])


def test_names_stand_at_the_ends_of_their_lines_where_there_is_room():
    curves = [Curve(f"{score}", bins([50, 45, 40, score])) for score in (10, 38, 30, 20)]
    figure = draw(*curves)
    axes = figure.axes[0]
    for text in axes.texts:
        if text.get_text() in {"10", "20", "30", "38"}:
            wanted = axes.transData.transform((0, float(text.get_text())))[1]
            box = super(type(text), text).get_window_extent()
            assert (box.y0 + box.y1) / 2 == pytest.approx(wanted, abs=2)


def test_colors_are_those_that_color_blind_readers_tell_apart():
    """Wong 2011, Nature Methods 8:441, figure 2, without its yellow, which is pale on white."""
    published = {
        (0, 0, 0),
        (230, 159, 0),
        (86, 180, 233),
        (0, 158, 115),
        (0, 114, 178),
        (213, 94, 0),
        (204, 121, 167),
    }
    assert {tuple(round(255 * part) for part in to_rgb(color)) for color in PALETTE} == published


def test_thirty_curves_all_look_different():
    figure = length_figure([Curve(str(index), FALLING) for index in range(30)], "")
    looks = {(line.get_color(), line.get_marker()) for line in curves_of(figure)}
    assert len(looks) == 30


def test_curves_of_different_sentences_are_refused():
    other = bins([40, 30, 20, 10], [50, 50, 50, 51])
    with pytest.raises(ValueError, match="same sentences in the same bins"):
        length_figure([Curve("a", FALLING), Curve("b", other)], "")


def test_curves_without_scores_are_refused():
    with pytest.raises(ValueError, match="nothing to draw"):
        length_figure([], "")
    empty = bins([None] * 4, [50] * 4)
    with pytest.raises(ValueError, match=r"no bin of \['b'\] has a BLEU"):
        length_figure([Curve("a", FALLING), Curve("b", empty)], "")
