"""Draw the pictures of docs/attention.md that need no trained model, into docs/attention/.

    python docs/draw_attention.py

Every weight comes from the library's own modules, so that a picture shows what the code does. What
is asked and answered is made up: keys, energies and vectors are written down here, nothing is
learnt and nothing is drawn at random but the noise of ``kernel``, whose seed is fixed.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from seq2seq.attention.distribution import (
    AttentionHistory,
    Distribution,
    Hard,
    LocalMonotonic,
    LocalPredictive,
    Monotonic,
    Soft,
)
from seq2seq.attention.masking import NORMALIZERS, masked_softmax
from seq2seq.attention.pooling import Attention
from seq2seq.attention.scoring import DotScore, GaussianScore, ScaledDotScore
from seq2seq.attention.sequences import BidirectionalAttention, SelfAttention
from seq2seq.figures.heatmap import (
    COLORS,
    DPI,
    FONTS,
    GAP,
    INK,
    LARGE_FONT,
    LINES,
    MARGIN,
    MUTED,
    POINT,
    SMALL_FONT,
    Layout,
    Ruler,
    add_axes,
    draw_bar,
    draw_matrix,
    lay_out,
    save_figure,
    style,
    usable_fonts,
)

FOLDER = Path(__file__).parent / "attention"
FAMILIES, _ = usable_fonts(FONTS)

# Sizes are in pixels; a page of documentation is about 850 wide.
FONT, TITLE, CAPTION, BAR = 12, 26, 34, 52
DARK, MIDDLE, WARM = "#0c2a56", "#4a83bd", "#d2691e"
ASIDE = "#ececec"


class Panel(NamedTuple):
    """A matrix of weights with what belongs around it."""

    title: str
    weights: Tensor  # (T, S)
    columns: Sequence[str]
    rows: Sequence[str]
    mask: Tensor | None = None  # (T, S); where False, a weight of 0 is painted grey
    centers: Tensor | None = None  # a mark in each row, (T,)


def masking() -> Figure:
    """The same energies under three kinds of valid lengths, and one faulty way to mask."""
    energies = torch.tensor([1.0, 0.2, 1.6, 0.6, 1.2, 0.0]).repeat(4, 1)
    positions = torch.arange(6)
    lengths, of_queries = torch.tensor([6, 4, 1, 0]), torch.tensor([3, 4, 5, 6])
    known, seen = positions < lengths.unsqueeze(1), positions < of_queries.unsqueeze(1)
    filled = energies.masked_fill(~known, -1e6).softmax(dim=-1)
    two_dimensional = masked_softmax(energies.unsqueeze(0), of_queries.unsqueeze(0)).squeeze(0)
    columns = [str(j) for j in range(1, 7)]
    rows = [f"length {n}" for n in lengths]
    panels = [
        Panel("filled with -1e6", filled, columns, rows, known),
        Panel("lengths (B,)", masked_softmax(energies, lengths), columns, rows, known),
        Panel(
            "lengths (B, Q), one sentence",
            two_dimensional,
            columns,
            [f"query {i}: {n}" for i, n in enumerate(of_queries, 1)],
            seen,
        ),
    ]
    caption = "columns: source positions   figures: weights   grey: padding, weight 0"
    return draw_panels([panels], 32, caption, written=True)


def kernel() -> Figure:
    """Nadaraya-Watson regression of noisy points at three widths, with its weights."""
    generator = torch.Generator().manual_seed(3)
    keys = (5 * torch.rand(40, generator=generator)).sort().values

    def curve(x: Tensor) -> Tensor:
        return torch.sin(2 * x) + x / 2

    values = curve(keys) + 0.35 * torch.randn(40, generator=generator)
    queries = torch.linspace(0, 5, 101)
    width, left, wide, gap = 850, 52, 236, 30
    plot_height, map_height, bottom = 190, 150, 66
    height = bottom + map_height + 44 + plot_height + TITLE + MARGIN
    figure = new_figure(width, height)
    for index, w in enumerate((0.5, 5.0, 50.0)):
        found, weights = pooled(queries, keys, values, w)
        x = left + index * (wide + gap)
        axes = add_axes(figure, x, bottom + map_height + 44, wide, plot_height)
        axes.scatter(
            keys.numpy(), values.numpy(), s=9, color=WARM, linewidths=0, label="keys, values"
        )
        axes.plot(
            queries.numpy(),
            curve(queries).numpy(),
            color=MUTED,
            linewidth=1,
            linestyle=":",
            label="truth",
        )
        axes.plot(queries.numpy(), found.numpy(), color=DARK, linewidth=1.4, label="pooled")
        axes.axhline(
            values.mean().item(), color=MIDDLE, linewidth=0.9, linestyle="--", label="average"
        )
        axes.set(xlim=(0, 5), ylim=(-1.2, 5.2), xticks=range(6), yticks=range(-1, 6))
        if index == 2:
            legend = axes.legend(
                loc="upper left",
                frameon=False,
                ncols=2,
                handlelength=1.4,
                columnspacing=1,
                borderaxespad=0.2,
            )
            for text in legend.get_texts():
                style(text, SMALL_FONT, INK, FAMILIES)
        plain(axes, labels=index == 0)
        write(figure, x, height - MARGIN, f"w = {w:g}", LARGE_FONT, INK)
        axes = add_axes(figure, x, bottom, wide, map_height)
        axes.imshow(
            (weights / weights.max()).numpy(),
            cmap=COLORS,
            vmin=0,
            vmax=1,
            aspect="auto",
            interpolation="none",
        )
        axes.set(xticks=[0, 39], yticks=[0, 50, 100])
        first, last = axes.set_xticklabels(["key 1", "key 40"])
        first.set_horizontalalignment("left")
        last.set_horizontalalignment("right")
        axes.set_yticklabels(["0", "2.5", "5"] if index == 0 else [])
        plain(axes, labels=True)
    captions = "above: the regression   below: its weights, rows: queries, columns: keys,"
    write(figure, MARGIN, 2 * MARGIN, f"{captions} white 0, dark the largest of the panel")
    return figure


def pooled(queries: Tensor, keys: Tensor, values: Tensor, w: float) -> tuple[Tensor, Tensor]:
    """Gaussian attention pooling of scalars: (Q,), (S,), (S,) -> (Q,), (Q, S)."""
    score = GaussianScore()
    score.log_width.data.fill_(math.log(w))
    known = torch.ones(1, len(keys), dtype=torch.bool)
    with torch.no_grad():
        found, weights = Attention(score)(
            queries[None, :, None], keys[None, :, None], values[None, :, None], known
        )
    return found[0, :, 0], weights[0]


def normalizers() -> Figure:
    """What softmax, 1.5-entmax and sparsemax make of two energies, and of seven."""
    width, height, left, plot = 850, 300, 52, 340
    figure = new_figure(width, height)
    bottom = 58
    axes = add_axes(figure, left, bottom, plot, height - bottom - TITLE - MARGIN)
    difference = torch.linspace(-4, 4, 401)
    energies = torch.stack([difference, torch.zeros(401)], dim=1)
    known = torch.ones(401, 2, dtype=torch.bool)
    names = {"softmax": "softmax", "entmax15": "1.5-entmax", "sparsemax": "sparsemax"}
    colors = {"softmax": DARK, "entmax15": MIDDLE, "sparsemax": WARM}
    for name, label in names.items():
        weights = NORMALIZERS[name](energies, known)[:, 0]
        axes.plot(
            difference.numpy(), weights.numpy(), color=colors[name], linewidth=1.6, label=label
        )
    axes.set(xlim=(-4, 4), ylim=(-0.03, 1.03), xticks=range(-4, 5, 2), yticks=(0, 0.5, 1))
    for text in axes.legend(loc="upper left", frameon=False).get_texts():
        style(text, FONT, INK, FAMILIES)
    plain(axes, labels=True)
    write(figure, left, height - MARGIN, "two energies, d and 0: weight of the first", FONT + 1)
    write(figure, left + plot / 2, bottom - 24, "d", FONT, MUTED, ha="center")

    seven = torch.tensor([[2.0, 1.6, 1.2, 0.8, 0.0, -0.5, -1.0]])
    rows = [NORMALIZERS[name](seven, torch.ones(1, 7, dtype=torch.bool)) for name in names]
    columns = [f"{energy:g}" for energy in seven[0].tolist()]
    layout = lay_out(columns, list(names.values()), 40, FONT, ruler_of(figure))
    panel = Panel("", torch.cat(rows), columns, list(names.values()))
    x = left + plot + 12 + layout.left
    draw_panel(figure, panel, layout, (x, bottom + 40), written=True)
    write(figure, x, height - MARGIN, "seven energies and their weights", FONT + 1)
    return figure


SOURCE = ["Die", "kluge", "Frau", "hat", "heute", "eine", "Gitarre", "gekauft", "."]
TARGET = ["The", "wise", "woman", "bought", "a", "guitar", "today", "."]
# e_ij, made up: each word finds its translation, but "bought" also its auxiliary, and both articles
# prefer the first one.
FOUND = {
    (0, 0): 4.0, (0, 5): 2.5, (1, 1): 4.0, (2, 2): 4.0, (3, 7): 3.6, (3, 3): 3.0,
    (4, 5): 3.4, (4, 0): 3.8, (5, 6): 4.0, (6, 4): 4.0, (7, 8): 4.0,
}  # fmt: skip


def made_up_energies() -> Tensor:
    """(T, S): high where ``FOUND`` has it, low and uneven elsewhere."""
    rows, columns = torch.arange(len(TARGET)).unsqueeze(1), torch.arange(len(SOURCE))
    energies = torch.sin(5.0 * rows + 3.0 * columns) / 2  # any pattern without a meaning
    for (i, j), energy in FOUND.items():
        energies[i, j] = energy
    return energies


def windows() -> Figure:
    """One matrix of energies in every attention mode."""
    energies = made_up_energies()
    predictive, centers = given_predictions()
    expected, stopping = Monotonic(noise=0.0), Monotonic(noise=0.0).eval()
    ways: list[tuple[str, Distribution, float]] = [
        ("soft", Soft(), 0.0),
        ("soft, sparsemax", Soft("sparsemax"), 0.0),
        ("soft, coverage", Soft(), 2.0),
        ("hard, evaluated", Hard(temperature=1.0).eval(), 0.0),
        ("local-m, window 2", LocalMonotonic(window=2), 0.0),
        ("local-p, window 2", predictive, 0.0),
        ("monotonic, training", expected, 0.0),
        ("monotonic, evaluated", stopping, 0.0),
    ]
    marks = {"local-m, window 2": torch.arange(8.0), "local-p, window 2": centers}
    panels = []
    for index, (title, distribution, discouragement) in enumerate(ways):
        weights = walk(energies, distribution, discouragement)
        rows = TARGET if index % 4 == 0 else [""] * len(TARGET)
        mask = weights > 0 if title in marks else None  # a softmax: 0 is outside the window
        panels.append(Panel(title, weights, SOURCE, rows, mask, marks.get(title)))
    caption = "columns: source   rows: target   grey: outside the window   dots: its center"
    return draw_panels([panels[:4], panels[4:]], 18, caption, bar=True)


def walk(energies: Tensor, distribution: Distribution, discouragement: float) -> Tensor:
    """Weights (T, S) of the target positions one after another.

    The scoring function is a dot product that returns ``energies`` (T, S): queries are the rows of
    the unit matrix, keys the columns of ``energies``. One more unit of both lets coverage lower the
    energy of each source position by ``discouragement`` times the weight it has had.
    """
    num_target, num_source = energies.shape
    coverage_size = num_target + 1 if discouragement else None
    attention = Attention(DotScore(), distribution, coverage_size)
    if attention.coverage_layer is not None:
        attention.coverage_layer.weight.data.zero_()[-1] = -discouragement
    keys = torch.cat([energies, torch.zeros(1, num_source)]).T.unsqueeze(0)
    queries = torch.cat([torch.eye(num_target), torch.ones(num_target, 1)], dim=1)
    mask = torch.ones(1, num_source, dtype=torch.bool)
    history, found = AttentionHistory.empty(keys), []
    with torch.no_grad():
        for query in queries:
            _, weights = attention(query[None], keys, keys, mask, history)
            history = history.append(weights)
            found.append(weights[0])
    return torch.stack(found)


def given_predictions() -> tuple[LocalPredictive, Tensor]:
    """A local-p whose predictions are given, near each translation; and these, (T,)."""
    centers = torch.tensor([0.3, 1.1, 2.2, 5.8, 4.8, 5.9, 4.6, 7.7])
    distribution = LocalPredictive(query_size=len(TARGET) + 1, hidden_size=1, window=2)
    distribution.position_layer.weight.data.fill_(10)
    share = centers / (len(SOURCE) - 1)
    distribution.query_layer.weight.data[0, :-1] = torch.atanh(share.logit() / 10)
    distribution.query_layer.weight.data[0, -1] = 0
    return distribution, centers


# Made up: units for article, person, music, action.
VECTORS = {
    "a": [1.0, 0, 0, 0], "the": [1.0, 0, 0, 0], "woman": [0, 1.0, 0, 0],
    "someone": [0.3, 0.9, 0, 0], "plays": [0, 0, 0.6, 0.8], "makes": [0, 0.1, 0, 1.0],
    "guitar": [0, 0, 1.0, 0], "music": [0, 0, 1.0, 0.1],
}  # fmt: skip
PREMISE, HYPOTHESIS = ["a", "woman", "plays", "the", "guitar"], ["someone", "makes", "music"]


def sequences() -> Figure:
    """Self-attention, causal self-attention, and attention between two sentences both ways."""
    first, second = (
        torch.tensor([[VECTORS[word] for word in words]]) * 2.6 for words in (PREMISE, HYPOTHESIS)
    )
    known, also_known = (torch.ones(x.shape[:2], dtype=torch.bool) for x in (first, second))
    attention = Attention(ScaledDotScore())
    every = SelfAttention(attention)(first, known)[1]
    earlier = SelfAttention(attention, causal=True)(first, known)[1]
    both = BidirectionalAttention(ScaledDotScore())
    (_, ahead), (_, back) = both(first, second, known, also_known)
    panels = [
        Panel("self", every[0], PREMISE, PREMISE),
        Panel("self, causal", earlier[0], PREMISE, PREMISE, earlier[0] > 0),
        Panel("first asks second", ahead[0], HYPOTHESIS, PREMISE),
        Panel("second asks first", back[0], PREMISE, HYPOTHESIS),
    ]
    caption = "rows ask, columns answer; every row sums to 1   grey: the future, not seen"
    return draw_panels([panels], 24, caption, bar=True)


def draw_panels(
    grid: Sequence[Sequence[Panel]],
    cell: int,
    caption: str,
    written: bool = False,
    bar: bool = False,
) -> Figure:
    """Panels in rows, their columns aligned; a caption below, the color scale at the right."""
    ruler = ruler_of(new_figure(100, 100))
    layouts = [[lay_out(p.columns, p.rows, cell, FONT, ruler) for p in row] for row in grid]
    lefts, x = [], 0.0
    for column in zip(*layouts, strict=True):
        left = x + max(layout.left for layout in column)
        lefts.append(left)
        x = left + max(
            max(layout.width, ruler.width(row[len(lefts) - 1].title, FONT + 1))
            for layout, row in zip(column, grid, strict=True)
        )
    tops = [TITLE + max(layout.top for layout in row) for row in layouts]
    heights = [max(layout.height for layout in row) for row in layouts]
    height = sum(tops) + sum(heights) + (len(grid) - 1) * GAP + CAPTION + MARGIN
    figure = new_figure(math.ceil(x + (BAR if bar else 0) + MARGIN), math.ceil(height))
    y: float = math.ceil(height) - MARGIN
    for row, placed, top, tall in zip(grid, layouts, tops, heights, strict=True):
        for panel, layout, left in zip(row, placed, lefts, strict=True):
            write(figure, left, y, panel.title, FONT + 1)
            bottom = y - top - layout.height
            axes = draw_panel(figure, panel, layout, (left, bottom), written)
        y -= top + tall + GAP
    if bar:
        draw_bar(figure, axes.images[0], FAMILIES)
    write(figure, MARGIN, 2 * MARGIN - 4, caption)
    return figure


def draw_panel(
    figure: Figure, panel: Panel, layout: Layout, corner: tuple[float, float], written: bool
) -> Axes:
    """The panel without its title, its lower left ``corner`` there; ``written``: with figures."""
    axes = add_axes(figure, *corner, layout.width, layout.height)
    draw_matrix(axes, panel.weights.numpy(), layout, FAMILIES)
    for (i, j), weight in zip(cells(panel.weights), panel.weights.flatten().tolist(), strict=True):
        if weight == 0 and panel.mask is not None and not panel.mask[i, j]:
            axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=ASIDE, edgecolor=LINES))
        elif written:
            shown = "0" if weight == 0 else "1" if weight == 1 else f"{weight:.2f}".lstrip("0")
            color = "white" if weight > 0.45 else INK if weight else MUTED
            style(axes.text(j, i, shown, ha="center", va="center"), SMALL_FONT, color, FAMILIES)
    if panel.centers is not None:
        axes.plot(panel.centers.numpy(), range(len(panel.centers)), "o", color=WARM, markersize=2.6)
    return axes


def cells(matrix: Tensor) -> list[tuple[int, int]]:
    return [(i, j) for i in range(matrix.shape[0]) for j in range(matrix.shape[1])]


def new_figure(width: int, height: int) -> Figure:
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def ruler_of(figure: Figure) -> Ruler:
    return Ruler(FigureCanvasAgg(figure), FAMILIES)


def write(
    figure: Figure,
    x: float,
    y: float,
    text: str,
    font: float = SMALL_FONT,
    color: str = "",
    ha: str = "left",
) -> None:
    """Text with its upper edge at ``y``, in pixels; small text is muted."""
    width, height = figure.bbox.size
    color = color or (MUTED if font == SMALL_FONT else INK)
    style(figure.text(x / width, y / height, text, va="top", ha=ha), font, color, FAMILIES)


def plain(axes: Axes, labels: bool) -> None:
    """The look of the heatmaps for any axes: thin grey lines, small grey figures."""
    for spine in axes.spines.values():
        spine.set(edgecolor=LINES, linewidth=POINT)
    axes.tick_params(length=3 * POINT, width=POINT, color=MUTED, pad=4 * POINT, labelleft=labels)
    for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]:
        style(label, SMALL_FONT, MUTED, FAMILIES)


PICTURES: dict[str, Callable[[], Figure]] = {
    f"{draw.__name__}.png": draw for draw in (masking, kernel, normalizers, windows, sequences)
}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        save_figure(draw(), FOLDER / name)
