"""Draw the figures of docs/attention.md that need no trained model, into docs/attention/.

    python docs/draw_attention.py

All weights are computed by the library's own modules, so that a figure shows what the code does.
Keys, energies, and vectors are made up below; nothing is learned, and nothing is random except the
noise of ``kernel``, whose seed is fixed.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.axes import Axes
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
from seq2seq.figures import heatmap
from seq2seq.figures.style import (
    COLORS,
    GAP,
    INK,
    LARGE_FONT,
    LINES,
    MUTED,
    POINT,
    SMALL_FONT,
    find_fonts,
    lay_out,
    new_figure,
    save_figure,
)

FOLDER = Path(__file__).parent / "attention"
FONTS = find_fonts()

# Sizes are in pixels; a page of documentation is about 850 wide.
FONT = 12
DARK, MIDDLE, WARM = "#0c2a56", "#4a83bd", "#d2691e"
OUTSIDE = "#ececec"


class Panel(NamedTuple):
    """A matrix of weights with its title, labels and marks."""

    title: str
    weights: Tensor  # (T, S)
    columns: Sequence[str]
    rows: Sequence[str]
    mask: Tensor | None = None  # (T, S); where False, a weight of 0 is painted gray
    centers: Tensor | None = None  # (T,), a dot in each row


def masking() -> Figure:
    """Draw the same energies under two kinds of valid lengths, and one wrong way to mask."""
    energies = torch.tensor([1.0, 0.2, 1.6, 0.6, 1.2, 0.0]).repeat(4, 1)
    positions = torch.arange(6)
    lengths, of_queries = torch.tensor([6, 4, 1, 0]), torch.tensor([3, 4, 5, 6])
    known, seen = positions < lengths.unsqueeze(1), positions < of_queries.unsqueeze(1)
    filled = energies.masked_fill(~known, -1e6).softmax(dim=-1)
    two_dimensional = masked_softmax(energies.unsqueeze(0), of_queries.unsqueeze(0)).squeeze(0)
    columns = [str(j) for j in range(1, 7)]
    rows = [f"length={n}" for n in lengths]
    panels = [
        Panel("filled with -1e6", filled, columns, rows, known),
        Panel("lengths (B,)", masked_softmax(energies, lengths), columns, rows, known),
        Panel(
            "lengths (B, Q), one sentence",
            two_dimensional,
            columns,
            [f"q{i}:length={n}" for i, n in enumerate(of_queries, 1)],
            seen,
        ),
    ]
    caption = "columns: source positions   numbers: weights   gray: padding, weight 0"
    return draw_panels(panels, 3, 32, caption, written=True)


def kernel() -> Figure:
    """Draw the Nadaraya-Watson regression of noisy points at three widths, with its weights."""
    generator = torch.Generator().manual_seed(3)
    keys = (5 * torch.rand(40, generator=generator)).sort().values

    def curve(x: Tensor) -> Tensor:
        return torch.sin(2 * x) + x / 2

    values = curve(keys) + 0.35 * torch.randn(40, generator=generator)
    queries = torch.linspace(0, 5, 101)
    figure = new_figure()
    grid = figure.subplots(2, 3, squeeze=False)
    for index, w in enumerate((0.5, 5.0, 50.0)):
        found, weights = pooled(queries, keys, values, w)
        axes = grid[0, index]
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
                FONTS.style(text, SMALL_FONT, INK)
        plain(axes, labels=index == 0)
        write_title(axes, f"w = {w:g}", LARGE_FONT)
        axes = grid[1, index]
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
    write_caption(
        figure,
        "above: the regression   below: its weights, rows: queries, columns: keys, "
        "white 0, dark the largest of the panel",
    )
    lay_out(figure, grid, [236] * 3, [190, 150])
    return figure


def pooled(queries: Tensor, keys: Tensor, values: Tensor, w: float) -> tuple[Tensor, Tensor]:
    """Compute Gaussian attention pooling of scalars: (Q,), (S,), (S,) -> (Q,), (Q, S)."""
    score = GaussianScore()
    score.log_width.data.fill_(math.log(w))
    known = torch.ones(1, len(keys), dtype=torch.bool)
    with torch.no_grad():
        found, weights = Attention(score)(
            queries[None, :, None], keys[None, :, None], values[None, :, None], known
        )
    return found[0, :, 0], weights[0]


def normalizers() -> Figure:
    """Draw the weights of softmax, 1.5-entmax and sparsemax for two energies, and for seven."""
    figure = new_figure()
    grid = figure.subplots(1, 2, squeeze=False)
    axes = grid[0, 0]
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
        FONTS.style(text, FONT, INK)
    plain(axes, labels=True)
    write_title(axes, "two energies, d and 0: weight of the first", FONT + 1, pad=36)
    FONTS.style(axes.set_xlabel("d"), FONT, MUTED)

    seven = torch.tensor([[2.0, 1.6, 1.2, 0.8, 0.0, -0.5, -1.0]])
    rows = [NORMALIZERS[name](seven, torch.ones(1, 7, dtype=torch.bool)) for name in names]
    columns = [f"{energy:g}" for energy in seven[0].tolist()]
    axes = grid[0, 1]
    axes.set(xlim=(-0.5, 6.5), ylim=(4.5, -0.5))  # in cells; the matrix has only three rows
    panel = Panel("", torch.cat(rows), columns, list(names.values()))
    plain_panel = heatmap.Panel("", panel.weights.numpy(), panel.columns, panel.rows)
    heatmap.draw_matrix(axes, plain_panel, 40, FONT, FONTS)
    mark(axes, panel, written=True)
    write_title(axes, "seven energies and their weights", FONT + 1, pad=36)
    write_caption(figure, "columns: energies   numbers: weights")
    lay_out(figure, grid, [340, 280], [200])
    return figure


SOURCE = ["Die", "kluge", "Frau", "hat", "heute", "eine", "Gitarre", "gekauft", "."]
TARGET = ["The", "wise", "woman", "bought", "a", "guitar", "today", "."]
# Made-up e_ij: each word finds its translation, "bought" also its auxiliary, and both English
# articles prefer the first German one.
HIGH_ENERGIES = {
    (0, 0): 4.0, (0, 5): 2.5, (1, 1): 4.0, (2, 2): 4.0, (3, 7): 3.6, (3, 3): 3.0,
    (4, 5): 3.4, (4, 0): 3.8, (5, 6): 4.0, (6, 4): 4.0, (7, 8): 4.0,
}  # fmt: skip


def made_up_energies() -> Tensor:
    """Return energies (T, S): those of ``HIGH_ENERGIES``, low and uneven ones elsewhere."""
    rows, columns = torch.arange(len(TARGET)).unsqueeze(1), torch.arange(len(SOURCE))
    energies = torch.sin(5.0 * rows + 3.0 * columns) / 2  # an arbitrary pattern
    for (i, j), energy in HIGH_ENERGIES.items():
        energies[i, j] = energy
    return energies


def windows() -> Figure:
    """Draw one matrix of energies in every attention mode."""
    energies = made_up_energies()
    predictive, centers = given_predictions()
    expected, stopping = Monotonic(noise=0.0), Monotonic(noise=0.0).eval()
    settings: list[tuple[str, Distribution, float]] = [
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
    for index, (title, distribution, penalty) in enumerate(settings):
        weights = walk(energies, distribution, penalty)
        rows = TARGET if index % 4 == 0 else [""] * len(TARGET)
        mask = weights > 0 if title in marks else None  # a softmax: 0 is outside the window
        panels.append(Panel(title, weights, SOURCE, rows, mask, marks.get(title)))
    caption = "columns: source   rows: target   gray: outside the window   dots: its center"
    return draw_panels(panels, 4, 18, caption, bar=True)


def walk(energies: Tensor, distribution: Distribution, penalty: float) -> Tensor:
    """Compute the weights (T, S) of the target positions one after another.

    The scoring function is a dot product that returns ``energies`` (T, S): queries are the rows of
    the identity matrix, keys the columns of ``energies``. An additional unit in both lets coverage
    lower the energy of each source position by ``penalty`` times the sum of its earlier weights.
    """
    num_target, num_source = energies.shape
    coverage_size = num_target + 1 if penalty else None
    attention = Attention(DotScore(), distribution, coverage_size)
    if attention.coverage_layer is not None:
        attention.coverage_layer.weight.data.zero_()[-1] = -penalty
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
    """Build a local-p with fixed predictions (T,) near each translation; return both."""
    centers = torch.tensor([0.3, 1.1, 2.2, 5.8, 4.8, 5.9, 4.6, 7.7])
    distribution = LocalPredictive(query_size=len(TARGET) + 1, hidden_size=1, window=2)
    distribution.position_layer.weight.data.fill_(10)
    share = centers / (len(SOURCE) - 1)
    distribution.query_layer.weight.data[0, :-1] = torch.atanh(share.logit() / 10)
    distribution.query_layer.weight.data[0, -1] = 0
    return distribution, centers


# Made-up vectors, with units for article, person, music, and action.
VECTORS = {
    "a": [1.0, 0, 0, 0], "the": [1.0, 0, 0, 0], "woman": [0, 1.0, 0, 0],
    "someone": [0.3, 0.9, 0, 0], "plays": [0, 0, 0.6, 0.8], "makes": [0, 0.1, 0, 1.0],
    "guitar": [0, 0, 1.0, 0], "music": [0, 0, 1.0, 0.1],
}  # fmt: skip
PREMISE, HYPOTHESIS = ["a", "woman", "plays", "the", "guitar"], ["someone", "makes", "music"]


def sequences() -> Figure:
    """Draw self-attention, causal self-attention, and attention between two sentences."""
    first, second = (
        torch.tensor([[VECTORS[word] for word in words]]) * 2.6 for words in (PREMISE, HYPOTHESIS)
    )
    known, also_known = (torch.ones(x.shape[:2], dtype=torch.bool) for x in (first, second))
    attention = Attention(ScaledDotScore())
    every = SelfAttention(attention)(first, known)[1]
    earlier = SelfAttention(attention, causal=True)(first, known)[1]
    both = BidirectionalAttention(ScaledDotScore())
    (_, forward), (_, backward) = both(first, second, known, also_known)
    panels = [
        Panel("self", every[0], PREMISE, PREMISE),
        Panel("self, causal", earlier[0], PREMISE, PREMISE, earlier[0] > 0),
        Panel("first to second", forward[0], HYPOTHESIS, PREMISE),
        Panel("second to first", backward[0], PREMISE, HYPOTHESIS),
    ]
    caption = "rows: queries   columns: keys   every row sums to 1   gray: later positions"
    return draw_panels(panels, 4, 24, caption, bar=True)


def draw_panels(
    panels: Sequence[Panel],
    columns: int,
    cell: int,
    caption: str,
    written: bool = False,
    bar: bool = False,
) -> Figure:
    """Draw panels in rows of ``columns``; ``written`` adds the weights as numbers."""
    plain_panels = [
        heatmap.Panel(panel.title, panel.weights.numpy(), panel.columns, panel.rows)
        for panel in panels
    ]
    figure = heatmap.draw_panels(plain_panels, columns, cell, FONT, caption, bar=bar)
    matrices = (axes for axes in figure.axes if axes.images)
    for axes, panel in zip(matrices, panels, strict=True):
        mark(axes, panel, written)
    return figure


def mark(axes: Axes, panel: Panel, written: bool) -> None:
    """Paint masked cells gray, and add numbers and dots."""
    for (i, j), weight in zip(cells(panel.weights), panel.weights.flatten().tolist(), strict=True):
        if weight == 0 and panel.mask is not None and not panel.mask[i, j]:
            axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=OUTSIDE, edgecolor=LINES))
        elif written:
            shown = "0" if weight == 0 else "1" if weight == 1 else f"{weight:.2f}".lstrip("0")
            color = "white" if weight > 0.45 else INK if weight else MUTED
            FONTS.style(axes.text(j, i, shown, ha="center", va="center"), SMALL_FONT, color)
    if panel.centers is not None:
        axes.plot(panel.centers.numpy(), range(len(panel.centers)), "o", color=WARM, markersize=2.6)


def cells(matrix: Tensor) -> list[tuple[int, int]]:
    return [(i, j) for i in range(matrix.shape[0]) for j in range(matrix.shape[1])]


def write_title(axes: Axes, text: str, size: float, pad: float = GAP) -> None:
    FONTS.style(axes.set_title(text, loc="left", y=1, pad=pad * POINT), size, INK)


def write_caption(figure: Figure, text: str) -> None:
    FONTS.style(figure.text(0, 0, text), SMALL_FONT, MUTED)


def plain(axes: Axes, labels: bool) -> None:
    """Give axes the look of the heatmaps: thin gray lines, small gray numbers."""
    for spine in axes.spines.values():
        spine.set(edgecolor=LINES, linewidth=POINT)
    axes.tick_params(length=3 * POINT, width=POINT, color=MUTED, pad=4 * POINT, labelleft=labels)
    for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]:
        FONTS.style(label, SMALL_FONT, MUTED)


PICTURES: dict[str, Callable[[], Figure]] = {
    f"{draw.__name__}.png": draw for draw in (masking, kernel, normalizers, windows, sequences)
}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        save_figure(draw(), FOLDER / name)
