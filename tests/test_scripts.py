"""The scripts as a user starts them: from a folder of their own, on text of their own."""

import gzip
import json
import math
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import yaml
from conftest import TINY, call_script, data_arguments, one_run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def lines_of(path):
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def scores_by_sacrebleu(folder, metric):
    """The same two files scored by sacreBLEU's own command."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sacrebleu",
            "references.txt",
            "-i",
            "hypotheses.txt",
            "-m",
            metric,
            "-w",
            "10",
        ],
        cwd=folder,
        capture_output=True,
        check=True,
        text=True,
    )
    return json.loads(done.stdout)


@pytest.mark.guarantee(
    "Everything a run writes is in its folder, wherever a script is started from."
)
def test_a_run_folder_holds_every_promised_file_and_nothing_is_elsewhere(trained):
    run, start, done = trained
    assert done.stdout == b""  # the log is not part of the result
    for name in (
        ".hydra/config.yaml",
        "train.log",
        "journal.jsonl",
        "summary.json",
        "manifest.json",
        "checkpoints/best.safetensors",
        "checkpoints/last.safetensors",
    ):
        assert (run / name).is_file(), name
    # Only the prepared data is written elsewhere.
    assert sorted(path.name for path in start.iterdir()) == ["prepared", "runs"]
    assert not list(run.rglob("*.partial"))


@pytest.mark.guarantee("Every score has its signature, and equals that of the sacrebleu command.")
def test_summary_holds_scores_with_signatures(trained):
    summary = json.loads((trained[0] / "summary.json").read_text())
    for part, count in (("test", 25), ("valid", 20)):
        scores = summary[part]
        assert scores["sentences"] == count
        assert "tok:13a" in scores["bleu"]["signature"]
        assert "nc:6" in scores["chrf"]["signature"]
        assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
        assert 0 <= scores["aer"] <= 1
    assert summary["steps"] == 60
    assert summary["best_step"] in (20, 40, 60)
    assert summary["parameters"] > 0
    assert summary["tokens_per_second"] > 0
    assert len(summary["corpus_sha256"]) == 8  # text of three splits, alignments of two
    log = (trained[0] / "train.log").read_text(encoding="utf-8")
    assert f"scoring the best checkpoint (step {summary['best_step']})" in log


@pytest.mark.guarantee(
    "TensorBoard and the run folder have every heatmap, of the same sentences at each validation."
)
def test_tensorboard_shows_every_validation(trained):
    events = EventAccumulator(
        str(trained[0] / "tensorboard"), size_guidance={"images": 0, "tensors": 0}
    )
    events.Reload()
    tags = events.Tags()
    expected = {
        "train/loss",
        "train/gradient_norm",
        "train/learning_rate",
        "train/tokens_per_second",
        "valid/loss",
        "valid/bleu",
    }
    assert expected <= set(tags["scalars"])
    assert set(tags["images"]) == {"alignment/valid_0001", "alignment/valid_0005"}
    for tag in tags["images"]:
        assert [event.step for event in events.Images(tag)] == [20, 40, 60]
        assert len(list((trained[0] / tag.replace("alignment/", "alignments/")).glob("*.png"))) == 3
    texts = [tag for tag in tags["tensors"] if tag.startswith("translation/")]
    assert len(texts) == 2


@pytest.mark.guarantee(
    "TensorBoard and the run folder have every heatmap, of the same sentences at each validation."
)
def test_stored_weights_are_those_of_the_translation_shown(trained):
    for path in (trained[0] / "alignments").rglob("*.json"):
        shown = json.loads(path.read_text(encoding="utf-8"))
        weights = np.array(shown["weights"])
        assert weights.shape == (len(shown["target_tokens"]), len(shown["source_tokens"]))
        assert weights.sum(axis=1) == pytest.approx(np.ones(len(weights)), abs=1e-4)


@pytest.mark.guarantee("Every score has its signature, and equals that of the sacrebleu command.")
def test_evaluation_equals_the_sacrebleu_command_and_the_summary(trained, tmp_path):
    run, _, _ = trained
    done = call_script("evaluate", f"checkpoint={run}/checkpoints/best.safetensors", cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    scores = json.loads(done.stdout)  # JSON and nothing else
    assert scores == json.loads((run / "summary.json").read_text())["test"]
    folder = run / "checkpoints" / "best_test"
    for metric in ("bleu", "chrf"):
        assert scores_by_sacrebleu(folder, metric)["score"] == pytest.approx(
            scores[metric]["score"]
        )
    assert len(lines_of(folder / "hypotheses.txt")) == 25
    assert list(tmp_path.iterdir()) == []  # written next to the checkpoint, not here


@pytest.mark.guarantee("Scores never stand next to files that they were not computed from.")
def test_old_scores_are_removed_before_other_files_are_written(trained, tmp_path):
    run, _, _ = trained
    (tmp_path / "out" / "hypotheses.txt").mkdir(parents=True)  # so that it cannot be written
    (tmp_path / "out" / "scores.json").write_text("{}")
    checkpoint = f"checkpoint={run}/checkpoints/best.safetensors"
    done = call_script("evaluate", checkpoint, "output=out", cwd=tmp_path)
    assert done.returncode == 2
    assert "out/hypotheses.txt: Is a directory." in done.stderr.decode()
    assert (tmp_path / "out" / "references.txt").exists()
    assert not (tmp_path / "out" / "scores.json").exists()


@pytest.mark.guarantee("Batch size and order do not change translations.")
@pytest.mark.parametrize("beam", [1, 5])
def test_batch_size_changes_no_translation(trained, tmp_path, beam):
    run, _, _ = trained
    written = []
    for batch_size in (1, 7):
        output = tmp_path / str(batch_size)
        done = call_script(
            "evaluate",
            f"checkpoint={run}/checkpoints/best.safetensors",
            f"output={output}",
            f"decoding.batch_size={batch_size}",
            f"decoding.beam_size={beam}",
            cwd=tmp_path,
        )
        scores = json.loads(done.stdout)
        written.append(
            (lines_of(output / "hypotheses.txt"), scores["bleu"], round(scores["loss"], 5))
        )
    assert written[0] == written[1]


@pytest.mark.guarantee("Translating needs only the checkpoint: neither training data nor settings.")
def test_evaluation_needs_no_training_data(trained, corpus, tmp_path):
    run, _, _ = trained
    moved = tmp_path / "moved"
    shutil.copytree(run, moved)  # a run folder can be moved
    (tmp_path / "x.de").write_text("Der Hund schläft.\n\nDie Katze schläft.\n", encoding="utf-8")
    (tmp_path / "x.en").write_text("The dog sleeps.\n\nThe cat sleeps.\n", encoding="utf-8")
    done = call_script(
        "evaluate",
        "checkpoint=moved/checkpoints/best.safetensors",
        "source=x.de",
        "target=x.en",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["sentences"] == 3  # no line is skipped
    assert lines_of(moved / "checkpoints" / "best_files" / "hypotheses.txt")[1] == ""


@pytest.mark.guarantee("Line n of the output translates line n of the input.")
def test_translation_is_line_for_line(trained, tmp_path):
    run, _, _ = trained
    text = "Der Hund schläft.\n   \nDie Katze\u2028schläft.\r\n.\nDer Hund schläft."
    done = call_script(
        "translate",
        f"checkpoint={run}/checkpoints/best.safetensors",
        "decoding=greedy",
        cwd=tmp_path,
        stdin=text.encode(),
    )
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.decode().removesuffix("\n").split("\n")
    assert len(lines) == 5
    assert lines[1] == ""
    assert lines[0] == lines[4] != ""
    assert list(tmp_path.iterdir()) == []
    assert done.stderr == b""


def test_unknown_source_tokens_are_reported(trained, tmp_path):
    run, _, _ = trained
    checkpoint = f"checkpoint={run}/checkpoints/best.safetensors"
    text = "Der Qqq schläft.\n\n" + "".join(f"Der {word}{word} schläft.\n" for word in "ξξπψωβ")
    done = call_script("translate", checkpoint, cwd=tmp_path, stdin=text.encode())
    assert done.returncode == 0
    assert len(done.stdout.decode().removesuffix("\n").split("\n")) == 8
    (line,) = done.stderr.decode().splitlines()
    assert line == (
        "7 source tokens unknown to the model, read as <unk>: 'ξξ', 'Qqq', 'ππ', 'ψψ', 'ωω', ..."
    )
    done = call_script("plot_alignment", checkpoint, 'source="Der Qqq schläft."', cwd=tmp_path)
    line = done.stderr.decode().splitlines()[0]
    assert line == "1 source token unknown to the model, read as <unk>: 'Qqq'"


def test_several_translations_are_distinct_and_sorted(trained, tmp_path):
    run, _, _ = trained
    done = call_script(
        "translate",
        f"checkpoint={run}/checkpoints/best.safetensors",
        "num_best=3",
        cwd=tmp_path,
        stdin="Der Hund schläft.\nDie Katze schläft.\n".encode(),
    )
    rows = [line.split("\t") for line in done.stdout.decode().removesuffix("\n").split("\n")]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] * 3
    scores = [float(row[2]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True)
    assert len({row[1] for row in rows[:3]}) == 3


def test_a_heatmap_of_a_given_translation_is_written(trained, tmp_path):
    run, _, _ = trained
    done = call_script(
        "plot_alignment",
        f"checkpoint={run}/checkpoints/best.safetensors",
        'source="Der Hund schläft."',
        'target="The dog sleeps."',
        "output=a.png",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    shown = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert shown["target_tokens"] == ["The", "dog", "sleeps", ".", "</s>"]


@pytest.mark.guarantee("Every run has its own folder, whose name needs no quotes.")
def test_a_resumed_run_continues_in_its_folder(trained, corpus, tmp_path):
    _, start, _ = trained
    common = (*data_arguments(corpus, start / "prepared"), *TINY, "trainer.validate_every_steps=5")
    first = call_script("train", *common, "trainer.max_steps=5", cwd=tmp_path)
    assert first.returncode == 0, first.stderr.decode()
    run = one_run(tmp_path)
    again = call_script("train", f"resume={run}", cwd=tmp_path)
    assert b"already at step 5" in again.stderr
    more = call_script("train", f"resume={run}", "trainer.max_steps=10", cwd=tmp_path)
    assert more.returncode == 0, more.stderr.decode()
    assert one_run(tmp_path) == run
    events = [json.loads(line) for line in lines_of(run / "journal.jsonl")]
    assert [event["step"] for event in events if event["event"] == "valid"] == [5, 10]
    first_settings = yaml.safe_load((run / ".hydra" / "config.yaml").read_text())
    assert first_settings["trainer"]["max_steps"] == 5
    refused = call_script("train", f"resume={run}", "model.decoder_size=8", cwd=tmp_path)
    assert refused.returncode == 2
    assert b"model.decoder_size: 64 -> 8" in refused.stderr


@pytest.mark.guarantee("Every run has its own folder, whose name needs no quotes.")
def test_a_sweep_gives_each_job_a_folder_and_a_score(trained, corpus, tmp_path):
    _, start, _ = trained
    done = call_script(
        "train",
        "--multirun",
        *data_arguments(corpus, start / "prepared"),
        *TINY,
        "seed=1,2",
        "trainer.max_steps=4",
        "trainer.validate_every_steps=2",
        "trainer.select=loss",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert len(list(tmp_path.glob("runs/files/multirun_*/[01]/summary.json"))) == 2


def test_preparing_reports_what_was_read_and_dropped(corpus, tmp_path):
    folder = tmp_path / "text"
    shutil.copytree(corpus, folder)
    german = lines_of(folder / "train.de")
    german[36] = "   "
    with gzip.open(folder / "train.de.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(german) + "\n")
    arguments = (*data_arguments(folder, tmp_path / "prepared"), "data.train.source=train.de.gz")
    done = call_script("prepare", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    report = done.stdout.decode()
    assert "read 400 pairs, kept 399" in report
    assert re.search(r"dropped 1: blank source \(line 37\)", report)
