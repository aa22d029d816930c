"""Memory does not grow with the length of a run, and lines of any length are accepted."""

import os
import subprocess
import sys

import pytest
import torch
from conftest import ROOT, TINY, data_arguments

from seq2seq.config.training import DecodingConfig
from seq2seq.search.loading import load_translator

# Trains like scripts/train.py, and prints step and resident bytes whenever the journal is written.
TRAINING = """
import gc, os, runpy, sys
from seq2seq.training.journal import Journal
def recorded(journal, kind, step, values, record=Journal.record):
    record(journal, kind, step, values)
    if kind == "train":
        gc.collect()
        pages = int(open("/proc/self/statm").read().split()[1])
        print(step, pages * os.sysconf("SC_PAGE_SIZE"), flush=True)
Journal.record = recorded
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
MEGABYTE = 1 << 20
LONG_LINE = pytest.mark.guarantee("A line of 5,000 tokens does not stop a run.")


@pytest.mark.skipif(
    not os.path.exists("/proc/self/statm"), reason="resident memory is read from /proc"
)
@pytest.mark.guarantee("A long run does not take more memory than a short one.")
@LONG_LINE
def test_memory_does_not_grow_during_training_and_long_line_is_dropped(corpus, tmp_path):
    folder, every = tmp_path / "text", 40
    folder.mkdir()
    for path in corpus.iterdir():
        lines = path.read_text(encoding="utf-8").split("\n")[:201]
        if path.name.startswith("train") and path.suffix != ".align":
            lines[100] = "wort " * 5000
        (folder / path.name).write_text("\n".join(lines).strip("\n") + "\n", encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-c", TRAINING, ROOT / "scripts" / "train.py"),
            *data_arguments(folder, tmp_path / "prepared"),
            *TINY,
            "trainer.max_epochs=null",
            f"trainer.max_steps={5 * every}",
            f"trainer.log_every_steps={every}",
            f"trainer.validate_every_steps={every}",  # it also draws and saves as often
            "data.max_tokens=10",
            "trainer.batch_sentences=4",
            "trainer.sentences=[1]",
            "decoding=greedy",
            "decoding.max_length_factor=0.1",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "source too long" in done.stderr
    sizes = dict(map(int, line.split()) for line in done.stdout.splitlines())
    assert sorted(sizes) == [every * number for number in range(1, 6)]
    # The first validation, after step 40, imports what draws pictures. The allocator's usage varies
    # by some 10 MB; if the gradients of these updates were kept, they would take 50 MB.
    assert sizes[5 * every] - sizes[2 * every] < 24 * MEGABYTE


@LONG_LINE
def test_line_of_5000_tokens_is_translated(trained):
    decoding = DecodingConfig(beam_size=1, max_length_factor=0.05)
    best = trained[0] / "checkpoints" / "best.safetensors"
    translator = load_translator(best, decoding, torch.device("cpu"))[0]
    lines = ["Der Hund.", "wort " * 5000, "Der Hund."]
    first, long, last = (found.text for found in translator.translate(lines))
    assert first == last != ""
    assert long != ""
