"""Curves of BLEU by source length: figure 2 of Bahdanau et al. 2015, arXiv:1409.0473.

Scores in, a figure out; ``seq2seq.evaluation.significance`` computes the scores.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from seq2seq.evaluation.significance import LengthBin
from seq2seq.figures.style import (
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

# The colors of Okabe and Ito, which color-blind readers can tell apart (Wong 2011, Nature Methods
# 8:441), dark ones first. Markers differ as well, for prints in gray; both repeat together at 35.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9")
MARKERS = "os^Dv"
# In pixels.
MIN_PLOT_WIDTH, MAX_PLOT_WIDTH, PLOT_HEIGHT = 480, 1300, 320
FONT, ROW, LEADER = 13, 20, 30
HEADINGS = ("source words", "sentences")
CAPTION = "bands: 95% bootstrap intervals"


class Curve(NamedTuple):
    """A system in the figure: its name, its scores, the style of its line."""

    label: str
    bins: Sequence[LengthBin]
    dashed: bool = False


def length_figure(curves: Sequence[Curve], title: str, fonts: Iterable[str] = FONTS) -> Figure:
    """Draw BLEU by source length: a line for every system and a band for its intervals.

    A point stands at the mean length of the sentences in its bin; a bin without a score interrupts
    the line. The number of sentences, which all systems share, stands below each bin.

    Args:
        curves: systems scored on the same sentences in the same bins.
        title: wrapped to the width of the plot.
        fonts: families to draw with, as for ``alignment_figure``.

    Raises:
        ValueError: the bins are not the same, or a curve has no score at all.
    """
    _check(curves)
    found = find_fonts(tuple(fonts))
    found.report_missing("".join([title, *(curve.label for curve in curves)]))
    bins = curves[0].bins[_filled(curves[0].bins)]
    scale = _scale(bins, found)
    height = max(PLOT_HEIGHT, ROW * len(curves))

    figure = new_figure()
    grid = figure.subplots(squeeze=False)
    axes = grid[0, 0]
    ends = [_draw_curve(axes, curve, scale, index) for index, curve in enumerate(curves)]
    _draw_scales(axes, bins, scale, found)
    _draw_names(axes, [curve.label for curve in curves], ends, (scale.width, height), found)
    heading = axes.set_title(
        found.wrap(title, LARGE_FONT, scale.width + LEADER),
        loc="left",
        y=1,
        pad=(ROW + GAP) * POINT,
    )
    found.style(heading, LARGE_FONT, INK)
    found.style(figure.text(0, 0, CAPTION), SMALL_FONT, MUTED)
    lay_out(figure, grid, [scale.width], [height])
    return figure


def _check(curves: Sequence[Curve]) -> None:
    if len({tuple(each[:4] for each in curve.bins) for curve in curves}) > 1:
        raise ValueError(
            "curves can be compared only on the same sentences in the same bins: score all systems "
            "with the same source lengths and edges."
        )
    empty = [curve.label for curve in curves if not any(each.bleu for each in curve.bins)]
    if empty or not curves:
        raise ValueError(f"no bin of {empty or 'any curve'} has a BLEU: there is nothing to draw.")


def _filled(bins: Sequence[LengthBin]) -> slice:
    """Select the bins from the first to the last that has sentences."""
    filled = [index for index, each in enumerate(bins) if each.num_sentences]
    return slice(filled[0], filled[-1] + 1)


class _Scale(NamedTuple):
    """The horizontal positions of the bins, in any unit, and the width of the plot in pixels."""

    positions: NDArray[np.float64]  # of the points, one per bin
    borders: NDArray[np.float64]  # between bins
    ends: tuple[float, float]
    width: int


def _scale(bins: Sequence[LengthBin], fonts: Fonts) -> _Scale:
    """Place bins by words, or evenly if their labels would overlap even in the widest plot."""
    widths = [max(fonts.width(text, FONT) for text in _labels(each)) + GAP for each in bins]
    # A bin without a mean lies between others, so it has both limits.
    means = [
        (each.first + (each.last or 0)) / 2 if each.mean_length is None else each.mean_length
        for each in bins
    ]
    words = _fit(means, [each.first - 0.5 for each in bins[1:]], widths)
    if words.width <= MAX_PLOT_WIDTH:
        return words
    return _fit(range(len(bins)), np.arange(1, len(bins)) - 0.5, widths)


def _fit(positions: ArrayLike, borders: ArrayLike, widths: Sequence[float]) -> _Scale:
    """Find the narrowest plot in which labels of these widths do not overlap."""
    where = np.asarray(positions, dtype=np.float64)
    beyond = 0.05 * (where[-1] - where[0]) + 0.5
    ends = float(where[0] - beyond), float(where[-1] + beyond)
    room = np.diff([ends[0], *where, ends[1]])
    needed = np.convolve([0, *widths, 0], [0.5, 0.5], "valid")
    width = math.ceil((needed / room).max() * (ends[1] - ends[0]))
    return _Scale(where, np.asarray(borders, dtype=np.float64), ends, max(MIN_PLOT_WIDTH, width))


def _labels(each: LengthBin) -> tuple[str, str]:
    """Return the texts below a bin, in the order of ``HEADINGS``."""
    return each.label, f"{each.num_sentences:,}"


def _draw_curve(axes: Axes, curve: Curve, scale: _Scale, index: int) -> tuple[float, float]:
    """Draw a line with its band, and return where the line ends."""
    color, marker = PALETTE[index % len(PALETTE)], MARKERS[index % len(MARKERS)]
    estimates = [each.bleu or (math.nan,) * 3 for each in curve.bins[_filled(curve.bins)]]
    scores, lows, highs = np.array(estimates).T
    axes.fill_between(scale.positions, lows, highs, color=color, alpha=0.13, linewidth=0)
    # Between two points, line and band are interpolated; an interval belongs to a point.
    axes.vlines(scale.positions, lows, highs, colors=color, alpha=0.5, linewidth=1.5 * POINT)
    dashes, thickness, size = "--" if curve.dashed else "-", 2.5 * POINT, 7 * POINT
    axes.plot(scale.positions, scores, dashes, c=color, lw=thickness, marker=marker, ms=size)
    last = np.flatnonzero(np.isfinite(scores))[-1]
    return float(scale.positions[last]), float(scores[last])


def _draw_scales(axes: Axes, bins: Sequence[LengthBin], scale: _Scale, fonts: Fonts) -> None:
    """Draw the grid, the scores at the left, and the two rows of labels below the bins."""
    axes.set(xlim=scale.ends, axisbelow=True)
    axes.spines[:].set_visible(False)
    axes.spines.bottom.set(visible=True, color=MUTED, linewidth=POINT)
    axes.tick_params(length=0, pad=GAP * POINT)
    axes.grid(axis="y", color=LINES, linewidth=POINT)
    for border in scale.borders:
        axes.axvline(border, color=LINES, linewidth=POINT, zorder=0.5)
    axes.set_xticks(scale.positions, [""] * len(bins))
    for label in axes.get_yticklabels():
        fonts.style(label, SMALL_FONT, MUTED)

    def write(
        text: str, x: float, y: float, up: float, align: str, look: tuple[float, str]
    ) -> None:
        """Write at a length and a height of the plot; headings stand left of the plot."""
        left = -GAP if align == "right" else 0
        fonts.style(
            axes.annotate(
                text,
                (x, y),
                (left * POINT, up * POINT),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha=align,
                va="center_baseline",
            ),
            *look,
        )

    start = scale.ends[0]
    write("BLEU", start, 1, ROW / 2, "right", (SMALL_FONT, MUTED))
    for row, (heading, look) in enumerate(
        zip(HEADINGS, [(FONT, INK), (SMALL_FONT, MUTED)], strict=True)
    ):
        up = -(row + 0.75) * ROW
        write(heading, start, 0, up, "right", (SMALL_FONT, MUTED))
        for position, each in zip(scale.positions, bins, strict=True):
            write(_labels(each)[row], position, 0, up, "center", look)


def _draw_names(
    axes: Axes,
    names: Sequence[str],
    ends: Sequence[tuple[float, float]],
    size: tuple[float, float],
    fonts: Fonts,
) -> None:
    """Write each name at the end of its line, moved only as far as the other names require.

    matplotlib has legends and single annotations, but nothing that keeps annotations apart.
    """
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, top)
    wanted = [(score - bottom) / (top - bottom) for _, score in ends]
    heights = _spread(wanted, ROW / size[1])
    for index, (name, end, height) in enumerate(zip(names, ends, heights, strict=True)):
        color = PALETTE[index % len(PALETTE)]
        text = axes.annotate(
            fonts.substitute(name),
            end,
            (1 + LEADER / size[0], height),
            textcoords="axes fraction",
            va="center",
            arrowprops={"arrowstyle": "-", "color": color, "lw": POINT, "relpos": (0, 0.5)},
        )
        fonts.style(text, FONT, INK)


def _spread(wanted: Sequence[float], distance: float) -> NDArray[np.float64]:
    """Move heights in [0, 1] at least ``distance`` apart, as little as possible and in order.

    Isotonic regression of the heights, less the room of the names below, by the min-max formula
    (Barlow et al. 1972).
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
    heights = np.empty(len(order))
    heights[order] = np.clip(fitted, 0, 1 - room[-1]) + room
    return heights
