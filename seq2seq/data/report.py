"""Report on a corpus: how many pairs were kept, how many were dropped and why, and text counts."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from seq2seq.data.reading import SentencePair

MAX_EXAMPLES = 5  # line numbers reported for each reason


class DropReason(StrEnum):
    """Why a training pair is dropped; source and target are always dropped together."""

    BLANK_SOURCE = "blank source"
    BLANK_TARGET = "blank target"
    BOTH_BLANK = "both sides blank"
    SOURCE_TOO_LONG = "source too long"
    TARGET_TOO_LONG = "target too long"


def find_drop_reason(
    pair: SentencePair, tokens: Sequence[list[str]], max_tokens: int
) -> DropReason | None:
    """Return why a training pair must be dropped, or None if it is kept.

    A sentence is blank if it contains nothing except Unicode white space, and too long if it has
    more than ``max_tokens`` tokens. ``tokens`` are those of the source and those of the target.
    """
    match bool(pair.source.strip()), bool(pair.target.strip()):
        case False, False:
            return DropReason.BOTH_BLANK
        case False, True:
            return DropReason.BLANK_SOURCE
        case True, False:
            return DropReason.BLANK_TARGET
    source, target = tokens
    if len(source) > max_tokens:
        return DropReason.SOURCE_TOO_LONG
    return DropReason.TARGET_TOO_LONG if len(target) > max_tokens else None


@dataclass
class CorpusReport:
    """Counts of kept and dropped pairs, with the first line numbers for each reason."""

    kept: int = 0
    dropped: Counter[DropReason] = field(default_factory=Counter)
    first_lines: dict[DropReason, list[int]] = field(default_factory=lambda: defaultdict(list))

    @property
    def read(self) -> int:
        return self.kept + self.dropped.total()

    def add(self, reason: DropReason | None, line_number: int) -> None:
        """Count one pair as dropped for ``reason``, or as kept if it is None."""
        if reason is None:
            self.kept += 1
            return
        self.dropped[reason] += 1
        if len(self.first_lines[reason]) < MAX_EXAMPLES:
            self.first_lines[reason].append(line_number)

    @classmethod
    def from_dict(cls, entries: dict[str, Any]) -> "CorpusReport":
        """Rebuild a report from the result of ``to_dict``."""
        report = cls(entries["kept"])
        for reason, drop in entries["dropped"].items():
            report.dropped[DropReason(reason)] = drop["count"]
            report.first_lines[DropReason(reason)] = drop["first_lines"]
        return report

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values for JSON."""
        dropped = {
            reason.value: {"count": self.dropped[reason], "first_lines": self.first_lines[reason]}
            for reason in filter(self.dropped.get, DropReason)
        }
        return {"read": self.read, "kept": self.kept, "dropped": dropped}

    def lines(self) -> list[str]:
        """Format for human readers, one statement per line."""
        lines = [f"read {self.read:,} pairs, kept {self.kept:,}"]
        for reason in filter(self.dropped.get, DropReason):
            count, numbers = self.dropped[reason], self.first_lines[reason]
            where = ", ".join(map(str, numbers)) + (", ..." if count > len(numbers) else "")
            lines.append(f"dropped {count:,}: {reason} (line {where})")
        return lines


def report_lines(report: dict[str, Any]) -> list[str]:
    """Format the report of a prepared corpus for human readers, one statement per line."""
    lines = []
    for split, entries in report.items():
        lines += [f"{split}: {line}" for line in CorpusReport.from_dict(entries).lines()]
        for language in ("source", "target"):
            text = entries[language]
            lines.append(
                f"{split} {language}: {text['tokens']:,} tokens, vocabulary of "
                f"{text['vocabulary']:,}, {text['unknown']:.2%} unknown"
            )
    return lines
