"""Resident memory does not grow with the length of a run, and no single line is too long."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT, TINY, data_arguments, run_script

# Prints "<what> <resident bytes>" where the tests below want to know it.
RESIDENT = """
import gc, os, sys
def tell(what):
    gc.collect()
    pages = int(open("/proc/self/statm").read().split()[1])
    print(what, pages * os.sysconf("SC_PAGE_SIZE"), flush=True)
"""
TRAINING = """
import runpy
from seq2seq.training.journal import Journal
def recorded(journal, kind, step, values, record=Journal.record):
    record(journal, kind, step, values)
    if kind == "train":
        tell(step)
Journal.record = recorded
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
HEATMAPS = """
from pathlib import Path
from matplotlib import _pylab_helpers  # the registry, which pyplot would fill
from seq2seq.figures.heatmap import alignment_figure, figure_image, save_figure
for count in range(1, int(sys.argv[2]) + 1):
    figure = alignment_figure([[count % 2, 0.5]] * 2, ["a", "b"], ["c", "d"], f"step {count}")
    save_figure(figure, Path(sys.argv[1]) / "a.png")
    figure_image(figure)
    if count % int(sys.argv[3]) == 0:
        tell(count)
assert not _pylab_helpers.Gcf.figs
"""
MEGABYTE = 1 << 20

linux_only = pytest.mark.skipif(
    not os.path.exists("/proc/self/statm"), reason="resident memory is read from /proc"
)


def resident(program, *arguments, cwd):
    """What a process of its own prints: {what: resident bytes}."""
    done = subprocess.run(
        [sys.executable, "-c", RESIDENT + program, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    return {int(what): int(size) for what, size in rows}


def training(corpus, folder, steps, every):
    """Resident bytes of a run at every so many updates; it validates, draws and saves as often."""
    return resident(
        TRAINING,
        ROOT / "scripts" / "train.py",
        *data_arguments(corpus, folder / "prepared"),
        *TINY,
        "trainer.max_epochs=null",
        f"trainer.max_steps={steps}",
        f"trainer.log_every_steps={every}",
        f"trainer.validate_every_steps={every}",
        "data.max_tokens=10",
        "trainer.batch_sentences=4",
        "trainer.sentences=[1]",
        "decoding=greedy",
        "decoding.max_length_factor=0.1",
        cwd=folder,
    )


@linux_only
def test_training_takes_no_more_memory_after_many_updates(corpus, tmp_path):
    sizes = training(corpus, tmp_path, steps=300, every=60)
    assert sorted(sizes) == [60, 120, 180, 240, 300]
    # At 60 it has not yet validated, which loads what draws pictures. The allocator takes and gives
    # back some 10 MB; the gradients of these updates, were they kept, would take 80 MB.
    assert sizes[300] - sizes[120] < 24 * MEGABYTE


@linux_only
def test_pictures_take_no_more_memory_after_many_of_them(tmp_path):
    sizes = resident(HEATMAPS, tmp_path, 100, 20, cwd=tmp_path)
    # The pixels of the eighty alone, were they kept, would take twice as much.
    assert sizes[100] - sizes[20] < 17 * MEGABYTE


def test_a_line_of_5000_tokens_is_left_out_of_training_and_reported(corpus, tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    for path in corpus.iterdir():
        lines = path.read_text(encoding="utf-8").split("\n")[:201]
        if path.name.startswith("train") and path.suffix != ".align":
            lines[100] = "wort " * 5000
        (folder / path.name).write_text("\n".join(lines).strip("\n") + "\n", encoding="utf-8")
    done = run_script(
        "train",
        *data_arguments(folder, tmp_path / "prepared"),
        *TINY,
        "trainer.max_steps=1",
        "decoding=greedy",
        "decoding.max_length_factor=0.1",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"dropped 1: source too long (line 101)" in done.stderr


def test_a_line_of_5000_tokens_is_translated_as_any_other(trained, tmp_path):
    done = run_script(
        "translate",
        f"checkpoint={trained[0]}/checkpoints/best.safetensors",
        "decoding=greedy",
        "decoding.max_length_factor=0.05",
        cwd=tmp_path,
        stdin=b"Der Hund.\n" + b"wort " * 5000 + b"\nDer Hund.\n",
    )
    assert done.returncode == 0, done.stderr.decode()
    first, long, last = done.stdout.decode().removesuffix("\n").split("\n")
    assert first == last != ""
    assert long != ""
