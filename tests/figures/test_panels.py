import warnings

import numpy as np
import pytest
from matplotlib.image import imread

from seq2seq.figures import heatmap
from seq2seq.figures.heatmap import COLORS, figure_image, save_figure
from seq2seq.figures.panels import Panel, panel_figure

GERMAN = ["Zwei", "Männer", "stehen", "am", "Herd", "und", "bereiten", "Essen", "zu", "."]
ENGLISH = ["Two", "men", "are", "at", "the", "stove", "preparing", "food", "."]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """Every warning is an error, and none has been given yet."""
    monkeypatch.setattr(heatmap, "_missing_font_reported", False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def panel(num_source=10, num_target=9, title="a title", seed=0):
    weights = np.random.default_rng(seed).dirichlet(np.full(num_source, 0.3), size=num_target)
    source, target = (GERMAN * 5)[:num_source], (ENGLISH * 5)[:num_target]
    return Panel(title, weights, source, target)


def draw(panels, columns):
    figure = panel_figure(panels, columns)
    pixels = figure_image(figure)
    return figure, pixels


def matrices(figure):
    """The axes of the panels, without that of the colour scale."""
    return [axes for axes in figure.axes if axes.images]


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


SHAPES = [(10, 9), (3, 4), (1, 1), (16, 12), (12, 16), (2, 1), (5, 5)]


@pytest.fixture(scope="module")
def several():
    """A figure of seven panels in three columns, its pixels, and the panels."""
    panels = [panel(*shape, seed=seed) for seed, shape in enumerate(SHAPES)]
    return *draw(panels, 3), panels


def test_label_k_sits_at_cell_k_of_every_panel(several):
    figure, _, panels = several
    assert len(matrices(figure)) == len(panels)
    for axes, drawn in zip(matrices(figure), panels, strict=True):
        assert list(axes.get_xticks()) == list(range(len(drawn.source_tokens)))
        assert list(axes.get_yticks()) == list(range(len(drawn.target_tokens)))
        assert labels(axes.xaxis) == drawn.source_tokens
        assert labels(axes.yaxis) == drawn.target_tokens


def test_the_colour_of_each_cell_is_that_of_its_weight_on_one_scale(several):
    figure, pixels, panels = several
    for axes, drawn in zip(matrices(figure), panels, strict=True):
        assert axes.images[0].get_clim() == (0, 1)
        for row, column in np.ndindex(*drawn.weights.shape):
            x, y = axes.transData.transform((column, row))
            shown = pixels[len(pixels) - 1 - int(y), int(x)].astype(int)
            expected = COLORS(drawn.weights[row, column], bytes=True)[:3]
            assert abs(shown - expected).max() <= 2


def test_a_cell_has_one_size_in_all_panels(several):
    figure, _, panels = several
    for axes, drawn in zip(matrices(figure), panels, strict=True):
        cell = axes.bbox.width / len(drawn.source_tokens)
        assert cell == pytest.approx(axes.bbox.height / len(drawn.target_tokens))
        assert cell == pytest.approx(matrices(figure)[2].bbox.width)
        assert cell == pytest.approx(round(cell))


def test_panels_read_like_a_text(several):
    """From left to right, then down; matrices of a row and of a column stand in line."""
    figure, _, _ = several
    corners = [(round(axes.bbox.x0), round(axes.bbox.y1)) for axes in matrices(figure)]
    for index, (left, top) in enumerate(corners):
        assert left == corners[index % 3][0]
        assert top == corners[index - index % 3][1]
    assert corners[0][0] < corners[1][0] < corners[2][0]
    assert corners[0][1] > corners[3][1] > corners[6][1]


@pytest.mark.parametrize(
    ("panels", "columns"),
    [
        ([panel(title=f"attention number {index}") for index in range(7)], 6),
        ([panel(*shape, title="a long title " * 9) for shape in SHAPES[:4]], 2),
        ([panel(*shape, title="W" * 40) for shape in SHAPES[1:3]], 2),
        ([panel(1, 1, title="x" * 300)] * 3, 2),
        ([panel(2, 3)], 4),
        ([panel(24, 24)] * 2, 2),
    ],
)
def test_nothing_touches_and_nothing_is_cut_off(panels, columns):
    figure, _ = draw(panels, columns)
    blocks, bar = [], figure.axes[-1]
    for axes, title in zip(matrices(figure), figure.texts, strict=False):
        texts = [*axes.get_xticklabels(), *axes.get_yticklabels()]
        if axes is matrices(figure)[min(columns, len(panels)) - 1]:
            texts += bar.get_yticklabels()
        boxes = [axes.bbox, title.get_window_extent(), *(t.get_window_extent() for t in texts)]
        assert title.get_window_extent().y0 >= max(box.y1 for box in boxes if box is not boxes[1])
        blocks.append(type(axes.bbox.frozen()).union(boxes))
    blocks.append(figure.texts[-1].get_window_extent())
    for index, block in enumerate(blocks):
        assert figure.bbox.x0 <= block.x0 <= block.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= block.y0 <= block.y1 <= figure.bbox.y1
        assert not any(block.overlaps(other) for other in blocks[:index])


def test_labels_of_neighbours_do_not_touch():
    figure, _ = draw([panel(3, 45), panel(45, 3)], 2)
    axes = matrices(figure)[0]
    heights = [label.get_window_extent().height for label in axes.get_yticklabels()]
    assert max(heights) <= axes.bbox.height / 45


def test_eighteen_short_sentences_fit_on_a_screen():
    width, height = panel_figure([panel()] * 18, 6).bbox.size
    assert width <= 1920
    assert height <= 1080


def test_one_scale_and_one_caption_for_all():
    figure, _ = draw([panel()] * 5, 3)
    assert len(figure.axes) == 5 + 1
    assert [text.get_text() for text in figure.texts] == ["a title"] * 5 + [heatmap.CAPTION]


def test_no_attention_is_a_blank_matrix():
    blank = panel()._replace(weights=np.zeros((len(ENGLISH), len(GERMAN))))
    figure, pixels = draw([panel(), blank], 2)
    axes = matrices(figure)[1]
    for row, column in np.ndindex(len(ENGLISH), len(GERMAN)):
        x, y = axes.transData.transform((column, row))
        assert (pixels[len(pixels) - 1 - int(y), int(x)] == 255).all()


def test_a_token_without_a_font_is_shown_by_code_point(caplog):
    chinese = Panel("我", [[1.0]], ["我"], ["ich"])
    figure = panel_figure([chinese, chinese], 2, fonts=("DejaVu Sans",))
    figure_image(figure)
    assert labels(matrices(figure)[0].xaxis) == ["U+6211"]
    assert len(caplog.records) == 1


def test_weights_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"\(9, 10\) cannot be drawn for 10 target and 9 source"):
        panel_figure([panel(), Panel("", panel().weights, ENGLISH, GERMAN)], 2)


@pytest.mark.parametrize(("number", "columns"), [(0, 2), (2, 0)])
def test_no_panels_or_columns_are_refused(number, columns):
    with pytest.raises(ValueError, match=f"{number} panels in {columns} columns"):
        panel_figure([panel()] * number, columns)


def test_the_file_and_the_pixels_are_one_picture(tmp_path):
    figure, pixels = draw([panel()] * 3, 2)
    save_figure(figure, tmp_path / "panels.png")
    from_file = imread(tmp_path / "panels.png")[..., :3]
    np.testing.assert_array_equal(np.round(from_file * 255).astype(np.uint8), pixels)
