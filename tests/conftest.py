"""Shared fixtures: one small trained run, and its corpus."""

import importlib.util
import io
import logging
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

from seq2seq.config.model import AttentionConfig, ModelConfig, OutputConfig
from seq2seq.config.training import TrainConfig
from seq2seq.data.codec import Codec
from seq2seq.data.preparation import PreparedCorpus
from seq2seq.data.tokenizer import build_tokenizer
from seq2seq.data.vocabulary import SPECIALS, Vocabulary
from seq2seq.model.build import build_model
from seq2seq.randomness import seed_everything
from seq2seq.tasks.translation import TranslationTask
from seq2seq.training.progress import Progress
from seq2seq.training.state import save_run

ROOT = Path(__file__).resolve().parent.parent

# The first example pays for imports and would exceed any deadline.
settings.register_profile("project", deadline=None, max_examples=50)
settings.load_profile("project")
torch.set_num_threads(1)  # with small tensors, more threads only wait for each other
# Where tests are started in the background, Ctrl-C is ignored, which the programs would respect.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """The longest test first, so that no process waits for it alone at the end."""
    items.sort(key=lambda item: item.path.name != "test_readme.py")


@contextmanager
def torch_threads(count):
    """As many threads for torch, until it ends."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_script(name, *arguments, cwd, stdin=None):
    """A script as a user starts it; output and errors as bytes."""
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / f"{name}.py"), *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def call_script(name, *arguments, cwd, stdin=None):
    """Like ``run_script``, but in this process, which has already imported the libraries."""
    module = sys.modules.get(f"script_{name}")
    if module is None:
        spec = importlib.util.spec_from_file_location(
            f"script_{name}", ROOT / "scripts" / f"{name}.py"
        )
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    output, errors = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=handler, write_through=True)
        for handler in ("strict", "backslashreplace")
    )
    root, status = logging.getLogger(), 0
    handlers, level = list(root.handlers), root.level
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(output),
        redirect_stderr(errors),
        torch_threads(1),
    ):
        patch.chdir(cwd)
        patch.setenv("HYDRA_FULL_ERROR", "0")  # restored afterward
        patch.setattr(sys, "argv", [f"{name}.py", *arguments])
        if stdin is not None:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            module.main()
        except SystemExit as stop:
            status = stop.code
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
    printed = (stream.buffer.getvalue() for stream in (output, errors))
    return subprocess.CompletedProcess([name, *arguments], status, *printed)


def one_run(folder):
    """The only run below ``folder``/runs."""
    (found,) = (path.parent for path in Path(folder).glob("runs/*/*/summary.json"))
    return found


TINY = (
    "model.embedding_size=32",
    "model.encoder_size=32",
    "model.decoder_size=64",
    "model.attention.size=32",
    "model.output.size=32",
    "trainer.log_every_steps=10",
)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """The first lines of the sample corpus as a user's own files, in a folder with a blank and
    a comma in its name."""
    folder = tmp_path_factory.mktemp("corpus") / "my data, new"
    folder.mkdir()
    for part, count in (("train", 400), ("valid", 20), ("test", 25)):
        for kind in ("de", "en", "align"):
            text = (ROOT / "data" / "sample" / f"{part}.{kind}").read_text(encoding="utf-8")
            lines = text.split("\n")[:count]
            (folder / f"{part}.{kind}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def data_arguments(folder, prepared):
    """The overrides that name ``corpus``, quoted as the README says."""
    return (
        "data=files",
        f'data.root="{folder}"',
        f"data.prepared={prepared}",
        "data.source_language=de",
        "data.target_language=en",
        *(
            f"data.{part}.{side}={part}.{language}"
            for part in ("train", "valid", "test")
            for side, language in (("source", "de"), ("target", "en"))
        ),
        *(f"data.{part}.alignment={part}.align" for part in ("valid", "test")),
    )


@pytest.fixture(scope="session")
def trained(corpus, tmp_path_factory):
    """A short run: (run folder, folder it was started in, what it printed)."""
    start = tmp_path_factory.mktemp("start")
    done = call_script(
        "train",
        *data_arguments(corpus, start / "prepared"),
        *TINY,
        "trainer.max_steps=60",
        "trainer.validate_every_steps=20",
        # So that sixty updates are enough to produce sentences, if not good ones.
        "optim.learning_rate=0.01",
        "optim.schedule.name=constant",
        "model.dropout=0",
        "trainer.batch_sentences=16",
        "trainer.label_smoothing=0",
        "trainer.select=loss",
        "trainer.sentences=[1,5]",
        cwd=start,
    )
    assert done.returncode == 0, done.stderr.decode()
    return one_run(start), start, done


def small_run(path, step=1, seed=1, **model_settings):
    """Save a tiny translation model after one update; returns its task and progress."""
    seed_everything(seed)
    tokenizer = build_tokenizer("whitespace", "en")
    source, target = (
        Codec(tokenizer, Vocabulary([*SPECIALS, *tokens])) for tokens in ("abc", "xy")
    )
    sizes = {"embedding_size": 3, "encoder_size": 3, "decoder_size": 4} | model_settings
    config = TrainConfig(
        name="small",
        model=ModelConfig(attention=AttentionConfig(size=3), output=OutputConfig(size=3), **sizes),
    )
    model = build_model(config.model, len(source.vocabulary), len(target.vocabulary))
    no_ids = np.empty(0, np.int64)
    corpus = PreparedCorpus(source, target, [], [], no_ids, {}, Path("prepared"))
    task = TranslationTask(model, corpus, None, config)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    task.objectives[0].optimizer.step()
    progress = Progress(step=step, best_score=1.5, best_step=step, ranking=[(1.5, step)])
    save_run(path, task, progress, {"config": asdict(config)})
    return task, progress
