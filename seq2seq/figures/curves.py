"""The picture of BLEU by source length: figure 2 of Bahdanau et al. 2015, arXiv:1409.0473.

Scores in, a figure out; ``by_length`` makes the scores.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import ArrayLike, NDArray

from seq2seq.evaluation.significance import LengthBin
from seq2seq.figures.heatmap import (
    BOTTOM,
    DPI,
    FONTS,
    GAP,
    INK,
    LARGE_FONT,
    LINE_SPACING,
    LINES,
    MARGIN,
    MUTED,
    POINT,
    SMALL_FONT,
    Ruler,
    add_axes,
    report_missing,
    style,
    usable_fonts,
    wrap,
)

# Okabe and Ito's colours, which the colour-blind tell apart (Wong 2011, Nature Methods 8:441), the
# dark ones first. Markers differ as well, for prints in grey; the two repeat together at 35.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9")
MARKERS = "os^Dv"
# In pixels.
SMALLEST_PLOT, LARGEST_PLOT, PLOT_HEIGHT = 480, 1300, 320  # widths, the one height
FONT, ROW, LEADER = 13, 20, 30
HEADINGS = ("source words", "sentences")
CAPTION = "bands: 95% bootstrap intervals"


class Curve(NamedTuple):
    """A system in the picture: its name, its scores, the style of its line."""

    label: str
    bins: Sequence[LengthBin]
    dashed: bool = False


def length_figure(curves: Sequence[Curve], title: str, fonts: Iterable[str] = FONTS) -> Figure:
    """BLEU over source length: for every system a line and the band of its intervals.

    A point stands at the mean length of the sentences in its bin; where a bin has no score, the
    line is broken. Below stands the number of sentences, which all systems share.

    Args:
        curves: systems scored on the same sentences in the same bins.
        title: wrapped to the width of the picture.
        fonts: families to draw with, as for ``alignment_figure``.

    Raises:
        ValueError: the bins are not the same, or a curve has no score at all.
    """
    _check(curves)
    families, drawable = usable_fonts(tuple(fonts))
    report_missing("".join([title, *(curve.label for curve in curves)]), drawable)
    figure = Figure(dpi=DPI, facecolor="white")
    ruler = Ruler(FigureCanvasAgg(figure), families)
    names = [" ".join(wrap(curve.label, drawable, 1e6, ruler)) for curve in curves]
    bins = curves[0].bins[_filled(curves[0].bins)]
    scale = _scale(bins, ruler)
    left = math.ceil(MARGIN + max(ruler.width(text, SMALL_FONT) for text in HEADINGS) + GAP)
    right = math.ceil(LEADER + max(ruler.width(name, FONT) for name in names) + MARGIN)
    width, plot_height = left + scale.width + right, max(PLOT_HEIGHT, ROW * len(curves))
    title_lines = wrap(title, drawable, width - 2 * MARGIN, ruler)
    top = math.ceil(MARGIN + LINE_SPACING * LARGE_FONT * len(title_lines) + GAP + ROW)
    bottom = len(HEADINGS) * ROW + BOTTOM
    height = bottom + plot_height + top
    figure.set_size_inches(width / DPI, height / DPI)

    axes = add_axes(figure, left, bottom, scale.width, plot_height)
    ends = [_draw_curve(axes, curve, scale, index) for index, curve in enumerate(curves)]
    _draw_scales(axes, bins, scale, families)
    _draw_names(axes, names, ends, families)
    heading = figure.text(MARGIN / width, 1 - MARGIN / height, "\n".join(title_lines), va="top")
    style(heading, LARGE_FONT, INK, families)
    caption = figure.text(MARGIN / width, 2 * MARGIN / height, CAPTION, va="top")
    style(caption, SMALL_FONT, MUTED, families)
    return figure


def _check(curves: Sequence[Curve]) -> None:
    if len({tuple(each[:4] for each in curve.bins) for curve in curves}) > 1:
        raise ValueError(
            "curves can be compared only on the same sentences in the same bins: score all systems "
            "with the same source lengths and edges."
        )
    silent = [curve.label for curve in curves if not any(each.bleu for each in curve.bins)]
    if silent or not curves:
        raise ValueError(f"no bin of {silent or 'any curve'} has a BLEU: there is nothing to draw.")


def _filled(bins: Sequence[LengthBin]) -> slice:
    """From the first bin with a sentence to the last one: the ends may well be out of reach."""
    filled = [index for index, each in enumerate(bins) if each.num_sentences]
    return slice(filled[0], filled[-1] + 1)


class _Scale(NamedTuple):
    """Where the bins are, in a unit of its own, and how many pixels wide that is drawn."""

    positions: NDArray[np.float64]  # of the points, one a bin
    borders: NDArray[np.float64]  # between them
    ends: tuple[float, float]
    width: int


def _scale(bins: Sequence[LengthBin], ruler: Ruler) -> _Scale:
    """In words; in bins, evenly spaced, if labels would touch even on the widest plot."""
    widths = [max(ruler.width(text, FONT) for text in _labels(each)) + GAP for each in bins]
    # A bin without a mean lies between others, so it has both ends.
    middles = [
        (each.first + (each.last or 0)) / 2 if each.mean_length is None else each.mean_length
        for each in bins
    ]
    words = _fit(middles, [each.first - 0.5 for each in bins[1:]], widths)
    if words.width <= LARGEST_PLOT:
        return words
    return _fit(range(len(bins)), np.arange(1, len(bins)) - 0.5, widths)


def _fit(positions: ArrayLike, borders: ArrayLike, widths: Sequence[float]) -> _Scale:
    """The narrowest plot on which labels of these widths do not touch."""
    where = np.asarray(positions, dtype=np.float64)
    beyond = 0.05 * (where[-1] - where[0]) + 0.5
    ends = float(where[0] - beyond), float(where[-1] + beyond)
    room = np.diff([ends[0], *where, ends[1]])
    needed = np.convolve([0, *widths, 0], [0.5, 0.5], "valid")
    width = math.ceil((needed / room).max() * (ends[1] - ends[0]))
    return _Scale(where, np.asarray(borders, dtype=np.float64), ends, max(SMALLEST_PLOT, width))


def _labels(each: LengthBin) -> tuple[str, str]:
    """What stands below a bin, in the order of ``HEADINGS``."""
    return each.label, f"{each.num_sentences:,}"


def _draw_curve(axes: Axes, curve: Curve, scale: _Scale, index: int) -> tuple[float, float]:
    """Where the line ends."""
    color, marker = PALETTE[index % len(PALETTE)], MARKERS[index % len(MARKERS)]
    estimates = [each.bleu or (math.nan,) * 3 for each in curve.bins[_filled(curve.bins)]]
    scores, lows, highs = np.array(estimates).T
    axes.fill_between(scale.positions, lows, highs, color=color, alpha=0.13, linewidth=0)
    # Between two points the band is a guess, as the line is; an interval belongs to a point.
    axes.vlines(scale.positions, lows, highs, colors=color, alpha=0.5, linewidth=1.5 * POINT)
    dashes, thickness, size = "--" if curve.dashed else "-", 2.5 * POINT, 7 * POINT
    axes.plot(scale.positions, scores, dashes, c=color, lw=thickness, marker=marker, ms=size)
    last = np.flatnonzero(np.isfinite(scores))[-1]
    return float(scale.positions[last]), float(scores[last])


def _draw_scales(
    axes: Axes, bins: Sequence[LengthBin], scale: _Scale, families: tuple[str, ...]
) -> None:
    axes.set(xlim=scale.ends, axisbelow=True)
    axes.spines[:].set_visible(False)
    axes.spines.bottom.set(visible=True, color=MUTED, linewidth=POINT)
    axes.tick_params(length=0, pad=GAP / 2 * POINT)
    axes.set_xticks(scale.positions, [""] * len(bins))
    axes.grid(axis="y", color=LINES, linewidth=POINT)
    for border in scale.borders:
        axes.axvline(border, color=LINES, linewidth=POINT, zorder=0.5)
    for label in axes.get_yticklabels():
        style(label, SMALL_FONT, MUTED, families)

    def write(
        text: str, where: tuple[float, float], shift: tuple[float, float], align: str
    ) -> Text:
        """At a length and a height of the plot, shifted by pixels."""
        moved = shift[0] * POINT, shift[1] * POINT
        return axes.annotate(
            text,
            where,
            moved,
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha=align,
            va="center_baseline",
        )

    start = scale.ends[0]
    style(write("BLEU", (start, 1), (-GAP, ROW / 2), "right"), SMALL_FONT, MUTED, families)
    for row, heading in enumerate(HEADINGS):
        down = -(row + 0.75) * ROW
        style(write(heading, (start, 0), (-GAP, down), "right"), SMALL_FONT, MUTED, families)
        for position, each in zip(scale.positions, bins, strict=True):
            text = write(_labels(each)[row], (position, 0), (0, down), "center")
            style(text, (FONT, SMALL_FONT)[row], (INK, MUTED)[row], families)


def _draw_names(
    axes: Axes,
    names: Sequence[str],
    ends: Sequence[tuple[float, float]],
    families: tuple[str, ...],
) -> None:
    """Each beside the end of its line, no further off than it must be to be read."""
    bottom, top = axes.get_ylim()
    heights = [(score - bottom) / (top - bottom) for _, score in ends]
    places = _spread(heights, ROW / axes.bbox.height)
    for index, (name, end, height) in enumerate(zip(names, ends, places, strict=True)):
        color = PALETTE[index % len(PALETTE)]
        text = axes.annotate(
            name,
            end,
            (1 + LEADER / axes.bbox.width, height),
            textcoords="axes fraction",
            va="center",
            arrowprops={"arrowstyle": "-", "color": color, "lw": POINT, "relpos": (0, 0.5)},
        )
        style(text, FONT, INK, families)


def _spread(wanted: Sequence[float], distance: float) -> NDArray[np.float64]:
    """Places in [0, 1], so far apart and in the order of those wanted, as near to them as can be.

    Isotonic regression by the min-max formula (Barlow et al. 1972) of what is wanted, less the
    room of those below.
    """
    order = np.argsort(wanted, kind="stable")
    room = distance * np.arange(len(order))
    free = np.asarray(wanted)[order] - room
    each = range(len(order))
    fitted = [
        max(
            min(free[first : last + 1].mean() for last in each[here:]) for first in each[: here + 1]
        )
        for here in each
    ]
    places = np.empty(len(order))
    places[order] = np.clip(fitted, 0, 1 - room[-1]) + room
    return places
