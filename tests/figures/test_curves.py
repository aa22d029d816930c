import subprocess
import sys
import warnings

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from seq2seq.evaluation.significance import Estimate, LengthBin
from seq2seq.figures.curves import PALETTE, Curve, length_figure
from seq2seq.figures.heatmap import figure_image, save_figure


@pytest.fixture(autouse=True)
def strict():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def bins(scores, counts=None, edges=(10, 20, 30)):
    """A bin of every score; None has none, and no sentences unless ``counts`` says otherwise."""
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
    """All that is written, with its place."""
    (axes,) = figure.axes
    return [
        text for text in [*axes.texts, *axes.get_yticklabels(), *figure.texts] if text.get_text()
    ]


def curves_of(figure):
    return [line for line in figure.axes[0].lines if line.get_marker() not in ("None", "")]


def test_points_stand_at_mean_length_and_score():
    falling, steady = curves_of(draw(Curve("a", FALLING), Curve("b", STEADY)))
    for line, drawn in ((falling, FALLING), (steady, STEADY)):
        np.testing.assert_array_equal(line.get_xdata(), [each.mean_length for each in drawn])
        np.testing.assert_array_equal(line.get_ydata(), [each.bleu.score for each in drawn])


def test_bins_are_parted_between_the_lengths_that_they_hold():
    borders = [
        line for line in draw(Curve("a", FALLING)).axes[0].lines if len(line.get_xdata()) == 2
    ]
    assert [line.get_xdata()[0] for line in borders] == [10.5, 20.5, 30.5]


@pytest.mark.parametrize("edges", [(1, 2, 10000), (1000, 1001, 1002), (0, 100, 101)])
def test_the_width_is_bounded_whatever_the_bins(edges):
    figure = length_figure([Curve("a", bins([40, 30, 20, 10], edges=edges))], "")
    assert figure.bbox.width < 1600


def test_the_band_is_the_interval():
    figure = draw(Curve("a", FALLING))
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    for each in FALLING:
        heights = band[band[:, 0] == each.mean_length, 1]
        assert (heights.min(), heights.max()) == (each.bleu.low, each.bleu.high)


def test_the_caller_says_which_lines_are_dashed():
    solid, dashed = curves_of(draw(Curve("a", STEADY), Curve("b", FALLING, dashed=True)))
    assert (solid.get_linestyle(), dashed.get_linestyle()) == ("-", "--")


def test_a_bin_without_a_score_breaks_the_line():
    (line,) = curves_of(draw(Curve("a", bins([40, None, 20, 10]))))
    assert np.isnan(line.get_ydata()).tolist() == [False, True, False, False]


def test_bins_beyond_the_longest_sentence_are_left_out():
    figure = draw(Curve("a", bins([None, 30, 20, None])))
    (line,) = curves_of(figure)
    assert len(line.get_xdata()) == 2
    written = [text.get_text() for text in texts(figure)]
    assert "11–20" in written
    assert "> 30" not in written


def test_every_bin_is_named_and_counted_once():
    counts = [7, 1234, 33, 5]
    curves = [Curve(name, bins(range(40, 20, -5), counts)) for name in "abc"]
    written = [text.get_text() for text in texts(draw(*curves))]
    for expected in ["≤ 10", "11–20", "21–30", "> 30", "7", "1,234", "33", "5", *"abc"]:
        assert written.count(expected) == 1


@pytest.mark.parametrize(
    ("edges", "number"),
    [((10, 20, 30), 1), ((2, 3, 4), 2), ((8, 200, 201), 14), ((0, 1, 5000), 2)],
)
def test_nothing_touches_and_nothing_is_cut_off(edges, number):
    """Whether the lines end far from each other, or all in one point."""
    drawn = bins([60, 50, 40, 30], [12345, 1, 67890, 50], edges)
    names = [f"a system with the number {index}" for index in range(number)]
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


def test_names_stand_in_the_order_of_the_lines_and_beside_them_where_there_is_room():
    curves = [Curve(f"{score}", bins([50, 45, 40, score])) for score in (10, 38, 30, 20)]
    figure = draw(*curves)
    axes = figure.axes[0]
    for text in axes.texts:
        if text.get_text() in {"10", "20", "30", "38"}:
            wanted = axes.transData.transform((0, float(text.get_text())))[1]
            box = super(type(text), text).get_window_extent()
            assert (box.y0 + box.y1) / 2 == pytest.approx(wanted, abs=2)


def test_the_colours_are_those_that_the_colour_blind_tell_apart():
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


def test_no_two_of_thirty_curves_look_alike():
    figure = length_figure([Curve(str(index), FALLING) for index in range(30)], "")
    looks = {(line.get_color(), line.get_marker()) for line in curves_of(figure)}
    assert len(looks) == 30


def test_no_name_is_a_formula():
    figure = draw(Curve("$x_1$", FALLING))
    assert any(text.get_text() == "$x_1$" and not text.get_parse_math() for text in texts(figure))


def test_curves_of_other_sentences_are_refused():
    other = bins([40, 30, 20, 10], [50, 50, 50, 51])
    with pytest.raises(ValueError, match="same sentences in the same bins"):
        length_figure([Curve("a", FALLING), Curve("b", other)], "")


def test_nothing_to_draw_is_refused():
    with pytest.raises(ValueError, match="nothing to draw"):
        length_figure([], "")
    silent = bins([None] * 4, [50] * 4)
    with pytest.raises(ValueError, match=r"no bin of \['b'\] has a BLEU"):
        length_figure([Curve("a", FALLING), Curve("b", silent)], "")


@pytest.mark.parametrize("name", ["a.png", "a.pdf", "a.svg"])
def test_it_can_be_saved(name, tmp_path):
    save_figure(draw(Curve("a", FALLING), Curve("b", STEADY)), tmp_path / name)
    assert (tmp_path / name).stat().st_size > 1000


def test_no_registry_is_involved():
    program = (
        "import sys; from seq2seq.figures import curves as length_figure, panels;"
        "from seq2seq.evaluation.significance import Estimate, LengthBin;"
        "bins = [LengthBin(0, None, 5, 7.0, Estimate(3, 2, 4))];"
        "length_figure.length_figure([length_figure.Curve('a', bins)], 'title');"
        "panels.panel_figure([panels.Panel('title', [[1.0]], ['a'], ['b'])], 1);"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
