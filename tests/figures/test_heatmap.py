import gc
import io
import logging
import os
import subprocess
import sys
import warnings
import weakref

import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread

from seq2seq import files
from seq2seq.figures import heatmap
from seq2seq.figures.heatmap import COLORS, alignment_figure, figure_image, save_figure

ORDERS_TEXT = tuple(map(int, matplotlib.__version__.split(".")[:2])) >= (3, 11)


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """Every warning is an error, and none has been given yet."""
    monkeypatch.setattr(heatmap, "_missing_font_reported", False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def draw(source, target, title="title", **options):
    weights = np.random.default_rng(0).dirichlet(np.full(len(source), 0.3), size=len(target))
    return alignment_figure(weights, source, target, title, **options)


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def words(count, prefix):
    return [f"{prefix}{index}" for index in range(count)]


@pytest.mark.parametrize("num_source", [1, 2, 10, 80])
@pytest.mark.parametrize("num_target", [1, 3])
def test_label_k_sits_at_cell_k(num_source, num_target):
    source, target = words(num_source, "s"), words(num_target, "t")
    figure = draw(source, target)
    figure_image(figure)  # drawing must not replace them either
    axes = figure.axes[0]
    assert list(axes.get_xticks()) == list(range(num_source))
    assert list(axes.get_yticks()) == list(range(num_target))
    assert (labels(axes.xaxis), labels(axes.yaxis)) == (source, target)


def test_the_colour_of_each_cell_is_that_of_its_weight():
    weights = np.random.default_rng(0).random((7, 30))
    figure = alignment_figure(weights, words(30, "s"), words(7, "t"), "title")
    pixels = figure_image(figure).astype(int)
    for row, column in np.ndindex(*weights.shape):
        x, y = figure.axes[0].transData.transform((column, row))
        shown = pixels[len(pixels) - 1 - int(y), int(x)]
        assert abs(shown - COLORS(weights[row, column], bytes=True)[:3]).max() <= 2


def test_the_colour_scale_is_the_same_for_faint_and_sharp_attention():
    faint = alignment_figure([[0.1, 0.2]], ["a", "b"], ["c"], "")
    sharp = alignment_figure([[0.0, 1.0]], ["a", "b"], ["c"], "")
    for figure in (faint, sharp):
        assert figure.axes[0].images[0].get_clim() == (0, 1)


def test_equal_steps_of_weight_are_equal_steps_of_lightness():
    """CIE 1976 L*: it falls from white all the way, nowhere 1.3 times as fast as on average."""
    rgb = COLORS(np.linspace(0, 1, 41))[:, :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16
    steps = -np.diff(lightness)
    assert lightness[0] == pytest.approx(100, abs=0.01)
    assert steps.min() > 0.7 * steps.mean()
    assert steps.max() < 1.3 * steps.mean()


@pytest.mark.parametrize(
    ("source", "target", "title"),
    [
        (["a"], ["b"], ""),
        (words(12, "source"), words(12, "target"), "A title that is too long for one line " * 6),
        (["Donaudampfschifffahrtsgesellschaftskapitän"] * 3, ["Etikettierung"], "x" * 300),
        (["short", "last", "Donaudampfschifffahrtskapitän"], ["y"], "lines\nof\n\nits own"),
        (words(90, "source"), words(3, "target"), "wide"),
        (list("abc"), list("def"), "wide letters " + "W" * 120),
    ],
)  # fmt: skip
def test_nothing_is_cut_off(source, target, title):
    figure = draw(source, target, title)
    figure_image(figure)
    axes, bar = figure.axes
    texts = [*axes.get_xticklabels(), *axes.get_yticklabels(), *bar.get_yticklabels()]
    boxes = [text.get_window_extent() for text in (*texts, *figure.texts)]
    for box in boxes:
        assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 <= box.y1 <= figure.bbox.y1
    tops = [label.get_window_extent().y1 for label in axes.get_xticklabels()]
    assert not title or max(tops) <= figure.texts[0].get_window_extent().y0


@pytest.mark.parametrize("count", [2, 40, 100])
def test_labels_of_neighbours_do_not_touch(count):
    figure = draw(["tokengy"] * count, ["tokengy"] * count)
    figure_image(figure)
    axes = figure.axes[0]
    heights = [label.get_window_extent().height for label in axes.get_yticklabels()]
    cell = axes.bbox.height / count
    assert max(heights) <= cell
    assert cell == pytest.approx(round(cell))


def test_the_size_is_bounded():
    width, height = draw(words(250, "s"), words(250, "t")).bbox.size
    assert max(width, height) < 2000


def test_weights_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"\(3, 2\) cannot be drawn for 2 target and 3 source"):
        alignment_figure(np.zeros((3, 2)), list("abc"), list("de"), "")


@pytest.mark.parametrize(("source", "target"), [([], ["a"]), (["a"], [])])
def test_no_tokens_are_refused(source, target):
    with pytest.raises(ValueError, match="some of both"):
        alignment_figure(np.zeros((len(target), len(source))), source, target, "")


class TestText:
    def test_without_a_font_labels_differ_and_one_warning_is_given(self, caplog):
        source, target = ["我", "爱", "你", "我们的公园", "他们的花园"], ["ich", "liebe", "dich"]
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                figure = draw(source, target, "我 爱 你", fonts=("DejaVu Sans", "No Such Font"))
                figure_image(figure)
        assert len(caplog.records) == 1
        assert "U+6211" in caplog.text
        shown = labels(figure.axes[0].xaxis)
        assert shown[:3] == ["U+6211", "U+7231", "U+4F60"]
        assert shown[3:] == ["[3]", "[4]"]
        assert labels(figure.axes[0].yaxis) == target
        assert figure.texts[0].get_text() == "U+6211 U+7231 U+4F60"

    def test_what_a_font_can_draw_is_not_replaced_and_not_warned_of(self, caplog):
        tokens = ["über", "λόγος", "слово", "שלום", "سلام", "▁the", "don't", "—", "a\u200cb", "x̂"]
        figure = draw(tokens, tokens)
        figure_image(figure)
        assert labels(figure.axes[0].xaxis) == labels(figure.axes[0].yaxis) == tokens
        assert not caplog.records

    def test_invisible_tokens_become_visible(self, caplog):
        figure = draw([" ", "\t", "a b", "\u200b", "\x07", "\u0301"], ["x"])
        figure_image(figure)
        shown = ["␣", "␣", "a␣b", "U+200B", "U+0007", "◌\u0301"]
        assert labels(figure.axes[0].xaxis) == shown
        assert not caplog.records  # no font is missing for these

    def test_no_token_is_a_formula(self):
        tokens = ["$x$", "$", "a_b^c", r"\frac", "$$"]
        figure = draw(tokens, tokens, "$x_1$ costs 5 $")
        image = figure_image(figure)
        assert labels(figure.axes[0].xaxis) == tokens
        without = draw(["x", *tokens[1:]], ["x", *tokens[1:]], "x_1 costs 5 $")
        assert (image != figure_image(without)).any()
        dollars, bare = (f.axes[0].get_yticklabels()[0] for f in (figure, without))
        assert dollars.get_window_extent().width > 1.5 * bare.get_window_extent().width

    def test_long_tokens_keep_both_ends(self):
        figure = draw(["Donaudampfschifffahrtsgesellschaftskapitän"], ["x"])
        (shown,) = labels(figure.axes[0].xaxis)
        assert shown.startswith("Donaudampf")
        assert shown.endswith("kapitän")

    @pytest.mark.skipif(not ORDERS_TEXT, reason="matplotlib orders such text from 3.11 on")
    def test_right_to_left_text_reads_from_the_right(self):
        """The reference picture draws the letters from left to right, in visual order."""
        figure = draw(["a"], ["b"], "שלום")
        reference = draw(["a"], ["b"], "שלום")
        reference.texts[0].set_text("\u202dםולש\u202c")
        wrong = draw(["a"], ["b"], "שלום")
        wrong.texts[0].set_text("\u202dשלום\u202c")
        np.testing.assert_array_equal(figure_image(figure), figure_image(reference))
        assert (figure_image(figure) != figure_image(wrong)).any()

    def test_right_to_left_tokens_stay_in_their_order(self):
        tokens = ["אני", "אוהב", "אותך"]
        figure = draw(tokens, ["I", "love", "you"])
        figure_image(figure)
        places = [label.get_window_extent().x0 for label in figure.axes[0].get_xticklabels()]
        assert labels(figure.axes[0].xaxis) == tokens
        assert places == sorted(places)


class TestOutput:
    def test_the_file_and_the_pixels_are_one_picture(self, tmp_path):
        figure = draw(words(5, "s"), words(4, "t"))
        pixels = figure_image(figure)
        save_figure(figure, tmp_path / "picture.png")
        from_file = imread(tmp_path / "picture.png")[..., :3]
        np.testing.assert_array_equal(np.round(from_file * 255).astype(np.uint8), pixels)
        assert pixels.dtype == np.uint8
        assert os.listdir(tmp_path) == ["picture.png"]

    @pytest.mark.parametrize(("name", "start"), [("a.pdf", b"%PDF"), ("a.svg", b"<?xml")])
    def test_the_name_says_what_kind_of_file(self, tmp_path, name, start):
        save_figure(draw(["a"], ["b"]), tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)

    def test_an_interrupted_write_leaves_the_previous_picture(self, tmp_path, monkeypatch):
        path = tmp_path / "picture.png"
        path.write_bytes(b"previous")

        def killed(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(files.os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            save_figure(draw(["a"], ["b"]), path)
        assert path.read_bytes() == b"previous"

    def test_an_unknown_kind_of_file_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="xyz"):
            save_figure(draw(["a"], ["b"]), tmp_path / "picture.xyz")
        assert not os.listdir(tmp_path)


class TestMemory:
    def test_figures_are_freed(self):
        figures = []
        for _ in range(5):
            figure = draw(["a", "b"], ["c"])
            figure_image(figure)
            figure.savefig(io.BytesIO())
            figures.append(weakref.ref(figure))
        del figure
        gc.collect()
        assert not any(figure() for figure in figures)

    def test_no_registry_and_no_display_are_involved(self):
        program = (
            "import sys; from seq2seq.figures import heatmap;"
            "figure = heatmap.alignment_figure([[1.0]], ['a'], ['b'], 'title');"
            "heatmap.figure_image(figure); assert 'matplotlib.pyplot' not in sys.modules"
        )
        environment = {name: value for name, value in os.environ.items() if name != "DISPLAY"}
        subprocess.run([sys.executable, "-c", program], check=True, env=environment)
