"""Run logs: JSON lines for programs, TensorBoard for people."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from seq2seq.figures.style import figure_image
from seq2seq.files import replacing
from seq2seq.run_folder import RunFolder
from seq2seq.training.task import Drawing


def read_events(path: Path) -> list[dict[str, Any]]:
    """Read the events of a journal, in order.

    Raises:
        ValueError: a line is not an event; names file and line.
    """
    events = []
    # The last line may be incomplete: complete lines end with a line feed.
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            event = json.loads(line)
            events.append(event | {"step": int(event["step"]), "event": str(event["event"])})
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(
                f"{path}, line {number} is not an event of a run; repair it, or move the file away."
            ) from error
    return events


class Journal:
    """``journal.jsonl`` (one event per line), ``tensorboard/`` and the pictures of a run folder.

    Args:
        folder: the run folder.
        step: updates made so far. What an interrupted run wrote after that step is removed, so
            that no curve doubles back on itself.
        validated: whether the validation at that step was finished; if not, what it wrote is
            removed as well.
    """

    def __init__(self, folder: RunFolder, step: int = 0, validated: bool = True):
        self.folder, self.path = folder, folder.journal
        kept = self._truncate(step, validated) if self.path.exists() else []
        self.file = self.path.open("a", encoding="utf-8")
        # Also at the first start: TensorBoard treats the first purge that it reads as the start
        # of the run, and removes nothing.
        purge_step = step + 1 if validated else step
        self.board = SummaryWriter(str(folder.tensorboard), purge_step=purge_step)
        # TensorBoard purges whole steps only: events of this step that are kept are written again.
        for event in kept:
            if event["step"] >= purge_step:
                self._plot(event.pop("event"), event.pop("step"), event)

    def _truncate(self, step: int, validated: bool) -> list[dict[str, Any]]:
        """Cut the file after ``step``, or before its validation; return the remaining events."""
        events = read_events(self.path)
        last = step if validated else step - 1
        kept = [e for e in events if e["step"] <= (step if e["event"] == "train" else last)]
        with replacing(self.path) as partial:
            partial.write_text("".join(json.dumps(e) + "\n" for e in kept), encoding="utf-8")
        return kept

    def record(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Record an event: one line of JSON, and one scalar for each number in it."""
        # JSON has no NaN: non-finite numbers are written as null.
        plain = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }
        self.file.write(json.dumps({"event": kind, "step": step, **plain}) + "\n")
        self.file.flush()
        self._plot(kind, step, values)

    def _plot(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, int | float):
                self.board.add_scalar(f"{kind}/{name}", value, step)

    def draw(self, tag: str, step: int, drawing: Drawing) -> None:
        """Write a picture and its numbers to files, and show the picture in TensorBoard."""
        drawing.save(self.folder.picture(tag, step))
        self.board.add_image(tag, figure_image(drawing.figure), step, dataformats="HWC")

    def text(self, tag: str, step: int, markdown: str) -> None:
        """Show a Markdown text in TensorBoard."""
        self.board.add_text(tag, markdown, step)

    def flush(self) -> None:
        """Write all buffered events to the files."""
        self.file.flush()
        self.board.flush()

    def close(self) -> None:
        self.file.close()
        self.board.close()
