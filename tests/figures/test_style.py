import gc
import os
import subprocess
import sys
import weakref

import numpy as np
import pytest
from matplotlib.image import imread

from seq2seq.figures.heatmap import alignment_figure
from seq2seq.figures.style import COLORS, figure_image, find_fonts, save_figure

FREED = pytest.mark.guarantee("Figures need no display and are freed after use.")
pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def figure():
    return alignment_figure([[0.2, 0.8], [0.5, 0.5]], ["a", "b"], ["c", "d"], "title")


def test_equal_steps_of_weight_are_equal_steps_of_lightness():
    """CIE 1976 L*: it falls from white, everywhere within 30 % of its average rate."""
    rgb = COLORS(np.linspace(0, 1, 41))[:, :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16
    steps = -np.diff(lightness)
    assert lightness[0] == pytest.approx(100, abs=0.01)
    assert steps.min() > 0.7 * steps.mean()
    assert steps.max() < 1.3 * steps.mean()


@pytest.mark.parametrize("text", ["long words in a title " * 9, "W" * 300, "i" * 300, "a\nb\n\nc"])
def test_wrapped_lines_fit_and_keep_their_line_breaks(text):
    fonts = find_fonts()
    lines = fonts.wrap(text, 15, 300).split("\n")
    assert all(fonts.width(line, 15) <= 300 for line in lines)
    assert len(lines) <= 8
    assert "\n" not in text or lines == ["a", "b", "c"]


def test_saved_file_holds_the_pixels_of_the_image(figure, tmp_path):
    pixels = figure_image(figure)
    save_figure(figure, tmp_path / "picture.png")
    from_file = imread(tmp_path / "picture.png")[..., :3]
    np.testing.assert_array_equal(np.round(from_file * 255).astype(np.uint8), pixels)
    assert pixels.dtype == np.uint8
    assert os.listdir(tmp_path) == ["picture.png"]


def test_suffix_chooses_the_format(figure, tmp_path):
    for name, start in (("a.pdf", b"%PDF"), ("a.svg", b"<?xml")):
        save_figure(figure, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(ValueError, match="xyz"):
        save_figure(figure, tmp_path / "a.xyz")
    assert not (tmp_path / "a.xyz").exists()


@FREED
def test_figures_are_freed():
    figures = []
    for _ in range(3):
        figure = alignment_figure([[1.0]], ["a"], ["b"], "title")
        figure_image(figure)
        figures.append(weakref.ref(figure))
    del figure
    gc.collect()
    assert not any(figure() for figure in figures)


@FREED
def test_figures_are_drawn_without_pyplot_and_display():
    program = """if True:
        import sys
        from seq2seq.evaluation.significance import Estimate, LengthBin
        from seq2seq.figures import curves, heatmap, style
        bins = [LengthBin(0, None, 5, 7.0, Estimate(3, 2, 4))]
        for figure in (
            heatmap.panel_figure([heatmap.Panel("title", [[1.0]], ["a"], ["b"])], 1),
            curves.length_figure([curves.Curve("a", bins)], "title"),
        ):
            style.figure_image(figure)
        assert "matplotlib.pyplot" not in sys.modules
    """
    environment = {name: value for name, value in os.environ.items() if name != "DISPLAY"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
