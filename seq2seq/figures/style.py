"""The look that all figures share: fonts, colors, sizes, and how figures become files and pixels.

Only matplotlib's object interface is used: pyplot would keep every figure alive in its registry
and look for a display.
"""

import io
import logging
import math
import textwrap
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray

from seq2seq.files import replacing

logger = logging.getLogger(__name__)

# Tried from left to right for every character; fonts that are not installed are skipped.
FONTS = (
    "DejaVu Sans",  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic, Hebrew and more
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans SC", "Noto Sans JP"),
    *("Noto Sans KR", "Source Han Sans SC", "WenQuanYi Micro Hei", "Droid Sans Fallback"),
    *("PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Microsoft YaHei", "Malgun Gothic"),
    *("Noto Sans Arabic", "Noto Naskh Arabic", "Geeza Pro"),
    *("Noto Sans Devanagari", "Lohit Devanagari", "Kohinoor Devanagari", "Nirmala UI"),
    *("Noto Sans", "Segoe UI", "Arial Unicode MS"),
)

# Equal steps of weight are equal steps of lightness. Weight 0 has the color of the paper; NaN,
# which no weight should be, stands out.
COLORS = LinearSegmentedColormap.from_list(
    "attention", [(0, "#ffffff"), (0.24, "#a9cbe6"), (0.58, "#4a83bd"), (1, "#0c2a56")]
).with_extremes(bad="#d62728")
INK, MUTED, LINES = "#262626", "#757575", "#e4e4e4"

# Sizes are in pixels; matplotlib wants points or inches. A power of two makes the conversion exact.
DPI = 128
POINT = 72 / DPI  # points per pixel
LARGE_FONT, SMALL_FONT, LINE_SPACING = 15, 11, 1.25
MARGIN, GAP = 12, 10
MAX_LABEL, MAX_TITLE_LINES = 26, 8  # characters, lines
JOINERS = "\u200c\u200d"  # invisible characters that shape Arabic and Indic words
_missing_font_reported = False


class Fonts(NamedTuple):
    """Installed font families, in order of preference, and the characters that they can draw."""

    families: tuple[str, ...]
    characters: frozenset[str]

    def style(self, text: Text, size: float, color: str) -> None:
        """Set the font of a text, ``size`` in pixels."""
        text.set(fontfamily=list(self.families), fontsize=size * POINT, color=color)
        text.set(linespacing=LINE_SPACING, parse_math=False)  # "$" in a token is a dollar sign

    def width(self, text: str, size: float) -> float:
        """Return the width in pixels that one line of text takes when it is drawn."""
        font = font_manager.FontProperties(family=list(self.families), size=size * POINT)
        return RendererAgg(1, 1, DPI).get_text_width_height_descent(text, font, ismath=False)[0]

    def wrap(self, text: str, size: float, width: float) -> str:
        """Break a text into lines of at most ``width`` pixels; its own line breaks are kept."""
        lines: list[str] = []
        for paragraph in text.strip().split("\n"):
            line = self.substitute(" ".join(paragraph.split()))
            # Letters differ in width; 7 % of the line is left for a run of wide ones.
            letter = max(1, self.width(line, size)) / max(1, len(line))
            lines += textwrap.wrap(line, max(10, int(0.93 * width / letter)))
        if len(lines) > MAX_TITLE_LINES:
            lines[MAX_TITLE_LINES - 1 :] = ["…"]
        return "\n".join(lines)

    def substitute(self, text: str) -> str:
        """Replace every character that cannot be drawn by its code point, as in ``U+6211``."""
        shown = (char if char in self.characters else f" U+{ord(char):04X} " for char in text)
        return " ".join("".join(shown).split())

    def label(self, token: str, index: int) -> str:
        """Return a token as it can be read on an axis.

        Spaces are made visible and a long token loses its middle. A token that cannot be drawn is
        shown by code points or, where these are too long, by its position, as in ``[3]``.
        """
        shown = "".join("␣" if char.isspace() else char for char in token)
        if shown and unicodedata.category(shown[0]) == "Mn":
            shown = "◌" + shown  # a combining accent needs a letter to combine with
        if not self.characters.issuperset(shown):
            shown = self.substitute(shown)
            return shown if len(shown) <= MAX_LABEL // 2 else f"[{index}]"
        if len(shown) > MAX_LABEL:
            half = (MAX_LABEL - 1) // 2
            return f"{shown[:half]}…{shown[-half:]}"
        return shown

    def report_missing(self, text: str) -> None:
        """Warn of characters that cannot be drawn, once per process.

        matplotlib itself would warn of every such character in every figure.
        """
        global _missing_font_reported
        missing = [c for c in dict.fromkeys(text) if c.isprintable() and c not in self.characters]
        if missing and not _missing_font_reported:
            _missing_font_reported = True
            codes = ", ".join(f"U+{ord(char):04X}" for char in missing[:5])
            logger.warning(
                f"No installed font can draw {codes}{', …' if len(missing) > 5 else ''}: figures "
                f"show such tokens by code point or position, here and later. Install a font for "
                f"that script, such as Noto Sans CJK, and add its family to the fonts."
            )


@cache
def find_fonts(names: tuple[str, ...] = FONTS) -> Fonts:
    """Select the installed fonts among ``names``."""
    known = {entry.name for entry in font_manager.fontManager.ttflist}
    # DejaVu Sans, which comes with matplotlib, ends the list, so that it is never empty.
    families = tuple(dict.fromkeys([*(name for name in names if name in known), "DejaVu Sans"]))
    drawable: set[str] = set()
    for family in families:
        properties = font_manager.FontProperties(family=[family])
        drawable.update(
            map(chr, font_manager.get_font(font_manager.findfont(properties)).get_charmap())
        )
    printable = (char for char in drawable if char.isprintable())
    return Fonts(families, frozenset([*printable, *JOINERS]))


def new_figure() -> Figure:
    figure = Figure(dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def lay_out(
    figure: Figure, grid: NDArray[Any], widths: Sequence[float], heights: Sequence[float]
) -> None:
    """Give the axes of a grid exact sizes, and the figure the size that their labels then need.

    matplotlib measures the labels and titles. Its constrained layout does the reverse, it computes
    axes from the size of the figure: it would have to be repeated until the cells have their size,
    which takes longer than drawing.

    Args:
        figure: holds the grid, and at the bottom a caption, its only text of its own.
        grid: axes (rows, columns).
        widths: pixels of each column.
        heights: pixels of each row.
    """
    sizes = np.array([[(width, height) for width in widths] for height in heights])
    for place, axes in np.ndenumerate(grid):
        _move(axes, np.zeros(2), sizes[place])
    boxes = [(axes.bbox.extents, axes.get_tightbbox().extents) for axes in grid.flat]
    # Whole pixels, or the cells of some axes would look sharper than those of others.
    outside = [np.ceil((inner - outer) * [1, 1, -1, -1]) for inner, outer in boxes]
    reach = np.maximum(0, outside).reshape(*grid.shape, 4)
    left, right = reach[..., 0].max(axis=0), reach[..., 2].max(axis=0)
    below, above = reach[..., 1].max(axis=1), reach[..., 3].max(axis=1)
    across = np.cumsum(left + sizes[0, :, 0] + right + 2 * MARGIN)
    down = np.cumsum(above + sizes[:, 0, 1] + below + 2 * MARGIN)
    (caption,) = figure.texts
    figure.set_size_inches(1, 1)
    box = caption.get_window_extent()
    width = math.ceil(max(across[-1], box.width + 2 * MARGIN))
    height = math.ceil(down[-1] + box.height + MARGIN)
    figure.set_size_inches(width / DPI, height / DPI)
    caption.set(x=MARGIN / width, y=MARGIN / height, va="bottom")
    for (row, column), axes in np.ndenumerate(grid):
        start = across[column] - MARGIN - right[column] - widths[column]
        _move(axes, np.array([start, height - down[row] + MARGIN + below[row]]), sizes[row, column])


def _move(axes: Axes, corner: NDArray[np.float64], size: NDArray[np.float64]) -> None:
    """Place axes by their lower left corner and their size, in pixels of the figure."""
    axes.set_position(tuple(np.concatenate([corner, size]) / np.tile(axes.figure.bbox.size, 2)))


def figure_image(figure: Figure) -> NDArray[np.uint8]:
    """Return the pixels, (height, width, 3); TensorBoard's ``add_image`` takes them as "HWC"."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def save_figure(figure: Figure, path: Path) -> None:
    """Write the figure in the format of the file's suffix: png, pdf, svg or another of matplotlib.

    Raises:
        ValueError: matplotlib cannot write that format.
    """
    # Drawn in memory and renamed when complete, so that the folder never holds half a figure, even
    # if the run is killed meanwhile.
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix(".") or "png", dpi=figure.dpi)
    with replacing(path) as partial:
        partial.write_bytes(content.getvalue())
