"""What a run tells about itself: JSON lines for programs, TensorBoard for people."""

import json
import math
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter

from seq2seq.files import replacing


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a journal, in order.

    Raises:
        ValueError: a line is no event; names it.
    """
    events = []
    # The last line may be half written: whole ones end with a line feed.
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            event = json.loads(line)
            events.append(event | {"step": int(event["step"]), "event": str(event["event"])})
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(
                f"{path}, line {number} is no event of a run; mend it, or put the file elsewhere."
            ) from error
    return events


class Journal:
    """``journal.jsonl`` (one event a line) and ``tensorboard/`` of a run folder.

    Args:
        run_dir: the run folder.
        step: updates made so far. What an interrupted run wrote after that step is taken
            back, so that no curve doubles back on itself.
        validated: whether the validation at that very step was finished; if not, what it wrote
            is taken back too.
    """

    def __init__(self, run_dir: Path, step: int = 0, validated: bool = True):
        self.path = run_dir / "journal.jsonl"
        kept = self._take_back(step, validated) if self.path.exists() else []
        self.file = self.path.open("a", encoding="utf-8")
        # At a first start too: TensorBoard takes the first purge that it meets for the beginning
        # of the run, and takes nothing back.
        purge_step = step + 1 if validated else step
        self.board = SummaryWriter(str(run_dir / "tensorboard"), purge_step=purge_step)
        # It takes back whole steps only: what stays of this one is told once more.
        for event in kept:
            if event["step"] >= purge_step:
                self._plot(event.pop("event"), event.pop("step"), event)

    def _take_back(self, step: int, validated: bool) -> list[dict[str, Any]]:
        """Cut the file where ``step`` ends, or its validation begins; the events that stay."""
        events = read_events(self.path)
        last = step if validated else step - 1
        kept = [e for e in events if e["step"] <= (step if e["event"] == "train" else last)]
        with replacing(self.path) as partial:
            partial.write_text("".join(json.dumps(e) + "\n" for e in kept), encoding="utf-8")
        return kept

    def record(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """One event: a line of JSON, and a scalar for each number that has a place on a curve."""
        # JSON has no NaN: what is not finite is written as null.
        plain = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }
        self.file.write(json.dumps({"event": kind, "step": step, **plain}) + "\n")
        self.file.flush()
        self._plot(kind, step, values)

    def _plot(self, kind: str, step: int, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, int | float):
                self.board.add_scalar(f"{kind}/{name}", value, step)

    def picture(self, tag: str, step: int, pixels: NDArray) -> None:
        """A picture, (height, width, 3)."""
        self.board.add_image(tag, pixels, step, dataformats="HWC")

    def text(self, tag: str, step: int, markdown: str) -> None:
        """A text that TensorBoard shows as Markdown."""
        self.board.add_text(tag, markdown, step)

    def flush(self) -> None:
        """Force everything to the files."""
        self.file.flush()
        self.board.flush()

    def close(self) -> None:
        self.file.close()
        self.board.close()
