"""Pictures of attention: one cell for every pair of a written and a read token.

Weights and tokens in, a figure out. Only matplotlib's object interface is used: pyplot would keep
every figure alive in its registry, and look for a display.
"""

import io
import logging
import math
import os
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text
from numpy.typing import ArrayLike, NDArray

logger = logging.getLogger(__name__)

# Tried from left to right for every character; those not installed are skipped.
FONTS = (
    "DejaVu Sans",  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic, Hebrew and more
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans SC", "Noto Sans JP"),
    *("Noto Sans KR", "Source Han Sans SC", "WenQuanYi Micro Hei", "Droid Sans Fallback"),
    *("PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Microsoft YaHei", "Malgun Gothic"),
    *("Noto Sans Arabic", "Noto Naskh Arabic", "Geeza Pro"),
    *("Noto Sans Devanagari", "Lohit Devanagari", "Kohinoor Devanagari", "Nirmala UI"),
    *("Noto Sans", "Segoe UI", "Arial Unicode MS"),
)

# Equal steps of weight are equal steps of lightness. 0 is the paper, so that what the model left
# aside recedes; NaN, which no weight should be, stands out.
COLORS = LinearSegmentedColormap.from_list(
    "attention", [(0, "#ffffff"), (0.24, "#a9cbe6"), (0.58, "#4a83bd"), (1, "#0c2a56")]
).with_extremes(bad="#d62728")
INK, MUTED, LINES = "#262626", "#757575", "#e4e4e4"

# Sizes are in pixels. A power of two, so that they survive the way to inches and back.
DPI = 128
POINT = 72 / DPI  # of a pixel
# A cell is a whole number of pixels, or equal cells would not look equal.
SMALLEST_CELL, LARGEST_CELL = 14, 38
MATRIX_SIDE, LARGEST_MATRIX_SIDE = 900, 1600
MARGIN, GAP = 14, 10
BAR_WIDTH, BAR_LENGTH, BAR_LABELS = 11, 220, 30
MIN_WIDTH = 400
LARGE_FONT, SMALL_FONT, LINE_SPACING = 15, 11, 1.25

MAX_LABEL, MAX_TITLE_LINES = 26, 8  # characters, lines
JOINERS = "\u200c\u200d"  # invisible, but they shape Arabic and Indic words
_missing_font_reported = False

Box = tuple[float, float, float, float]  # left, bottom, width, height; shares of the figure


def alignment_figure(
    weights: ArrayLike,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str,
    fonts: Iterable[str] = FONTS,
) -> Figure:
    """Where the decoder looked: row i shows the weights with which it wrote target token i.

    The colour scale is fixed to 0..1, so pictures of different steps and sentences compare. Cells
    and letters shrink with the number of tokens, which bounds the size; up to 100 stay readable.

    Matplotlib joins and orders the letters of Arabic and Hebrew labels itself from 3.11 on. Below
    it they are drawn unjoined from left to right: reordering them takes packages that this project
    does not need otherwise. Rows and columns are in the order of the tokens, whatever the script.

    Args:
        weights: (T, S) in [0, 1]. Without padding; with the end token if that is shown.
        source_tokens: S labels of the columns.
        target_tokens: T labels of the rows, from top to bottom.
        title: wrapped to the width of the picture; its own line ends are kept.
        fonts: families to draw with. A token with a character that no installed one has is shown
            by code points or, where they are too long, by its position from 0, as in ``[3]``; the
            first time, a warning says so.

    Raises:
        ValueError: the shape does not belong to the tokens, or there are none.
    """
    weights = np.asarray(weights, dtype=np.float64)
    _check_shape(weights, len(source_tokens), len(target_tokens))
    families, drawable = _installed(tuple(fonts))
    _report_missing("".join([*source_tokens, *target_tokens, title]), drawable)
    columns = [_label(token, index, drawable) for index, token in enumerate(source_tokens)]
    rows = [_label(token, index, drawable) for index, token in enumerate(target_tokens)]

    figure = Figure(dpi=DPI, facecolor="white")
    ruler = _Ruler(FigureCanvasAgg(figure), families)
    layout = _layout(columns, rows, ruler)
    title_lines = _wrap(title, drawable, layout.width - 2 * MARGIN, ruler)
    title_height = math.ceil(LINE_SPACING * LARGE_FONT * len(title_lines))
    matrix_width, matrix_height = layout.cell * len(columns), layout.cell * len(rows)
    height = math.ceil(MARGIN + title_height + layout.top + matrix_height + layout.bottom)
    figure.set_size_inches(layout.width / DPI, height / DPI)

    def box(left: float, bottom: float, wide: float, tall: float) -> Box:
        return left / layout.width, bottom / height, wide / layout.width, tall / height

    axes = figure.add_axes(box(layout.left, layout.bottom, matrix_width, matrix_height))
    image = _draw_matrix(axes, weights)
    _draw_labels(axes, columns, rows, layout, families)
    bar_left, bar_length = layout.left + matrix_width + GAP, min(BAR_LENGTH, matrix_height)
    bar_bottom = layout.bottom + matrix_height - bar_length
    bar_axes = figure.add_axes(box(bar_left, bar_bottom, BAR_WIDTH, bar_length))
    _draw_bar(bar_axes, image, families)
    left, title_top, caption_top = MARGIN / layout.width, 1 - MARGIN / height, 2 * MARGIN / height
    title_text = figure.text(left, title_top, "\n".join(title_lines), va="top")
    _style(title_text, LARGE_FONT, INK, families)
    caption = "columns: source   rows: translation   colour: attention weight"
    _style(figure.text(left, caption_top, caption, va="top"), SMALL_FONT, MUTED, families)
    return figure


def figure_image(figure: Figure) -> NDArray[np.uint8]:
    """The pixels, (height, width, 3); TensorBoard's ``add_image`` takes them as "HWC"."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def save_figure(figure: Figure, path: Path) -> None:
    """Write the figure as what its name ends in: png, pdf, svg or another of matplotlib's.

    Raises:
        ValueError: matplotlib cannot write that.
    """
    # Drawn in memory and renamed when complete: whoever watches the folder sees a whole picture
    # or none, also of a run that is killed meanwhile.
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix(".") or "png", dpi=figure.dpi)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content.getvalue())
    os.replace(partial, path)


def _check_shape(weights: NDArray[np.float64], num_source: int, num_target: int) -> None:
    if weights.shape != (num_target, num_source) or not weights.size:
        raise ValueError(
            f"weights of shape {weights.shape} cannot be drawn for {num_target} target and "
            f"{num_source} source tokens; rows are target tokens, and there must be some of both."
        )


@cache
def _installed(fonts: tuple[str, ...]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Those of ``fonts`` that this machine has, and the characters that they can draw."""
    known = {entry.name for entry in font_manager.fontManager.ttflist}
    # The one that matplotlib brings along ends the list, so that it is never empty.
    families = tuple(dict.fromkeys([*(name for name in fonts if name in known), "DejaVu Sans"]))
    drawable = set(JOINERS)
    for family in families:
        font = font_manager.get_font(
            font_manager.findfont(font_manager.FontProperties(family=[family]))
        )
        drawable.update(map(chr, font.get_charmap()))
    return families, frozenset(char for char in drawable if char.isprintable() or char in JOINERS)


def _report_missing(text: str, drawable: frozenset[str]) -> None:
    """Once in the life of the process; matplotlib would warn of every glyph of every picture."""
    global _missing_font_reported
    missing = [char for char in dict.fromkeys(text) if char.isprintable() and char not in drawable]
    if missing and not _missing_font_reported:
        _missing_font_reported = True
        codes = ", ".join(f"U+{ord(char):04X}" for char in missing[:5])
        logger.warning(
            f"No installed font can draw {codes}{', …' if len(missing) > 5 else ''}: heatmaps show "
            f"such tokens by code point or position, here and later. Install a font of that "
            f"script, such as Noto Sans CJK, and have its family among the fonts."
        )


def _label(token: str, index: int, drawable: frozenset[str]) -> str:
    """A token as it can be read on an axis: blanks visible, a long one without its middle."""
    shown = "".join("␣" if char.isspace() else char for char in token)
    if shown and unicodedata.category(shown[0]) == "Mn":
        shown = "◌" + shown  # an accent of its own needs a letter to stand on
    if not drawable.issuperset(shown):
        codes = [char if char in drawable else f" U+{ord(char):04X} " for char in shown]
        shown = " ".join("".join(codes).split())
        return shown if len(shown) <= MAX_LABEL // 2 else f"[{index}]"
    if len(shown) > MAX_LABEL:
        half = (MAX_LABEL - 1) // 2
        return f"{shown[:half]}…{shown[-half:]}"
    return shown


class _Ruler:
    """How wide texts will be when they are drawn."""

    def __init__(self, canvas: FigureCanvasAgg, families: tuple[str, ...]):
        self.renderer = canvas.get_renderer()
        self.families = list(families)

    def width(self, text: str, font: float) -> float:
        properties = font_manager.FontProperties(family=self.families, size=font * POINT)
        return self.renderer.get_text_width_height_descent(text, properties, ismath=False)[0]


class _Layout(NamedTuple):
    """Sizes in pixels, ``rotation`` in degrees."""

    cell: float
    font: float
    rotation: int
    left: int
    top: int  # above the matrix, below the title
    bottom: int
    width: int  # of the whole figure


def _layout(columns: Sequence[str], rows: Sequence[str], ruler: _Ruler) -> _Layout:
    longer = max(len(columns), len(rows))
    cell: float = min(LARGEST_CELL, max(SMALLEST_CELL, MATRIX_SIDE // longer))
    cell = min(cell, LARGEST_MATRIX_SIDE / longer)
    font = min(LARGE_FONT, 0.72 * cell)
    widths = [ruler.width(label, font) for label in columns]
    # As flat as can be without touching the neighbour.
    if max(widths) <= cell - 4:
        rotation = 0
    elif 1.15 * font <= cell * math.sin(math.radians(45)):
        rotation = 45
    else:
        rotation = 90
    sine, cosine = math.sin(math.radians(rotation)), math.cos(math.radians(rotation))
    left = math.ceil(MARGIN + max(ruler.width(label, font) for label in rows) + GAP)
    top = math.ceil(max(widths) * sine + font * (cosine + 0.5) + 1.5 * GAP)
    # A slanted label leans over the columns to its right, beyond the last one if need be.
    ends = [(index + 0.5) * cell + font + width * cosine for index, width in enumerate(widths)]
    right = max(cell * len(columns) + GAP + BAR_WIDTH + BAR_LABELS, *ends)
    figure_width = math.ceil(max(MIN_WIDTH, left + right + MARGIN))
    return _Layout(cell, font, rotation, left, top, 3 * MARGIN, figure_width)


def _wrap(title: str, drawable: frozenset[str], width: float, ruler: _Ruler) -> list[str]:
    lines: list[str] = []
    for paragraph in title.strip().split("\n"):
        line = "".join(char if char in drawable else "□" for char in " ".join(paragraph.split()))
        # Letters differ in width; this leaves room for a line of wide ones.
        letter = max(1, ruler.width(line, LARGE_FONT)) / max(1, len(line))
        lines += textwrap.wrap(line, max(10, int(0.93 * width / letter)))
    if len(lines) > MAX_TITLE_LINES:
        lines[MAX_TITLE_LINES - 1 :] = ["…"]
    return lines


def _draw_matrix(axes: Axes, weights: NDArray[np.float64]) -> AxesImage:
    image = axes.imshow(weights, cmap=COLORS, vmin=0, vmax=1, aspect="auto", interpolation="none")
    row_ends, column_ends = (np.arange(size + 1) - 0.5 for size in weights.shape)
    axes.hlines(row_ends, column_ends[0], column_ends[-1], colors=LINES, linewidth=POINT)
    axes.vlines(column_ends, row_ends[0], row_ends[-1], colors=LINES, linewidth=POINT)
    axes.set(xlim=column_ends[[0, -1]], ylim=row_ends[[-1, 0]])
    axes.spines[:].set_visible(False)
    return image


def _draw_labels(
    axes: Axes,
    columns: Sequence[str],
    rows: Sequence[str],
    layout: _Layout,
    families: tuple[str, ...],
) -> None:
    axes.tick_params(top=False, bottom=False, left=False, labeltop=True, labelbottom=False)
    axes.tick_params(pad=GAP / 2 * POINT)
    ha, va = ("center", "bottom") if layout.rotation == 0 else ("left", "center_baseline")
    # Positions and labels in one call: labels alone would go to whichever ticks there are.
    axes.set_xticks(range(len(columns)), columns, ha=ha, va=va, rotation=layout.rotation)
    axes.set_yticks(range(len(rows)), rows, va="center_baseline")
    for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]:
        label.set_rotation_mode("anchor")
        _style(label, layout.font, INK, families)


def _draw_bar(axes: Axes, image: AxesImage, families: tuple[str, ...]) -> None:
    bar = axes.figure.colorbar(image, cax=axes)
    bar.outline.set(edgecolor=LINES, linewidth=POINT)
    axes.set_yticks([0, 0.5, 1] if axes.bbox.height > 60 else [0, 1])
    axes.tick_params(length=GAP / 3 * POINT, width=POINT, color=MUTED, pad=GAP / 3 * POINT)
    for label in axes.get_yticklabels():
        _style(label, SMALL_FONT, MUTED, families)


def _style(text: Text, font: float, color: str, families: tuple[str, ...]) -> None:
    text.set(fontfamily=list(families), fontsize=font * POINT, color=color)
    text.set(linespacing=LINE_SPACING, parse_math=False)  # no token is a formula, whatever its $
