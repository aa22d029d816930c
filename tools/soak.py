"""Kill training processes at random moments, resume them, and compare the results.

    make soak                                   200 kills
    make soak ARGS="--kills 1000 --seed 7"      more kills, at other moments
    make soak ARGS="--processes --kills 20"     a new interpreter for every start

One run, the reference, is not interrupted. Every other run is killed several times (kill -9,
SIGTERM, Ctrl-C, or a full disk), resumed each time, and must produce the same results as the
reference, bit for bit: parameters, optimizer, random numbers, journal, TensorBoard, pictures,
translations and scores. A table counts the kills in each phase of a run, and the runs that were
lost or differ; the exit status is 1 if there are any.

A start takes seconds, mostly for imports. Therefore the processes are forked from this one, which
has imported everything and computed nothing; they die like any other process.
"""

import argparse
import importlib
import importlib.util
import json
import mmap
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "training")]
from conftest import ROOT, TINY, data_arguments
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from seq2seq.checkpoint import load_checkpoint
from seq2seq.run_folder import RunFolder
from seq2seq.runs.run import Run
from seq2seq.search.translator import Translator
from seq2seq.training import trainer as trainer_module
from seq2seq.training.trainer import Trainer

PHASES = ("start-up", "training", "validation", "decoding", "saving", "scoring")
KINDS = ("SIGKILL", "SIGTERM", "SIGINT", "disk full")
ODDS = (6, 2, 1, 1)
LINES = {"train": 60, "valid": 5, "test": 4}  # of the sample corpus: an epoch is 8 steps
SETTINGS = (
    *TINY,
    "device=cpu",
    "model.dropout=0.3",
    "optim.learning_rate=0.02",
    "optim.schedule.name=linear",
    "trainer.max_epochs=3",
    "trainer.batch_sentences=4",
    "trainer.bucket_batches=3",
    "trainer.accumulate_batches=2",
    "trainer.label_smoothing=0.1",
    "trainer.log_every_steps=3",  # does not divide the next: some saves are not at a log line
    "trainer.validate_every_steps=5",
    "trainer.select=loss",
    "trainer.patience=3",
    "trainer.keep_last=2",
    "trainer.keep_best=2",
    "trainer.sentences=[1]",
    "decoding.beam_size=2",
)
# The same loop on another task: the toy of tests/training/toy.py.
TOY = ("plugins=[toy]", "task=line")
CLOCKS = {"seconds", "training_seconds", "interval_seconds"}
CLOCKS |= {"tokens_per_second", "points_per_second"}


# --- a process that reports its phase ---------------------------------------------------------


class Board:
    """Phase and step of a forked process, in memory that outlives it."""

    def __init__(self) -> None:
        self.cells = np.frombuffer(mmap.mmap(-1, 4096), dtype=np.int64)
        self.cells[:] = 0
        self.entries = self.cells[2 : 2 + len(PHASES)]

    @property
    def phase(self) -> str:
        return PHASES[self.cells[0]]

    @property
    def step(self) -> int:
        return int(self.cells[1])

    def announce(self, owner: Any, name: str, phase: str) -> None:
        """Wrap a function so that it records when it begins and ends."""
        original = getattr(owner, name)

        def announced(*arguments: Any, **settings: Any) -> Any:
            before = self.cells[0].item()
            self.cells[0] = PHASES.index(phase)
            self.entries[self.cells[0]] += 1
            try:
                return original(*arguments, **settings)
            finally:
                self.cells[0] = before

        setattr(owner, name, announced)

    def announce_all(self) -> None:
        self.announce(Trainer, "_train", "training")
        self.announce(Trainer, "_update", "training")
        self.announce(Trainer, "_validate_once", "validation")
        self.announce(Translator, "translate", "decoding")
        self.announce(Trainer, "_save", "saving")
        self.announce(Run, "finish", "scoring")
        update = Trainer._update

        def counted(trainer: Trainer, *arguments: Any) -> None:
            update(trainer, *arguments)
            self.cells[1] = trainer.progress.step

        trainer_module.Trainer._update = counted  # type: ignore[method-assign]


class Process:
    """A running ``scripts/train.py``.

    Args:
        script: the imported script, to run in a fork; None starts a new interpreter.
        arguments: the command line.
        cwd: the working directory.
    """

    def __init__(self, script: Any, arguments: list[str], cwd: Path):
        self.board, self.output, self.status = Board(), b"", None
        self.reading, writing = os.pipe()
        os.set_blocking(self.reading, False)
        if script is None:
            command = [sys.executable, str(ROOT / "scripts" / "train.py"), *arguments]
            self.popen = subprocess.Popen(command, cwd=cwd, stdout=writing, stderr=writing)
            self.pid = self.popen.pid
        else:
            self.pid = os.fork()
            if self.pid == 0:
                self._become(script, arguments, cwd, writing)
        os.close(writing)

    def _become(self, script: Any, arguments: list[str], cwd: Path, output: int) -> NoReturn:
        status = 1
        try:
            os.dup2(output, 1)
            os.dup2(output, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", 1)
            os.chdir(cwd)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # as scripts have it while they import
            sys.argv = ["train.py", *arguments]
            self.board.announce_all()
            script.main()
            status = 0
        except SystemExit as stop:
            status = stop.code  # type: ignore[assignment]
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def ended(self) -> bool:
        """Return whether the process has ended; read its output so that the pipe never fills up."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        try:
            while chunk := os.read(self.reading, 1 << 16):
                self.output += chunk
        except BlockingIOError:
            pass
        return self.status is not None

    def wait(self) -> int:
        while not self.ended():
            time.sleep(0.002)
        os.close(self.reading)
        assert self.status is not None
        return self.status

    def strike(self, kind: str, space: int) -> None:
        """Kill the process, or limit the size of its files to ``space`` bytes."""
        if kind == "disk full":
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (space, hard))
        else:
            os.kill(self.pid, signal.Signals[kind])


# --- the results of a run ----------------------------------------------------------------------


def record(folder: Path) -> dict[str, Any]:
    """Return all results of a run, except times, by name."""
    found: dict[str, Any] = {}
    ranking: list[Any] = []
    for name in ("last", "best"):
        checkpoint = load_checkpoint(RunFolder(folder).checkpoint(name))
        progress = checkpoint.header["progress"]
        ranking = ranking or progress["ranking"]
        for tensor, value in checkpoint.tensors.items():
            found[f"{name}.safetensors {tensor}"] = value.numpy().tobytes()
        for key in progress.keys() - CLOCKS - {"epoch", "position"}:
            found[f"{name}.safetensors progress.{key}"] = progress[key]
        for key in checkpoint.header.keys() & {"sides", "random"}:
            found[f"{name}.safetensors {key}"] = checkpoint.header[key]
    kept = RunFolder(folder).saved_steps()
    for _, step in ranking:
        tensors = load_checkpoint(kept[step]).tensors if step in kept else {}
        for tensor, value in tensors.items():
            found[f"step_{step}.safetensors {tensor}"] = value.numpy().tobytes()
    lines = (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        found[f"journal.jsonl:{number}"] = _without_clocks(json.loads(line))
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    found["summary.json"] = _without_clocks(summary, "command", "environment")
    for path in sorted(folder.glob("alignments/*/*")) + sorted(folder.glob("checkpoints/*/*")):
        found[str(path.relative_to(folder))] = path.read_bytes()
    for path in folder.rglob("*.partial"):
        found[str(path.relative_to(folder))] = "left over"
    return found | _curves(folder)


def _without_clocks(values: dict[str, Any], *others: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in CLOCKS | {*others}}


def _curves(folder: Path) -> dict[str, Any]:
    """Return what TensorBoard reads from a run: the steps and values of every tag."""
    unlimited = {"scalars": 0, "images": 0, "text": 0}
    events = EventAccumulator(str(folder / "tensorboard"), tensor_size_guidance=unlimited)
    return {
        f"TensorBoard {tag}": [
            (event.step, event.tensor_proto.SerializeToString()) for event in events.Tensors(tag)
        ]
        for tag in events.Reload().Tags()["tensors"]  # holds numbers and pictures too
        if tag.split("/")[-1] not in CLOCKS
    }


def compare(reference: dict[str, Any], other: dict[str, Any]) -> tuple[list[str], int]:
    """Return the names of entries that differ, and the number of differing bits in tensors."""
    names = [name for name in reference | other if reference.get(name, ...) != other.get(name, ...)]
    bits = 0
    for name in names:
        one, two = reference.get(name), other.get(name)
        if isinstance(one, bytes) and isinstance(two, bytes) and len(one) == len(two):
            different = np.frombuffer(one, np.uint8) ^ np.frombuffer(two, np.uint8)
            bits += int(np.unpackbits(different).sum())
    return names, bits


# --- kills --------------------------------------------------------------------------------------


class Moment(NamedTuple):
    """When and how to kill a process."""

    phase: str | None  # None: ``delay`` seconds after the start, in any phase
    entry: int  # number of times the phase must have been entered
    delay: float  # further seconds to wait
    kind: str
    space: int  # bytes left on a full disk

    def is_near(self, process: Process, started: float) -> bool:
        if self.phase is None:
            return time.monotonic() - started >= self.delay
        return process.board.entries[PHASES.index(self.phase)] >= self.entry


class Soak:
    """The reference run, the runs that are killed, and their counts.

    Args:
        options: the parsed command line.
        work: folder of all runs.
    """

    def __init__(self, options: argparse.Namespace, work: Path):
        self.options, self.work = options, work
        self.random = random.Random(options.seed)
        self.kills: Counter[tuple[str, str]] = Counter()
        self.runs = self.restarts = self.half_written = self.bits = 0
        self.errors: list[str] = []
        self.lost: set[int] = set()
        self.slowest, self.pace = 0.0, 1.0
        self.script = None if options.processes else _import_script()
        for split, count in LINES.items():
            for kind in ("de", "en", "align"):
                text = (ROOT / "data" / "sample" / f"{split}.{kind}").read_text(encoding="utf-8")
                lines = "".join(line + "\n" for line in text.split("\n")[:count])
                (work / f"{split}.{kind}").write_text(lines, encoding="utf-8")

    def start(self, folder: Path, resume: bool, *more: str) -> Process:
        # TensorBoard sorts the files of a run by the second of their creation, then by process
        # number, which is reused: no two starts within one second.
        time.sleep(1.001 - time.time() % 1)
        fresh = [
            *data_arguments(self.work, self.work / "prepared"),
            *SETTINGS,
            *(TOY if self.options.toy else ()),
            f"precision={self.options.precision}",
            f"hydra.run.dir={folder}",
        ]
        arguments = (
            [f"resume={folder}", *(TOY[:1] if self.options.toy else ())] if resume else fresh
        )
        return Process(self.script, [*arguments, *more], self.work)

    def refer(self) -> dict[str, Any]:
        """Run the reference, and measure how long each phase takes."""
        folder = self.work / "reference"
        self.start(self.work / "first", False, "trainer.max_steps=1").wait()  # prepares the corpus
        started = time.monotonic()
        process = self.start(folder, False)
        spent: Counter[str] = Counter()
        before = started
        while not process.ended():
            time.sleep(0.001)
            now = time.monotonic()
            spent[process.board.phase] += now - before
            before = now
        if process.wait() != 0:
            raise SystemExit(f"the reference failed:\n{process.output.decode()}")
        self.entries = [max(1, int(count)) for count in process.board.entries]
        self.mean = {
            phase: spent[phase] / entries
            for phase, entries in zip(PHASES, self.entries, strict=True)
        }
        self.seconds = before - started
        self.size = RunFolder(folder).checkpoint("last").stat().st_size
        return record(folder)

    def draw(self) -> Moment:
        """Draw a moment: early in one of the phases, with equal probability, or at any time."""
        (kind,) = self.random.choices(KINDS, ODDS)
        space = self.random.choice([0, self.random.randrange(self.size)])
        if self.script is None or self.random.random() < 0.2:
            return Moment(None, 0, self.random.uniform(0, self.seconds * self.pace), kind, space)
        number = self.random.randrange(len(PHASES))
        entry = self.random.randint(1, max(1, self.entries[number] // 3)) if number else 0
        delay = self.random.uniform(0, self.mean[PHASES[number]] * self.pace)
        return Moment(PHASES[number], entry, delay, kind, space)

    def run(self, reference: dict[str, Any]) -> None:
        """Start a run, kill it several times, let it end, and compare it."""
        self.runs += 1
        folder = self.work / f"run_{self.runs}"
        left = self.random.randint(3, 10)
        resume, done = False, False
        while not done:
            moment = self.draw() if left > 0 and self.total() < self.options.kills else None
            left -= 1
            done = self.live(folder, resume, moment)
            if self.runs in self.lost:
                return
            resume = True
            if not done and not any((folder / "checkpoints").glob("*.safetensors")):
                self.start_again(folder)
                resume = False
        names, bits = compare(reference, record(folder))
        self.bits += bits
        if names:
            self.report(f"differs in {len(names)}, {bits} bits: {', '.join(names[:8])}")
        else:
            shutil.rmtree(folder)

    def live(self, folder: Path, resume: bool, moment: Moment | None) -> bool:
        """Run one process until it ends or is killed; return whether the run is complete."""
        process, started = self.start(folder, resume), time.monotonic()
        struck = None  # the phase in which it was killed
        if moment is not None:
            while not process.ended() and not moment.is_near(process, started):
                time.sleep(0.001)
            if moment.phase is not None:
                time.sleep(moment.delay)
            if not process.ended():
                struck = process.board.phase if self.script else "not known"
                asked = time.monotonic()
                process.strike(moment.kind, moment.space)
        status = process.wait()
        if struck is None:
            if moment is not None:
                self.pace *= 0.7  # the machine is less busy than during the reference run
            if status != 0:
                self.lost.add(self.runs)
                self.report("unexpected exit", process)
            return status == 0
        assert moment is not None
        if moment.kind == "SIGKILL" and self.script:
            struck = process.board.phase
        if status == 0:  # it had just ended, or the remaining space sufficed
            return True
        self.kills[struck, moment.kind] += 1
        self.half_written += bool(list((folder / "checkpoints").glob("*.partial")))
        self.check_death(process, moment, folder, struck)
        if moment.kind in ("SIGTERM", "SIGINT"):
            self.slowest = max(self.slowest, time.monotonic() - asked)
            self.check(time.monotonic() - asked < self.options.exit_seconds, process, "too slow")
        return False

    def check_death(self, process: Process, moment: Moment, folder: Path, phase: str) -> None:
        """Check exit status, output and checkpoint of a killed process."""
        # Before the program installs its handlers, a signal ends it like any process.
        by_signal = {
            "SIGKILL": {-9},
            "SIGTERM": {143} | ({-15} if phase in ("start-up", "not known") else set()),
            "SIGINT": {130} | ({-2} if phase in ("start-up", "not known") else set()),
            "disk full": {2},
        }
        name = f"{moment.kind} in {phase}"
        self.check(process.status in by_signal[moment.kind], process, name)
        text = process.output.decode()
        self.check("Traceback" not in text and "Logging error" not in text, process, name)
        if process.status == 2:
            errors = [line for line in text.splitlines() if line.startswith("error: ")]
            self.check(len(errors) == 1 and text.splitlines()[-1:] == errors, process, name)
        last = RunFolder(folder).checkpoint("last")
        if last.exists():
            step = load_checkpoint(last).header["progress"]["step"]  # loads in every case
            saved = process.status not in (130, 143) or step >= process.board.step
            self.check(saved, process, f"{name}: step {process.board.step} was not saved")

    def start_again(self, folder: Path) -> None:
        """Check that resuming a run that saved nothing is refused in one line, and start over."""
        self.restarts += 1
        process = self.start(folder, True)
        process.wait()
        lines = process.output.decode().splitlines()
        refused = process.status == 2 and len(lines) == 1 and "start it again" in lines[0]
        self.check(refused, process, "resume without a checkpoint")
        shutil.rmtree(folder, ignore_errors=True)

    def check(self, good: bool, process: Process, what: str) -> None:
        if not good:
            self.report(what, process)

    def report(self, what: str, process: Process | None = None) -> None:
        output = process.output.decode()[-3000:] if process else ""
        status = f": status {process.status}\n{output}" if process else ""
        self.errors.append(f"run_{self.runs}: {what}{status}")
        print(self.errors[-1], flush=True)

    def total(self) -> int:
        return sum(self.kills.values())

    def table(self) -> str:
        phases = [*PHASES, *({phase for phase, _ in self.kills} - {*PHASES})]
        rows = [f"{'kills in':<12}" + "".join(f"{kind:>11}" for kind in (*KINDS, "sum"))]
        for phase in phases:
            counts = [self.kills[phase, kind] for kind in KINDS]
            rows.append(f"{phase:<12}" + "".join(f"{n:>11}" for n in (*counts, sum(counts))))
        sums = [sum(self.kills[phase, kind] for phase in phases) for kind in KINDS]
        rows.append(f"{'sum':<12}" + "".join(f"{n:>11}" for n in (*sums, sum(sums))))
        different = sum("differs in" in error for error in self.errors)
        return "\n".join(rows) + (
            f"\n\n{self.runs} runs, {self.restarts} started over because nothing was saved yet, "
            f"{self.half_written} kills left a half-written file\n"
            f"slowest exit after SIGTERM or SIGINT: {self.slowest:.1f} s\n"
            f"{len(self.lost)} lost runs, {different} different runs, "
            f"{self.bits} differing bits, {len(self.errors)} errors in total"
        )


def _import_script() -> Any:
    # Imported on first use, which would otherwise happen in every forked process.
    for name in ("torch._dynamo", "sacremoses", "matplotlib.backends.backend_agg"):
        importlib.import_module(name)
    spec = importlib.util.spec_from_file_location("train", ROOT / "scripts" / "train.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules["train"] = script
    spec.loader.exec_module(script)
    return script


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="number of kills over all runs")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the moments")
    parser.add_argument("--precision", default="fp32", help="fp32 or bf16")
    parser.add_argument("--toy", action="store_true", help="train the toy task of the tests")
    parser.add_argument(
        "--processes", action="store_true", help="start interpreters instead of forks"
    )
    parser.add_argument("--exit-seconds", type=float, default=10, help="allowed after SIGTERM")
    parser.add_argument("--work", type=Path, help="a new folder in which to keep all runs")
    return parser.parse_args()


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).absolute()
        work.mkdir(parents=True, exist_ok=options.work is None)
        soak = Soak(options, work)
        reference = soak.refer()
        print(f"reference: {soak.seconds:.1f} s, {len(reference)} entries to compare", flush=True)
        while soak.total() < options.kills:
            soak.run(reference)
            print(f"{soak.total()} kills, {soak.runs} runs", flush=True)
    print(soak.table())
    sys.exit(1 if soak.errors else 0)


if __name__ == "__main__":
    main()
