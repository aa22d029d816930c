"""Several alignments in one picture: sentences under one model, or one sentence under several.

Figure 3 of Bahdanau et al. 2015, arXiv:1409.0473, shows four of them. What a matrix looks like is
``heatmap``'s business; here they are put in rows and columns, with one colour scale for all.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from seq2seq.figures.heatmap import (
    BAR_LABELS,
    BAR_WIDTH,
    BOTTOM,
    CAPTION,
    DPI,
    FONTS,
    GAP,
    INK,
    LARGE_FONT,
    LARGEST_CELL,
    LINE_SPACING,
    MARGIN,
    MIN_WIDTH,
    MUTED,
    SMALL_FONT,
    SMALLEST_CELL,
    Layout,
    Ruler,
    add_axes,
    check_shape,
    draw_bar,
    draw_matrix,
    lay_out,
    readable,
    report_missing,
    style,
    usable_fonts,
    wrap,
)

# In pixels. A row of matrices gets no wider unless its cells would be too small to read.
MATRICES_WIDTH, MIN_PANEL = 1300, 160
BETWEEN_COLUMNS, BETWEEN_ROWS = 22, 36


class Panel(NamedTuple):
    """One alignment: ``weights`` (T, S), S source and T target tokens, as for ``alignment_figure``.

    Weights of 0 throughout, as of a model without attention, are a blank matrix.
    """

    title: str
    weights: ArrayLike
    source_tokens: Sequence[str]
    target_tokens: Sequence[str]


def panel_figure(panels: Sequence[Panel], columns: int, fonts: Iterable[str] = FONTS) -> Figure:
    """Alignments in rows of ``columns``, read like a text; colours as in ``alignment_figure``.

    A cell has one size in all panels, so long sentences make large matrices, not small letters. Of
    sentences of 9 tokens 6 fit side by side on a screen.

    Args:
        panels: in the order of reading; titles are wrapped to the width of their panel.
        columns: panels in a row, at least 1.
        fonts: families to draw with, as for ``alignment_figure``.

    Raises:
        ValueError: there are no panels or columns, or a panel's weights do not fit its tokens.
    """
    if not panels or columns < 1:
        raise ValueError(f"{len(panels)} panels in {columns} columns: both must be at least 1.")
    families, drawable = usable_fonts(tuple(fonts))
    figure = Figure(dpi=DPI, facecolor="white")
    ruler = Ruler(FigureCanvasAgg(figure), families)
    columns = min(columns, len(panels))
    layouts = _lay_out_all(panels, columns, drawable, ruler)
    across = _across(layouts, columns)
    titles = [
        wrap(panel.title, drawable, across.sizes[index % columns], ruler)
        for index, panel in enumerate(panels)
    ]
    down = _down(layouts, [len(lines) for lines in titles], columns)
    width, height = max(MIN_WIDTH, across.end + MARGIN), down.end + BOTTOM
    figure.set_size_inches(width / DPI, height / DPI)

    images = []
    for index, (panel, layout) in enumerate(zip(panels, layouts, strict=True)):
        row, column = divmod(index, columns)
        bottom = height - down.matrices[row] - layout.height
        axes = add_axes(figure, across.matrices[column], bottom, layout.width, layout.height)
        images.append(draw_matrix(axes, np.asarray(panel.weights, np.float64), layout, families))
        left, top = across.starts[column] / width, 1 - down.starts[row] / height
        title = figure.text(left, top, "\n".join(titles[index]), va="top")
        style(title, LARGE_FONT, INK, families)
    draw_bar(figure, images[columns - 1], families)
    caption = figure.text(MARGIN / width, 2 * MARGIN / height, CAPTION, va="top")
    style(caption, SMALL_FONT, MUTED, families)
    return figure


def _lay_out_all(
    panels: Sequence[Panel], columns: int, drawable: frozenset[str], ruler: Ruler
) -> list[Layout]:
    for panel in panels:
        tokens = len(panel.source_tokens), len(panel.target_tokens)
        check_shape(np.asarray(panel.weights, np.float64), *tokens)
        report_missing("".join([panel.title, *panel.source_tokens, *panel.target_tokens]), drawable)
    longest = max(max(len(panel.source_tokens), len(panel.target_tokens)) for panel in panels)
    cell = min(LARGEST_CELL, max(SMALLEST_CELL, MATRICES_WIDTH // (columns * longest)))
    # Small enough for labels to slant at any size of cell; upright ones are hard to read.
    font = min(LARGE_FONT, 0.6 * cell)
    return [
        lay_out(
            [readable(token, index, drawable) for index, token in enumerate(panel.source_tokens)],
            [readable(token, index, drawable) for index, token in enumerate(panel.target_tokens)],
            cell,
            font,
            ruler,
        )
        for panel in panels
    ]


class _Places(NamedTuple):
    """Along one direction, in pixels from the left or the top: one entry a column or a row."""

    starts: NDArray[np.float64]  # of the panels
    matrices: NDArray[np.float64]  # their starts
    sizes: NDArray[np.float64]  # of the panels

    @property
    def end(self) -> float:
        return float(self.starts[-1] + self.sizes[-1])


def _places(
    before: Sequence[float], after: Sequence[float], between: float, least: float = 0
) -> _Places:
    """Panels one after another, from what each needs before its matrix and from there on."""
    # Whole pixels, or the cells of one panel would look sharper than those of another.
    lead = np.ceil(before)
    sizes = np.maximum(lead + np.ceil(after), least)
    starts = MARGIN + np.cumsum([0, *(sizes[:-1] + between)])
    return _Places(starts, starts + lead, sizes)


def _across(layouts: Sequence[Layout], columns: int) -> _Places:
    groups = [layouts[column::columns] for column in range(columns)]
    before = [max(each.left for each in group) - MARGIN for group in groups]
    after = [max(each.right for each in group) for group in groups]
    # The colour scale stands beside the last matrix of the first row.
    after[-1] = max(after[-1], layouts[columns - 1].width + GAP + BAR_WIDTH + BAR_LABELS)
    return _places(before, after, BETWEEN_COLUMNS, MIN_PANEL)


def _down(layouts: Sequence[Layout], title_lines: Sequence[int], columns: int) -> _Places:
    rows = [slice(first, first + columns) for first in range(0, len(layouts), columns)]
    before = [
        LINE_SPACING * LARGE_FONT * max(title_lines[row]) + max(each.top for each in layouts[row])
        for row in rows
    ]
    after = [max(each.height for each in layouts[row]) for row in rows]
    return _places(before, after, BETWEEN_ROWS)
