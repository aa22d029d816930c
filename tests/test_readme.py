"""The commands of the README work, word for word, with models and outputs that take seconds."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, TINY
from forking import forking_python

README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)

# Appended to the arguments of each command.
SHORT = ("decoding.max_length_factor=0.1", "decoding.max_length_extra=2")
SHORT_TRAINING = (*TINY, *SHORT, "seed=1", "trainer.max_steps=1", "trainer.sentences=[1]")
TWO_CHECKPOINTS = ("trainer.max_steps=2", "trainer.validate_every_steps=1")  # to be averaged
# Two small models instead of all; these settings override those of the snippet.
SHORT_COMPARISON = (
    *SHORT_TRAINING,
    "trainer.max_epochs=null",
    "model/attention=additive,none",
    "data.max_tokens=100",
    "decoding.beam_size=1",
)
SHORT_BENCHMARK = (
    *(setting for setting in TINY if setting.startswith("model.")),
    "repeats=1",
    "updates=1",
    "sentences=2",
    "'parts=[training,decoding]'",
)

# The corpus is the beginning of the sample corpus.
PYTHON = """#!/bin/sh
small="data.root=$(dirname "$0")/../data/sample"
case "$*" in
  *--help*|*--cfg*) exec {python} "$@" ;;
  scripts/compare_*) exec {python} "$@" "$small" {comparison} ;;
  scripts/train.py) exec {python} "$@" "$small" {training} {two_checkpoints} ;;
  scripts/train.py*) exec {python} "$@" "$small" {training} ;;
  scripts/benchmark.py*) exec {python} "$@" {benchmark} ;;
  scripts/prepare.py*|scripts/average.py*|scripts/reproduce.py*) exec {python} "$@" ;;
  scripts/*) exec {python} "$@" {short} ;;
esac
exec {python} "$@"
"""

# Checks that the real Makefile has the target; installation is tested by CI.
MAKE = """#!/bin/sh
set -e
%s -n -C "%s" "$@" > /dev/null
[ "$1" != train ] || exec python scripts/train.py
"""


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.timeout(600)
@pytest.mark.guarantee("The commands in the documentation work.")
def test_shell_snippets_run(tmp_path):
    for name in ("scripts", "conf"):
        (tmp_path / name).symlink_to(ROOT / name)
    sample = tmp_path / "data" / "sample"
    sample.mkdir(parents=True)
    for path in (ROOT / "data" / "sample").glob("*.[ade]*"):
        lines = path.read_text(encoding="utf-8").split("\n")[:100]
        (sample / path.name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(tmp_path / "bin")
    executable(tmp_path / "bin" / "make", MAKE % ("/usr/bin/make", ROOT))
    path = os.pathsep.join([str(tmp_path / "bin"), str(Path(sys.executable).parent)])
    with forking_python() as python:
        text = PYTHON.format(
            python=python,
            training=" ".join(SHORT_TRAINING),
            two_checkpoints=" ".join(TWO_CHECKPOINTS),
            comparison=" ".join(SHORT_COMPARISON),
            benchmark=" ".join(SHORT_BENCHMARK),
            short=" ".join(SHORT),
        )
        executable(tmp_path / "bin" / "python", text)
        done = subprocess.run(
            ["bash", "-e", "-u", "-o", "pipefail"],
            input="\n".join(SNIPPETS).encode(),
            cwd=tmp_path,
            env=os.environ
            | {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            timeout=550,
        )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert (tmp_path / "alignment.png").exists()
    (figures,) = tmp_path.glob("runs/benchmark/*/benchmark.json")
    assert {"training", "decoding"} < set(json.loads(figures.read_text(encoding="utf-8")))


def test_snippets_cover_every_script_and_target():
    shown = "\n".join(SNIPPETS)
    for script in (ROOT / "scripts").glob("*.py"):
        assert f"scripts/{script.name}" in shown, script.name
    for target in ("train", "test", "tensorboard"):
        assert f"make {target}" in README
