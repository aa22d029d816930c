"""Formats the measurements as tables for a terminal."""

from collections.abc import Callable, Sequence
from typing import Any

from seq2seq.benchmark.updates import PHASES
from seq2seq.device import plural

MIB = 2**20


def report(result: dict[str, Any]) -> str:
    """Format all measurements, as medians with quartiles in brackets."""
    sections: dict[str, Callable[[dict[str, Any]], list[str]]] = {
        "training": _training,
        "attention": _attention,
        "decoding": _decoding,
        "loading": _loading,
    }
    environment = result["environment"]
    lines = [
        f"{environment['processor']}, {environment['device']}, "
        f"{plural(environment['threads'], 'thread')}, torch {environment['torch']}; medians of "
        f"{plural(result['settings']['repeats'], 'turn')} [quartiles]"
    ]
    for name, section in sections.items():
        if name in result:
            lines += ["", *section(result)]
    return "\n".join(lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]


def format_spread(spread: dict[str, Any], scale: float = 1.0, digits: int = 0) -> str:
    """Format a median with its quartiles."""
    lower, upper = (f"{scale * value:,.{digits}f}" for value in spread["quartiles"])
    return f"{scale * spread['median']:,.{digits}f} [{lower}, {upper}]"


def _training(result: dict[str, Any]) -> list[str]:
    training = result["training"]
    ways, memory = training.get("ways", {}), training.get("memory", {})
    lines = []
    if ways:
        head = ["training", "target tokens/s", "x tutorial", "of peak", *PHASES]
        rows = [
            [f"{name}: {way['meaning']}", *_way(way)]
            for name, way in ways.items()
            if "unsupported" not in way
        ]
        lines += table(head, rows)
        lines += [
            f"{name}: {way['unsupported']}" for name, way in ways.items() if "unsupported" in way
        ]
        lines += _ratios(ways)
    for precision, peak in training.get("peak", {}).items():
        best = max(peak["shapes"], key=lambda shape: peak["shapes"][shape]["median"])
        lines.append(
            f"matrix products, {precision}: {peak['best'] / 1e9:,.1f} GFLOP/s at best ({best}); an "
            f"update takes {training['operations_per_token'] / 1e6:,.1f} MFLOP per target token"
        )
    if memory:
        rows = [[name, f"{_peak(found) / MIB:,.0f}"] for name, found in memory.items()]
        lines += ["", *table(["training", "peak MiB"], rows)]
    return lines


def _way(way: dict[str, Any]) -> list[str]:
    total = sum(seconds["median"] for seconds in way["seconds"].values())
    fraction = way.get("fraction_of_peak")
    return [
        format_spread(way["tokens_per_second"]),
        format_spread(way["speedup"], digits=2),
        "" if fraction is None else f"{fraction:.0%}",
        *(f"{way['seconds'][phase]['median'] / total:.1%}" for phase in PHASES),
    ]


def _ratios(ways: dict[str, Any]) -> list[str]:
    """Format the speed of each variant relative to the variants before it."""
    speeds = {
        name: way["tokens_per_second"]["median"]
        for name, way in ways.items()
        if "unsupported" not in way
    }
    names = list(speeds)
    pairs = [(a, b) for i, b in enumerate(names) for a in names[:i]]
    return ["  ".join(f"{b}/{a} {speeds[b] / speeds[a]:.2f}" for a, b in pairs)]


def _attention(result: dict[str, Any]) -> list[str]:
    head = ["attention, S x T x A", "plain ms", "fast ms", "ratio", "plain MiB", "fast MiB"]
    rows = []
    for row in result["attention"]:
        size, ways = row["size"], (row["plain"], row["fast"])
        plain, fast = (way["seconds"]["median"] for way in ways)
        rows.append(
            [
                f"{size['source']} x {size['target']} x {size['attention']}",
                *(format_spread(way["seconds"], 1e3) for way in ways),
                f"{plain / fast:.2f}",
                *(
                    f"{_growth(way['memory']) / MIB:,.0f}" if "memory" in way else ""
                    for way in ways
                ),
            ]
        )
    return table(head, rows)


def _decoding(result: dict[str, Any]) -> list[str]:
    rows = [
        [name, format_spread(found["sentences_per_second"], digits=1)]
        for name, found in result["decoding"].items()
    ]
    return [
        *table(["decoding", "sentences/s"], rows),
        "(untrained, every hypothesis as long as its source: compare within one run only)",
    ]


def _loading(result: dict[str, Any]) -> list[str]:
    rows = [
        [
            f"{row['pairs']:,} pairs",
            format_spread(row["tokens_per_second"]),
            f"{_peak(row['memory']) / MIB:,.0f}" if "memory" in row else "",
        ]
        for row in result["loading"]
    ]
    return table(["loading", "target tokens/s", "peak MiB"], rows)


def _peak(memory: dict[str, int]) -> int:
    return memory.get("gpu_peak", memory["peak"])


def _growth(memory: dict[str, int]) -> int:
    return memory.get("gpu_peak", memory["peak"] - memory["before"])
