"""Heatmaps of attention: one cell for every pair of a generated and a source token.

Weights and tokens in, a figure out. Bahdanau et al. 2015, arXiv:1409.0473, figure 3.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from seq2seq.figures.style import (
    COLORS,
    FONTS,
    GAP,
    INK,
    LARGE_FONT,
    LINES,
    MUTED,
    POINT,
    SMALL_FONT,
    Fonts,
    find_fonts,
    lay_out,
    new_figure,
)

# In pixels. A cell is a whole number of pixels, or equal cells would not look equal.
SMALLEST_CELL, LARGEST_CELL = 14, 38
MATRIX_WIDTH, MAX_MATRIX_WIDTH = 900, 1600  # of a single matrix
MATRICES_WIDTH = 1300  # of a row of matrices, unless its cells would be too small to read
MIN_PANEL, MIN_WIDTH = 110, 330  # room for the titles, of one panel and of a row
BAR_WIDTH, BAR_LENGTH, BAR_ROOM = 11, 220, 50
CAPTION = "columns: source   rows: translation   color: attention weight"


class Panel(NamedTuple):
    """One alignment: ``weights`` (T, S), S source and T target tokens, as for ``alignment_figure``.

    A model without attention has weights of 0, which are drawn as a blank matrix.
    """

    title: str
    weights: ArrayLike
    source_tokens: Sequence[str]
    target_tokens: Sequence[str]

    @property
    def longer(self) -> int:
        return max(len(self.source_tokens), len(self.target_tokens))


def alignment_figure(
    weights: ArrayLike,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str,
    fonts: Iterable[str] = FONTS,
) -> Figure:
    """Draw the alignment of a sentence: row i shows the weights used to generate target token i.

    The color scale is fixed to 0..1, so figures of different steps and sentences compare. Cells and
    letters shrink with the number of tokens, which bounds the size; up to 100 stay readable.

    From version 3.11 on, matplotlib itself joins and orders the letters of Arabic and Hebrew;
    earlier versions draw them unjoined, from left to right. Rows and columns are in token order.

    Args:
        weights: (T, S) in [0, 1], without padding; with the end token if that is shown.
        source_tokens: S labels of the columns.
        target_tokens: T labels of the rows, from top to bottom.
        title: wrapped to the width of the figure; its own line breaks are kept.
        fonts: families to draw with. A token that contains a character of none of the installed
            ones is shown by code points or, where these are too long, by its position from 0, as in
            ``[3]``; the first time, a warning says so.

    Raises:
        ValueError: the shape does not match the tokens, or there are no tokens.
    """
    panel = Panel(title, weights, source_tokens, target_tokens)
    _check(panel)
    cell: float = max(SMALLEST_CELL, min(LARGEST_CELL, MATRIX_WIDTH // panel.longer))
    cell = min(cell, MAX_MATRIX_WIDTH / panel.longer)
    return draw_panels([panel], 1, cell, min(LARGE_FONT, 0.72 * cell), CAPTION, fonts)


def panel_figure(panels: Sequence[Panel], columns: int, fonts: Iterable[str] = FONTS) -> Figure:
    """Draw alignments in rows of ``columns``, in reading order, as ``alignment_figure`` draws one.

    All panels have the same size of cell, so a long sentence makes a large matrix, not small
    letters. Six sentences of 9 tokens fit side by side on a screen.

    Args:
        panels: in reading order; titles are wrapped to the width of their panel.
        columns: panels in a row, at least 1.
        fonts: families to draw with, as for ``alignment_figure``.

    Raises:
        ValueError: there are no panels or columns, or a panel's weights do not match its tokens.
    """
    if not panels or columns < 1:
        raise ValueError(f"{len(panels)} panels in {columns} columns: both must be at least 1.")
    for panel in panels:
        _check(panel)
    columns = min(columns, len(panels))
    longest = max(panel.longer for panel in panels)
    cell = max(SMALLEST_CELL, min(LARGEST_CELL, MATRICES_WIDTH // (columns * longest)))
    # Letters small enough for labels to slant in cells of any size; upright ones are hard to read.
    return draw_panels(panels, columns, cell, min(LARGE_FONT, 0.6 * cell), CAPTION, fonts)


def _check(panel: Panel) -> None:
    shape = np.shape(panel.weights)
    num_source, num_target = len(panel.source_tokens), len(panel.target_tokens)
    if shape != (num_target, num_source) or not num_source * num_target:
        raise ValueError(
            f"weights of shape {shape} cannot be drawn for {num_target} target and {num_source} "
            f"source tokens; rows are target tokens, and each side must have at least one token."
        )


def draw_panels(
    panels: Sequence[Panel],
    columns: int,
    cell: float,
    font: float,
    caption: str,
    names: Iterable[str] = FONTS,
    bar: bool = True,
) -> Figure:
    """Draw panels in rows of ``columns``.

    Args:
        panels: in reading order.
        columns: panels in a row, at most as many as there are panels.
        cell: width and height of a cell in pixels.
        font: size of the labels in pixels.
        caption: written below all panels.
        names: font families, as for ``alignment_figure``.
        bar: whether a color scale stands at the end of the first row.
    """
    fonts = find_fonts(tuple(names))
    for panel in panels:
        fonts.report_missing("".join([panel.title, *panel.source_tokens, *panel.target_tokens]))
    # The smallest size of all matrices in a column or a row, in cells.
    least = max(MIN_PANEL, MIN_WIDTH / columns) / cell
    across = [
        max(least, *(len(panel.source_tokens) for panel in panels[column::columns]))
        for column in range(columns)
    ]
    down = [
        max(len(panel.target_tokens) for panel in panels[first : first + columns])
        for first in range(0, len(panels), columns)
    ]
    widths, heights = [cell * size for size in across], [cell * size for size in down]
    figure = new_figure()
    grid = figure.subplots(len(down), columns, squeeze=False)
    for index, axes in enumerate(grid.flat):
        row, column = divmod(index, columns)
        axes.set(xlim=(-0.5, across[column] - 0.5), ylim=(down[row] - 0.5, -0.5))
        if index < len(panels):
            draw_matrix(axes, panels[index], cell, font, fonts)
        else:
            axes.set_axis_off()
    if bar:
        _draw_bar(grid[0, -1], cell, fonts)
    _draw_titles(grid, panels, widths, BAR_ROOM if bar else 0, fonts)
    fonts.style(figure.text(0, 0, caption), SMALL_FONT, MUTED)
    lay_out(figure, grid, widths, heights)
    return figure


def draw_matrix(axes: Axes, panel: Panel, cell: float, font: float, fonts: Fonts) -> None:
    """Draw the cells, and the label of every row and column, at the upper left of the axes.

    The limits of the axes are kept; they say how much larger than the matrix the axes are.
    """
    weights = np.asarray(panel.weights, dtype=np.float64)
    limits = axes.get_xlim(), axes.get_ylim()
    axes.imshow(weights, cmap=COLORS, vmin=0, vmax=1, aspect="auto", interpolation="none")
    axes.set(xlim=limits[0], ylim=limits[1])
    row_ends, column_ends = (np.arange(size + 1) - 0.5 for size in weights.shape)
    lines = (
        axes.hlines(row_ends, column_ends[0], column_ends[-1]),
        axes.vlines(column_ends, row_ends[0], row_ends[-1]),
    )
    for line in lines:
        line.set(color=LINES, linewidth=POINT, clip_on=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labeltop=True, labelbottom=False, pad=0.8 * GAP * POINT)

    columns = [fonts.label(token, index) for index, token in enumerate(panel.source_tokens)]
    rows = [fonts.label(token, index) for index, token in enumerate(panel.target_tokens)]
    # As flat as possible without touching the neighbor.
    if max(fonts.width(label, font) for label in columns) <= cell - 4:
        rotation, ha, va = 0, "center", "bottom"
    else:
        rotation = 45 if 1.15 * font <= cell * math.sin(math.radians(45)) else 90
        ha, va = "left", "center_baseline"
    # Positions and labels in one call: labels alone would go to whichever ticks there are.
    axes.set_xticks(range(len(columns)), columns, ha=ha, va=va, rotation=rotation)
    axes.set_yticks(range(len(rows)), rows, va="center_baseline")
    for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]:
        label.set_rotation_mode("anchor")
        fonts.style(label, font, INK)


def _draw_bar(axes: Axes, cell: float, fonts: Fonts) -> None:
    """Draw the color scale to the right of a matrix."""
    (image,) = axes.images
    num_target, num_source = image.get_array().shape  # type: ignore[union-attr]
    across, down = (abs(end - start) for start, end in (axes.get_xlim(), axes.get_ylim()))
    length = min(BAR_LENGTH / cell, num_target)
    left, bottom = (num_source + GAP / cell) / across, 1 - length / down
    inset = axes.inset_axes((left, bottom, BAR_WIDTH / cell / across, length / down))
    bar = axes.figure.colorbar(image, cax=inset)
    bar.outline.set(edgecolor=LINES, linewidth=POINT)
    inset.set_yticks([0, 0.5, 1] if length * cell > 60 else [0, 1])
    inset.tick_params(length=GAP / 3 * POINT, width=POINT, color=MUTED, pad=GAP / 3 * POINT)
    for label in inset.get_yticklabels():
        fonts.style(label, SMALL_FONT, MUTED)


def _draw_titles(
    grid: NDArray[Any],
    panels: Sequence[Panel],
    widths: Sequence[float],
    bar_room: float,
    fonts: Fonts,
) -> None:
    """Write the titles above the labels, aligned in every row and wrapped to their column."""
    # How far labels reach beyond their axes does not depend on the layout.
    boxes = np.array(
        [(box.x0 - a.bbox.x0, box.y1 - a.bbox.y1) for a in grid.flat for box in [a.get_tightbbox()]]
    ).reshape(*grid.shape, 2)
    lefts, tops = boxes[..., 0].min(axis=0), boxes[..., 1].max(axis=1) + GAP
    room = widths - lefts
    room[-1] += bar_room
    for row, first in enumerate(range(0, len(panels), len(lefts))):
        texts = [
            fonts.wrap(panel.title, LARGE_FONT, width)
            for panel, width in zip(panels[first:], room, strict=False)
        ]
        most = max(text.count("\n") for text in texts)
        for text, axes, width, left in zip(texts, grid[row], widths, lefts, strict=False):
            lines = text + "\n" * (most - text.count("\n"))  # the first lines are level
            title = axes.set_title(lines, loc="left", x=left / width, y=1, pad=tops[row] * POINT)
            fonts.style(title, LARGE_FONT, INK)
