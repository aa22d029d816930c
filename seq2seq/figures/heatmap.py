"""Pictures of attention: one cell for every pair of a written and a read token.

Weights and tokens in, a figure out. Only matplotlib's object interface is used: pyplot would keep
every figure alive in its registry, and look for a display.
"""

import io
import logging
import math
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

from seq2seq.files import replacing

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
MARGIN, GAP, BOTTOM = 14, 10, 42  # at the bottom stands the caption
BAR_WIDTH, BAR_LENGTH, BAR_LABELS, MIN_WIDTH = 11, 220, 30, 400
LARGE_FONT, SMALL_FONT, LINE_SPACING = 15, 11, 1.25

CAPTION = "columns: source   rows: translation   colour: attention weight"
MAX_LABEL, MAX_TITLE_LINES = 26, 8  # characters, lines
JOINERS = "\u200c\u200d"  # invisible, but they shape Arabic and Indic words
_missing_font_reported = False


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

    Matplotlib joins and orders the letters of Arabic and Hebrew itself from 3.11 on; below it they
    are drawn unjoined from left to right. Rows and columns are in the order of the tokens.

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
    check_shape(weights, len(source_tokens), len(target_tokens))
    families, drawable = usable_fonts(tuple(fonts))
    report_missing("".join([*source_tokens, *target_tokens, title]), drawable)
    columns = [readable(token, index, drawable) for index, token in enumerate(source_tokens)]
    rows = [readable(token, index, drawable) for index, token in enumerate(target_tokens)]

    figure = Figure(dpi=DPI, facecolor="white")
    ruler = Ruler(FigureCanvasAgg(figure), families)
    longer = max(len(columns), len(rows))
    cell: float = min(LARGEST_CELL, max(SMALLEST_CELL, MATRIX_SIDE // longer))
    cell = min(cell, LARGEST_MATRIX_SIDE / longer)
    layout = lay_out(columns, rows, cell, min(LARGE_FONT, 0.72 * cell), ruler)
    right = max(layout.right, layout.width + GAP + BAR_WIDTH + BAR_LABELS)
    width = math.ceil(max(MIN_WIDTH, layout.left + right + MARGIN))
    title_lines = wrap(title, drawable, width - 2 * MARGIN, ruler)
    title_height = math.ceil(LINE_SPACING * LARGE_FONT * len(title_lines))
    height = math.ceil(MARGIN + title_height + layout.top + layout.height + BOTTOM)
    figure.set_size_inches(width / DPI, height / DPI)

    axes = add_axes(figure, layout.left, BOTTOM, layout.width, layout.height)
    image = draw_matrix(axes, weights, layout, families)
    draw_bar(figure, image, families)
    left, title_top, caption_top = MARGIN / width, 1 - MARGIN / height, 2 * MARGIN / height
    style(figure.text(left, title_top, "\n".join(title_lines), va="top"), LARGE_FONT, INK, families)
    style(figure.text(left, caption_top, CAPTION, va="top"), SMALL_FONT, MUTED, families)
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
    with replacing(path) as partial:
        partial.write_bytes(content.getvalue())


def check_shape(weights: NDArray[np.float64], num_source: int, num_target: int) -> None:
    if weights.shape != (num_target, num_source) or not weights.size:
        raise ValueError(
            f"weights of shape {weights.shape} cannot be drawn for {num_target} target and "
            f"{num_source} source tokens; rows are target tokens, and there must be some of both."
        )


@cache
def usable_fonts(fonts: tuple[str, ...]) -> tuple[tuple[str, ...], frozenset[str]]:
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


def report_missing(text: str, drawable: frozenset[str]) -> None:
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


def coded(text: str, drawable: frozenset[str]) -> str:
    """With code points for the characters that cannot be drawn."""
    shown = (char if char in drawable else f" U+{ord(char):04X} " for char in text)
    return " ".join("".join(shown).split())


def readable(token: str, index: int, drawable: frozenset[str]) -> str:
    """A token as it can be read on an axis: blanks visible, a long one without its middle."""
    shown = "".join("␣" if char.isspace() else char for char in token)
    if shown and unicodedata.category(shown[0]) == "Mn":
        shown = "◌" + shown  # an accent of its own needs a letter to stand on
    if not drawable.issuperset(shown):
        shown = coded(shown, drawable)
        return shown if len(shown) <= MAX_LABEL // 2 else f"[{index}]"
    if len(shown) > MAX_LABEL:
        half = (MAX_LABEL - 1) // 2
        return f"{shown[:half]}…{shown[-half:]}"
    return shown


class Ruler:
    """How wide texts will be when they are drawn."""

    def __init__(self, canvas: FigureCanvasAgg, families: tuple[str, ...]):
        self.renderer = canvas.get_renderer()
        self.families = list(families)

    def width(self, text: str, font: float) -> float:
        properties = font_manager.FontProperties(family=self.families, size=font * POINT)
        return self.renderer.get_text_width_height_descent(text, properties, ismath=False)[0]


class Layout(NamedTuple):
    """A matrix and its labels: sizes in pixels, ``rotation`` of those of the columns in degrees."""

    columns: Sequence[str]
    rows: Sequence[str]
    width: float  # of the matrix, as is the height
    height: float
    left: int  # of the matrix, the margin included
    top: int  # above the matrix, below the title
    right: float  # from the left edge of the matrix to the end of the last label
    font: float
    rotation: int


def lay_out(
    columns: Sequence[str], rows: Sequence[str], cell: float, font: float, ruler: Ruler
) -> Layout:
    """The room that labels need around a matrix of such cells."""
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
    width, height = cell * len(columns), cell * len(rows)
    return Layout(columns, rows, width, height, left, top, max(width, *ends), font, rotation)


def wrap(title: str, drawable: frozenset[str], width: float, ruler: Ruler) -> list[str]:
    """A title in lines of at most ``width`` pixels, set in the large font."""
    lines: list[str] = []
    for paragraph in title.strip().split("\n"):
        line = coded(" ".join(paragraph.split()), drawable)
        # Letters differ in width; this leaves room for a line of wide ones.
        letter = max(1, ruler.width(line, LARGE_FONT)) / max(1, len(line))
        lines += textwrap.wrap(line, max(10, int(0.93 * width / letter)))
    if len(lines) > MAX_TITLE_LINES:
        lines[MAX_TITLE_LINES - 1 :] = ["…"]
    return lines


def add_axes(figure: Figure, left: float, bottom: float, wide: float, tall: float) -> Axes:
    """Axes that cover these pixels of the figure."""
    width, height = figure.bbox.size
    return figure.add_axes((left / width, bottom / height, wide / width, tall / height))


def draw_matrix(
    axes: Axes, weights: NDArray[np.float64], layout: Layout, families: tuple[str, ...]
) -> AxesImage:
    """The cells and the label of every row and column."""
    image = axes.imshow(weights, cmap=COLORS, vmin=0, vmax=1, aspect="auto", interpolation="none")
    row_ends, column_ends = (np.arange(size + 1) - 0.5 for size in weights.shape)
    axes.hlines(row_ends, column_ends[0], column_ends[-1], colors=LINES, linewidth=POINT)
    axes.vlines(column_ends, row_ends[0], row_ends[-1], colors=LINES, linewidth=POINT)
    axes.set(xlim=column_ends[[0, -1]], ylim=row_ends[[-1, 0]])
    axes.spines[:].set_visible(False)
    axes.tick_params(top=False, bottom=False, left=False, labeltop=True, labelbottom=False)
    axes.tick_params(pad=GAP / 2 * POINT)
    ha, va = ("center", "bottom") if layout.rotation == 0 else ("left", "center_baseline")
    # Positions and labels in one call: labels alone would go to whichever ticks there are.
    columns, rows = range(len(layout.columns)), range(len(layout.rows))
    axes.set_xticks(columns, layout.columns, ha=ha, va=va, rotation=layout.rotation)
    axes.set_yticks(rows, layout.rows, va="center_baseline")
    for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]:
        label.set_rotation_mode("anchor")
        style(label, layout.font, INK, families)
    return image


def draw_bar(figure: Figure, image: AxesImage, families: tuple[str, ...]) -> None:
    """The colour scale, to the right of the matrix."""
    matrix = image.axes.bbox
    length = min(BAR_LENGTH, matrix.height)
    axes = add_axes(figure, matrix.x1 + GAP, matrix.y1 - length, BAR_WIDTH, length)
    bar = figure.colorbar(image, cax=axes)
    bar.outline.set(edgecolor=LINES, linewidth=POINT)
    axes.set_yticks([0, 0.5, 1] if axes.bbox.height > 60 else [0, 1])
    axes.tick_params(length=GAP / 3 * POINT, width=POINT, color=MUTED, pad=GAP / 3 * POINT)
    for label in axes.get_yticklabels():
        style(label, SMALL_FONT, MUTED, families)


def style(text: Text, font: float, color: str, families: tuple[str, ...]) -> None:
    """Letters of ``font`` pixels."""
    text.set(fontfamily=list(families), fontsize=font * POINT, color=color)
    text.set(linespacing=LINE_SPACING, parse_math=False)  # no token is a formula, whatever its $
