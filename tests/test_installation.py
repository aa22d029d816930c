"""Starting needs a supported Python, and no network."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT, TINY

TOO_NEW = "Python 3.11 to 3.13 is needed, this is 3.14"
# Makes the running Python claim to be 3.14.
PRETEND = "import sys; sys.version_info = (3, 14, 0, 'final', 0); "
OFFLINE = """
import runpy, socket, sys
def refuse(*arguments, **settings):
    raise OSError("no network")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


PYTHONS = pytest.mark.guarantee("Unsupported Python versions fail with a one-line error.")


@PYTHONS
@pytest.mark.parametrize("name", sorted(path.stem for path in ROOT.glob("scripts/*.py")))
def test_script_refuses_unsupported_python_in_one_line(name):
    path = ROOT / "scripts" / f"{name}.py"
    start = f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", PRETEND + start],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {TOO_NEW}: ")


@PYTHONS
def test_make_refuses_unsupported_python(tmp_path):
    python = tmp_path / "python3.14"
    python.write_text(f'''#!/bin/sh
exec {sys.executable} -c "{PRETEND} exec(sys.argv[1])" "$2"
''')
    python.chmod(0o755)
    done = subprocess.run(
        ["make", "-C", ROOT, f"PYTHON={python}", f"VENV={tmp_path}/venv", "train"],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert TOO_NEW in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.guarantee("A first run needs no network.")
def test_first_run_needs_no_network(tmp_path):
    for path in (ROOT / "data" / "sample").glob("*.[ade]*"):
        lines = path.read_text(encoding="utf-8").split("\n")[:8]
        (tmp_path / path.name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = (f"data.root={tmp_path}", f"data.prepared={tmp_path}/prepared", *TINY)
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, ROOT / "scripts" / "train.py", *settings,
         "trainer.max_steps=1", "decoding=greedy", "decoding.max_length_factor=0.1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
