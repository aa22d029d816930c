"""Wrong commands, signals and full disks: one line of error, an exit status, and no traceback."""

import io
import logging
import os
import pickle
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from conftest import ROOT, TINY, call_script, data_arguments, one_run
from sacrebleu.metrics import BLEU
from safetensors.numpy import save_file
from test_config import COMMANDS

from seq2seq.cli.exit import orderly_exit, refuse
from seq2seq.cli.help import config_groups
from seq2seq.cli.registries import registries
from seq2seq.config.schema import allowed, settings
from seq2seq.config.training import METRIC_TOKENIZERS
from seq2seq.run_folder import remove_unused

LONG = "x" * 300


@pytest.fixture(scope="module")
def places(corpus, tmp_path_factory):
    """Values of the names in braces below: a run of one step, its data, and bad files."""
    start = tmp_path_factory.mktemp("commands")
    text = start / "text"
    shutil.copytree(corpus, text)
    data = (*data_arguments(text, start / "prepared"), *TINY)
    done = call_script("train", *data, "trainer.max_steps=1", cwd=start)
    assert done.returncode == 0, done.stderr.decode()
    run = one_run(start)
    best = run / "checkpoints" / "best.safetensors"
    bad = start / "bad"
    bad.mkdir()
    (bad / "empty").touch()
    (bad / "text").write_text("no checkpoint\n")
    (bad / "pickle").write_bytes(pickle.dumps({"model": 1}))
    (bad / "cut").write_bytes(best.read_bytes()[:-1000])
    save_file({}, bad / "foreign")
    (text / "latin1.de").write_bytes("viele Häuser\n".encode("latin-1") * 400)
    (text / "cut.de.gz").write_bytes(b"\x1f\x8b\x08\x00cut")
    (text / "short.de").write_text("ein Satz\n")
    (text / "table.tsv").write_text("de\ten\neins\tone\n")
    training = " ".join(map(shlex.quote, (*data, "trainer.max_steps=1")))
    preparing = " ".join(map(shlex.quote, data[: -len(TINY)]))
    parts = ("train", "valid", "test")
    sides = [f"{part}.{side}" for part in parts for side in ("source", "target")]
    table = " ".join(f"data.{side}=table.tsv" for side in sides)
    return {
        "train": training,
        "data": preparing,
        "tsv": f"{preparing} {table}",
        "run": run,
        "best": best,
        "bad": bad,
        "text": f"{text}",
        "long": LONG,
    }


@pytest.fixture
def start(places, tmp_path):
    """Run a command line in an empty folder: exit status, stdout and stderr."""

    def call(line):
        name, *arguments = shlex.split(line.format(**places))
        done = call_script(name, *arguments, cwd=tmp_path)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return call


# The command line, and what its error must name.
WRONG = [
    # no such setting
    ("train optim.learing_rate=1", "optim.learning_rate"),
    ("train learning_rate=1", "optim.learning_rate"),
    ("train +modle.hidden=4", "modle.hidden"),
    ("train ++typo=1", "typo"),
    ("train +model.typo=1", "model.typo"),
    ("train hydra.typo=1", "typo"),
    ("evaluate data=sample", "data"),
    ("prepare trainer.max_steps=3", "trainer.max_steps"),
    # wrong types
    ("train model.dropout=abc", "model.dropout"),
    ("train trainer.max_steps=1.5", "trainer.max_steps"),
    ("train trainer.sentences=[a]", "trainer.sentences"),
    ("train trainer.sentences=3", "trainer.sentences"),
    ("train seed=null", "seed"),
    ("train seed=true", "seed"),
    ("train model.attention=additive", "model.attention"),
    # impossible values
    ("train model.dropout=1.5", "model.dropout=1.5"),
    ("train model.dropout=nan", "model.dropout=nan"),
    ("train decoding.beam_size=0", "decoding.beam_size=0"),
    ("train data.max_tokens=-3", "data.max_tokens=-3"),
    ("train model.cell=rnn", "gru, lstm"),
    ("train trainer.select=accuracy", "bleu, chrf, loss"),
    ("train trainer.sentences=[0]", "trainer.sentences"),
    ("train optim.betas=[0.9]", "optim.betas"),
    ("train optim.betas=[2,0.9]", "optim.betas"),
    ("train model.tie_embeddings=all model.output.size=7", "model.tie_embeddings"),
    ("train trainer.max_epochs=null", "trainer.max_steps"),
    ("train trainer.batch_sentences=null", "trainer.batch_tokens"),
    ("train model/attention=dot model.decoder_size=8", "model.decoder_size=8"),
    ("train model/attention=multi_head model.attention.heads=3", "model.attention.heads=3"),
    ("train model/attention=local_p model.attention.heads=2", "mode=local_p"),
    ("train model/attention=location model.attention.coverage=true", "coverage"),
    ("train model/attention=hard model.attention.normalization=sparsemax", "sparsemax"),
    ("train model.attention.temperature=0", "model.attention.temperature=0"),
    ("compare_lengths edges=[5,5]", "edges=[5, 5]"),
    # the last of several jobs is impossible
    ("train --multirun model.dropout=0.1,0.2,1.5", "model.dropout=1.5"),
    ("train --multirun model=small,huge", "huge"),
    ("compare_attention model/attention=additive,dot model.decoder_size=64,128", "decoder_size=64"),
    ("evaluate split=train checkpoint=x", "split=train"),
    ("translate checkpoint=x num_best=9", "num_best=9"),
    ("train trainer.keep_last=0", "trainer.keep_last=0"),
    ("train trainer.keep_best=0", "trainer.keep_best=0"),
    ("benchmark parts=[]", "parts=[]"),
    ("benchmark parts=[memory]", "parts=['memory']"),
    ("benchmark lengths=[]", "lengths=[]"),
    ("benchmark large_pairs=5 small_pairs=5", "large_pairs=5"),
    ("average output=x", "checkpoints=[]"),
    ("average output=x run=y 'checkpoints=[a,b]'", "run=y"),
    ("average output=x run=y last=0", "last=0"),
    ("average 'checkpoints=[a,b]'", "output"),
    ("reproduce", "run is missing"),
    ("reproduce run=x threads=0", "threads=0"),
    ("reproduce run=x device=tpu", "device=tpu"),
    ("reproduce run=x trainer.max_steps=3", "trainer.max_steps"),
    # unknown choices
    ("train model=huge", "model=huge"),
    ("train experiment=mutli30k", "multi30k"),
    ("train model/attention=dto", "did you mean 'dot'"),
    ("train optim=sgd", "adadelta"),
    ("train model=null", "model=null"),
    ("train experiment=null", "experiment=null"),
    ("train data=[]", "sample"),
    # missing settings
    ("train data=files", "data.source_language"),
    ("train data=tsv data.source_language=a data.target_language=b", "data."),
    ("train resume=nowhere", "resume=nowhere"),
    ("evaluate", "checkpoint"),
    ("plot_alignment checkpoint=x", "source"),
    # malformed
    ("train model.dropout", "model.dropout"),
    ("train a,b", "a,b"),
    ("train =3", "=3"),
    ("train data.root=[", "data.root"),
    ("train 'name={{'", "name={"),
    ("train data.root=a,b", "data.root"),
    ("train model=small,bahdanau", "model=small,bahdanau"),
    ("train 'name=${{nothing}}'", "nothing"),
    ("train ~optim", "~optim"),
    ("train ~trainer.max_steps", "trainer.max_steps"),
    # flags
    ("train --typo", "--typo"),
    ("train seed=1 --multirun seed=2", "seed=2"),
    ("train --info nothing", "nothing"),
    ("train --cfg nothing", "nothing"),
    ("train --cfg job --multirun", "--multirun and --cfg"),
    ("train --resolve", "--resolve"),
    ("train --cfg all --resolve", "--cfg job"),
    ("train --cfg job --package nothing", "--package=nothing"),
    ("train --shell-completion", "--shell-completion"),
    ("train --experimental-rerun run.pickle", "run.pickle"),
    ("train --config-name nothing", "nothing"),
    ("train --config-dir nothing", "nothing"),
    # numbers
    ("train seed=-1", "seed=-1"),
    ("train seed=18446744073709551616", "seed=18446744073709551616"),
    ("train optim.learning_rate=inf", "optim.learning_rate=inf must be a finite number"),
    ("train optim.learning_rate=-inf", "optim.learning_rate=-inf"),
    ("train optim.learning_rate=nan", "optim.learning_rate=nan"),
    ("train optim.weight_decay=inf", "optim.weight_decay=inf"),
    ("train optim.betas=[0.9,nan]", "optim.betas"),
    ("train trainer.max_minutes=inf", "trainer.max_minutes=inf"),
    ("train trainer.max_minutes=nan", "trainer.max_minutes=nan"),
    ("train trainer.max_steps=99999999999999999999", "trainer.max_steps=99999999999999999999"),
    ("train trainer.sentences=[99999999999999999999]", "trainer.sentences"),
    ("train decoding.length_penalty=inf", "decoding.length_penalty=inf"),
    ("train decoding.length_penalty=1000", "decoding.length_penalty=1000"),
    ("train decoding.max_length_factor=1e308", "decoding.max_length_factor=1e+308"),
    ("train decoding.beam_size=9223372036854775807", "decoding.beam_size=9223372036854775807"),
    ("train model.dropout=0.9999999999999999", "model.dropout=0.9999999999999999"),
    ("train {train} model.decoder_size=4611686018427387904", "overflowed"),
    ("train 'data.source_language=\"a/b\"'", "data.source_language=a/b"),
    ("train model.attention=dot", "model/attention=dot"),
    ("train --max_epochs=3", "without dashes"),
    ("average 'checkpoints=[[a]]' output=x", "checkpoints=[['a']] must be a list of single"),
    ("train decoding.max_length_factor=inf", "decoding.max_length_factor=inf"),
    ("train threads=0", "threads=0"),
    ("train threads=99999999999", "threads=99999999999"),
    ("train {train} model.embedding_size=999999999999 model.tie_embeddings=none", "memory"),
    # names and empty values
    ("train name=", "name= is empty"),
    ("train name=..", "name=.."),
    ("train name=a/b", "name=a/b"),
    ("train name=/abs", "name=/abs"),
    ("train 'name=\"a b\"'", "name=a b"),
    ("train name={long}", f"name={LONG}"),
    ("train data.name=../x name=x", "data.name=../x"),
    ("train data.root=", "data.root= is empty"),
    ("train resume=", "resume= is empty"),
    ("evaluate checkpoint=", "checkpoint= is empty"),
    ("plot_alignment checkpoint={best} source=", "source= is empty"),
    ("compare_attention label=", "label= is empty"),
    # the machine
    ("train device=", "device= is empty"),
    ("train device=tpu", "device=tpu must be auto, cpu, cuda or cuda:N"),
    ("train device=cuda:x", "device=cuda:x"),
    ("train {train} device=cuda:99", "device=cuda:99"),
    ("evaluate checkpoint={best} device=cuda:99", "device=cuda:99"),
    ("translate checkpoint={best} device=cuda:99", "device=cuda:99"),
    ("train metric_tokenizer=nope", "metric_tokenizer=nope must be one of 13a"),
    ("evaluate checkpoint={best} metric_tokenizer=nope", "metric_tokenizer=nope"),
    ("train --multirun {train} device=cpu,tpu", "device=tpu"),
    ("train --multirun {train} optim.learning_rate=0.1,inf", "optim.learning_rate=inf"),
    ("train --multirun {train} device=cuda:98,cuda:99", "device=cuda:98"),
    # data
    ("train {train} data.root=nope", "nope/"),
    ("train {train} data.root={long}", LONG),
    ("train {train} data.train.source=nofile", "nofile"),
    ("train {train} data.train.source=.", "cannot be read (Is a directory)"),
    ("train {train} data.train.source=latin1.de", "latin1.de, line 1, byte column 8: 0xe4"),
    ("train {train} data.train.source=cut.de.gz", "cut.de.gz is damaged or cut short"),
    ("train {train} data.train.source=short.de", "short.de has 1 lines"),
    ("train {train} data.valid.target=train.en", "valid.de has 20 lines"),
    ("train {train} data.test.alignment=nofile", "nofile"),
    ("train {train} data.test.alignment=test.en", "test.en, line 1"),
    ("train {train} data.prepared={bad}/text", "bad/text"),
    ("prepare {data} data.max_tokens=1", "leave no training pair"),
    ("prepare {data} data.tokenizer.name=basic_english", "'de'"),
    ("prepare {data} data.tokenizer.name=sentencepiece data.tokenizer.vocabulary_size=100000",
     "vocabulary_size=100000"),
    ("prepare {tsv}", "data.source_column="),
    ("prepare {tsv} data.source_column=de data.target_column=de", "are both de"),
    ("prepare data=multi30k data.root=. data.url=nothing", "data.url=nothing"),
    ("prepare data=multi30k data.root=. data.url=ftp://host/", "data.url=ftp://host/"),
    ("prepare data=multi30k data.root=. data.url=http://127.0.0.1:9/", "cannot be reached"),
    # resuming
    ("train resume=.", "resume=."),
    ("train resume=/dev/null", "resume=/dev/null"),
    ("train resume={best}", "best.safetensors"),
    ("train resume={long}", LONG),
    ("train resume={run} model=small", "model=small"),
    ("train resume={run} model.decoder_size=8", "model.decoder_size: 64 -> 8"),
    ("train resume={run} seed=7", "seed: 1 -> 7"),
    ("train resume={run} trainer.max_steps=abc", "trainer.max_steps"),
    ("train resume={run} trainer.max_minutes=inf", "trainer.max_minutes=inf"),
    ("compare_attention {train} folder=nope", "folder=nope"),
    ("compare_attention {train} lines=[99]", "lines=[99]"),
    ("compare_attention lines=[0]", "lines=[0]"),
    ("compare_lengths {train} edges=[]", "edges=[]"),
    ("compare_lengths {train} long=0", "long=0"),
    # checkpoints
    ("evaluate checkpoint=nofile", "checkpoint=nofile"),
    ("evaluate checkpoint={run}", "is not a file"),
    ("evaluate checkpoint={long}", LONG),
    ("evaluate checkpoint={bad}/empty", "bad/empty"),
    ("evaluate checkpoint={bad}/text", "bad/text"),
    ("evaluate checkpoint={bad}/cut", "bad/cut"),
    ("translate checkpoint={bad}/pickle", "bad/pickle"),
    ("translate checkpoint={bad}/foreign", "bad/foreign"),
    ("plot_alignment checkpoint={bad}/text source=x", "bad/text"),
    ("average checkpoints=[nofile] output=x", "nofile"),
    ("reproduce run=nowhere", "nowhere"),
    ("reproduce run={bad} device=cpu", "manifest.json"),
    ("benchmark parts=[trainig]", "trainig"),
    ("benchmark repeats=0", "repeats=0"),
    ("benchmark parts=peak", "parts must be a list"),
    ("average run=nope output=x", "nope"),
    ("average checkpoints=[{bad}/foreign] output=x", "bad/foreign"),
    # files that are read and written
    ("evaluate checkpoint={best} source=a", "source=a and target=None"),
    ("evaluate checkpoint={best} alignment=a", "alignment=a"),
    ("evaluate checkpoint={best} source=nofile target=nofile", "nofile"),
    ("evaluate checkpoint={best} source=/ target=/", "cannot be read"),
    ("evaluate checkpoint={best} 'source=\"{text}/test.de\"' 'target=\"{text}/train.en\"'",
     "25 lines"),
    ("evaluate checkpoint={best} output={bad}/text", "bad/text"),
    ("evaluate checkpoint={best} output={bad}/text/below", "bad/text"),
    ("evaluate checkpoint={best} output=/proc/self",
     "output=/proc/self cannot be written"),
    ("plot_alignment checkpoint={best} source=x output=.", "output=."),
    ("plot_alignment checkpoint={best} source=x output=a.pdf", "output=a.pdf must be"),
    ("plot_alignment checkpoint={best} source=x output={bad}/text/a.png", "bad/text"),
    ("plot_alignment checkpoint={best} source=x output={long}.png", LONG),
]  # fmt: skip


@pytest.mark.guarantee(
    "A wrong command is refused in one line that names the mistake, before anything is written."
)
@pytest.mark.parametrize(("line", "named"), WRONG, ids=[line[:70] for line, _ in WRONG])
def test_a_wrong_command_is_refused_in_one_line(start, tmp_path, line, named):
    status, printed, errors = start(line)
    assert status == 2
    assert printed == ""
    assert "Traceback" not in errors
    *logged, last, nothing = errors.split("\n")
    assert nothing == ""
    assert last.startswith("error: ")
    assert not any(line.startswith("error") for line in logged)
    assert named in last
    assert list(tmp_path.iterdir()) == []  # not even an empty run folder


def test_metric_tokenizers_are_those_of_sacrebleu():
    assert set(METRIC_TOKENIZERS) == set(BLEU.TOKENIZERS)


def test_an_argument_that_is_not_utf8_is_refused(start, monkeypatch):
    status, _, errors = start("train name=x\udcff")
    assert status == 2
    assert errors == "error: 'name=x\\udcff' is not UTF-8 text (byte 7).\n"


@pytest.mark.parametrize("line", ["train", "train --multirun seed=1,2", "compare_lengths"])
def test_a_run_folder_that_cannot_be_created_is_named(start, tmp_path, line):
    (tmp_path / "runs").touch()
    status, _, errors = start(line)
    assert status == 2
    assert errors.startswith("error: ")
    assert "Not a directory: 'runs/" in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("stdin", "named"),
    [
        (io.TextIOWrapper(io.BytesIO(b"Hund\nviele H\xe4user\n")), "stdin, line 2"),
        (None, "stdin or stdout is closed"),
    ],
)
def test_input_that_is_not_utf8_is_refused(start, monkeypatch, stdin, named):
    monkeypatch.setattr(sys, "stdin", stdin)
    status, printed, errors = start("translate checkpoint={best}")
    assert (status, printed) == (2, "")
    assert errors.startswith("error: ")
    assert named in errors
    assert errors.count("\n") == 1


@pytest.mark.guarantee("A folder with results is never removed.")
def test_a_folder_with_results_is_never_removed(tmp_path, monkeypatch):
    """Only a folder with just settings and an empty log is removed, and parents left empty."""
    monkeypatch.chdir(tmp_path)
    for folder, extra in (("runs/a/1", None), ("runs/a/2", "checkpoints"), ("runs/b/1/0", None)):
        (tmp_path / folder / ".hydra").mkdir(parents=True)
        (tmp_path / folder / "train.log").touch()
        if extra:
            (tmp_path / folder / extra).mkdir()
        if folder == "runs/b/1/0":
            (tmp_path / "runs/b/1/multirun.yaml").touch()
        remove_unused(Path(folder))
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a"]
    assert [path.name for path in (tmp_path / "runs/a").iterdir()] == ["2"]


@pytest.mark.guarantee(
    "A misspelled setting is refused with the most similar name; --help explains every setting."
)
@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_every_setting_and_every_choice(start, name):
    status, printed, errors = start(f"{name} --help")
    assert (status, errors) == (0, "")
    for key, item in settings(COMMANDS[name]):
        assert re.search(rf"^  {re.escape(key)}=", printed, re.MULTILINE), key
        assert item.metadata["meaning"] in printed
        assert (", ".join(registries()[key]) if key in registries() else allowed(item)) in printed
    if name == "train":
        for group, options in config_groups().items():
            assert f"{group}={'|'.join(options)}" in printed


# --- whole processes ---------------------------------------------------------------------------


def process(name, *arguments, cwd, **settings):
    """Start a script as a user does; Ctrl-C works even if the tests run in the background."""
    return subprocess.Popen(
        [sys.executable, ROOT / f"scripts/{name}.py", *arguments],
        cwd=cwd,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | settings.pop("env", {}),
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        **{"stdout": subprocess.PIPE} | settings,
    )


C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.guarantee("The locale changes neither translations nor arguments.")
def test_the_locale_changes_no_translation(places, tmp_path):
    found = []
    for env in ({}, C_LOCALE):
        running = process("translate", f"checkpoint={places['best']}", cwd=tmp_path, env=env)
        found.append((*running.communicate("Größe\u2028x\n\nä\n".encode()), running.returncode))
    (output, errors, status), (output_in_c, errors_in_c, status_in_c) = found
    assert output == output_in_c
    assert errors_in_c == errors.decode().encode("ascii", "backslashreplace")
    assert status == status_in_c == 0
    assert output.count(b"\n") == 3


@pytest.mark.guarantee("The locale changes neither translations nor arguments.")
def test_an_argument_is_utf8_in_any_locale(places, tmp_path):
    arguments = (f"checkpoint={places['best']}", "source='Schläft er?'", "output=a.png")
    running = process("plot_alignment", *arguments, cwd=tmp_path, env=C_LOCALE)
    errors = running.communicate()[1].decode()
    assert running.returncode == 0, errors
    assert "Schläft" in (tmp_path / "a.json").read_text(encoding="utf-8")
    # File names are different: the locale decides how they are encoded.
    running = process("prepare", "data.root='Größe'", cwd=tmp_path, env=C_LOCALE)
    assert "set LC_ALL=C.UTF-8" in running.communicate()[1].decode()
    assert running.returncode == 2


def test_bytes_that_are_not_utf8_are_refused_as_an_argument(tmp_path):
    running = process("prepare", b"data.root=\xff", cwd=tmp_path)
    _, errors = running.communicate()
    assert (running.returncode, errors.count(b"\n")) == (2, 1)
    assert errors.startswith(b"error: 'data.root=")
    assert b"is not UTF-8" in errors


@pytest.mark.guarantee("A closed output pipe ends a script quietly; a full disk is reported.")
def test_a_closed_output_pipe_ends_quietly(places, tmp_path):
    """As in ``translate.py | head``: the reader exits, and the next write fails."""
    reader, writer = os.pipe()
    os.close(reader)
    running = process("translate", f"checkpoint={places['best']}", cwd=tmp_path, stdout=writer)
    os.close(writer)
    _, errors = running.communicate(b"Der Hund.\n" * 3)
    assert errors == b""
    assert running.returncode == 141


@pytest.mark.guarantee("A closed output pipe ends a script quietly; a full disk is reported.")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full of Linux")
def test_a_full_disk_is_reported(places, tmp_path):
    with open("/dev/full", "w") as full:
        data = shlex.split(places["data"])
        running = process("prepare", *data, cwd=tmp_path, stdout=full)
        _, errors = running.communicate()
    assert errors == (
        b"error: standard output cannot be written (No space left on device); free some space.\n"
    )
    assert running.returncode == 2


@pytest.mark.guarantee("Ctrl-C and SIGTERM stop every script cleanly, with status 130 and 143.")
@pytest.mark.parametrize("library", ["hydra", "numpy"])
def test_ctrl_c_during_imports_exits_quietly(tmp_path, library):
    """Send the signal during the imports, which take seconds."""
    (tmp_path / library).mkdir()
    (tmp_path / library / "__init__.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)\n"
    )
    running = process("train", cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert running.communicate() == (b"", b"")
    assert running.returncode == -signal.SIGINT  # which a shell turns into 130


@pytest.mark.guarantee("Ctrl-C and SIGTERM stop every script cleanly, with status 130 and 143.")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_work_exits_cleanly(places, tmp_path, number, status):
    """The corpus is an empty pipe, so the script waits in the middle of its work."""
    os.mkfifo(tmp_path / "pipe")
    data = shlex.split(places["data"])
    running = process(
        "prepare",
        *data,
        f"data.train.source={tmp_path}/pipe",
        f"data.prepared={tmp_path}/prepared",
        cwd=tmp_path,
    )
    with open(tmp_path / "pipe", "wb"):  # waits until the script reads
        assert signalled(running, number) == (b"", b"")
    assert running.returncode == status


def signalled(running, number):
    """Return the output of a process after a signal. The signal is repeated because Python may just
    have begun to wait for input, which an earlier signal does not interrupt."""
    while True:
        running.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            return running.communicate(timeout=15)


@pytest.mark.guarantee("Ctrl-C and SIGTERM stop every script cleanly, with status 130 and 143.")
def test_a_signal_exits_cleanly_although_cleanup_fails(monkeypatch, capsys):
    monkeypatch.setattr(logging, "raiseExceptions", True)
    # Tests that are started in the background inherit that it is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    @orderly_exit()
    def stopped():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            raise AttributeError("half made")

    @orderly_exit()
    def stopped_in_a_library():
        try:
            signal.raise_signal(signal.SIGINT)
        except SystemExit:  # safetensors raises its own error from a callback
            refuse(ValueError(), "the shape could not be determined")

    try:
        for script, status in ((stopped, 143), (stopped_in_a_library, 130)):
            with pytest.raises(SystemExit) as left:
                script()
            assert left.value.code == status
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == ""
