import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from conftest import TINY, call_script, data_arguments

from seq2seq.config.training import TrainConfig
from seq2seq.run_folder import RunFolder
from seq2seq.runs.comparison import (
    ComparedRun,
    comparison_table,
    mean_and_deviation,
    read_comparison,
)

CONFIG = TrainConfig(name="n")


def finished(label, bleu, seed=1, config=CONFIG, **others):
    """Make a run of a comparison, as read from its folder."""
    test = {"bleu": {"score": bleu, "signature": "tok:13a"}, "perplexity": 2.0, "sentences": 9}
    summary = {"test": test | others, "seconds": 1, "parameters": 5, "decoding": {"beam_size": 5}}
    folder = Path("runs") / f"{label}_{seed}"
    return ComparedRun(label, RunFolder(folder), asdict(replace(config, seed=seed)), summary, {})


def rows(table):
    cells = [re.split(r" *\| *", line)[1:-1] for line in table.split("\n") if line.startswith("|")]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def test_mean_and_sample_deviation_over_seeds():
    assert mean_and_deviation([1.0, 2.0, 3.0], 2) == "2.00 ± 1.00"
    assert mean_and_deviation([4.0], 1) == "4.0"
    assert mean_and_deviation([1200.0, 1200.0], 0) == "1,200"


def test_missing_scores_are_shown_as_none():
    """AER without true alignments, entropy without attention."""
    assert mean_and_deviation([None, None], 3) == "none"
    assert rows(comparison_table([finished("none", 3.0)]))[0]["entropy"] == "none"


def test_models_are_rows_sorted_by_bleu():
    runs = [finished("a", 10.0), finished("b", 30.0, 1), finished("b", 20.0, 2)]
    table = rows(comparison_table(runs))
    assert [(row["attention"], row["seeds"]) for row in table] == [("b", "2"), ("a", "1")]
    assert table[0]["BLEU"] == "25.00 ± 7.07"


def test_the_table_carries_the_signatures_of_its_scores():
    run = finished("a", 10.0, aer=0.5, aer_signature="forced references")
    table = comparison_table([run])
    for signature in ("tok:13a", "beam 5", "forced references"):
        assert signature in table


@pytest.fixture(scope="module")
def compared(corpus, tmp_path_factory):
    """Two mechanisms on two seeds: (folder, arguments, where it was started, what it printed)."""
    start = tmp_path_factory.mktemp("compare")
    arguments = (
        *data_arguments(corpus, start / "prepared"),
        *TINY,
        "model/attention=dot,none",
        "seed=1,2",
        "lines=[2,3]",
        "trainer.max_epochs=null",
        "trainer.max_steps=2",
        "decoding.beam_size=1",
        "decoding.max_length_extra=2",
    )
    done = call_script("compare_attention", *arguments, cwd=start)
    assert done.returncode == 0, done.stderr.decode()
    (folder,) = (start / "runs" / "compare_attention").iterdir()
    return folder, arguments, start, done


def test_each_mechanism_and_seed_has_a_run_folder(compared):
    folder = compared[0]
    runs = {path.name for path in folder.iterdir() if path.is_dir()}
    assert runs == {"dot_seed1", "dot_seed2", "none_seed1", "none_seed2"}
    assert {run.label for run in read_comparison(folder)} == {"dot", "none"}


def test_the_table_is_printed_once_and_saved(compared):
    folder, _, _, done = compared
    table = (folder / "comparison.md").read_text(encoding="utf-8")
    assert done.stdout.decode() == table
    assert {row["attention"]: row["seeds"] for row in rows(table)} == {"dot": "2", "none": "2"}
    for row in rows(table):
        summaries = [
            json.loads((folder / f"{row['attention']}_seed{seed}" / "summary.json").read_text())
            for seed in (1, 2)
        ]
        assert row["BLEU"] == mean_and_deviation([s["test"]["bleu"]["score"] for s in summaries], 2)
        assert row["parameters"] == f"{summaries[0]['parameters']:,}"


def test_all_models_are_drawn_on_the_same_sentences(compared):
    folder = compared[0]
    runs = read_comparison(folder)
    for line in (2, 3):
        shown = [run.alignment("forced", line) for run in runs]
        sentences = [(each["source_tokens"], each["target_tokens"]) for each in shown]
        assert all(sentence == sentences[0] for sentence in sentences)
    assert (folder / "comparison.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.guarantee(
    "Comparisons require equal conditions, and continue where they were stopped."
)
def test_a_stopped_comparison_continues(compared):
    """Finished runs are kept, with alignments of further lines added; missing runs are trained."""
    folder, arguments, start, done = compared
    lost = folder / "none_seed2" / "comparison.json"
    kept = folder / "dot_seed1" / "summary.json"
    settings = folder / "dot_seed1" / ".hydra" / "config.yaml"
    before = kept.stat().st_mtime_ns, settings.stat().st_mtime_ns
    record = json.loads(lost.read_text(encoding="utf-8"))
    lost.unlink()
    again = call_script("compare_attention", *arguments, f"folder={folder}", "lines=[4]", cwd=start)
    assert again.returncode == 0, again.stderr.decode()
    assert again.stderr.count(b"is already finished") == 3
    assert (kept.stat().st_mtime_ns, settings.stat().st_mtime_ns) == before
    assert json.loads(lost.read_text(encoding="utf-8"))["texts"] == record["texts"]
    assert all(run.alignment("translated", 4) for run in read_comparison(folder))
    # All but the seconds.
    assert len(again.stdout.splitlines()) == len(done.stdout.splitlines())


@pytest.mark.guarantee(
    "Comparisons require equal conditions, and continue where they were stopped."
)
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (["model.dropout=0.5"], b"model.dropout: 0.2 -> 0.5"),
        (["model/attention=average", "trainer.max_steps=3"], b"trainer.max_steps: 2 -> 3"),
        (["label=dot"], b"both are called 'dot'"),
        (["lines=[26]"], b"lines=[26]"),
        (["folder=nowhere"], b"folder=nowhere"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_incomparable_runs_are_refused_before_training(compared, changes, named):
    folder, arguments, start, _ = compared
    finished = sorted(folder.glob("*/comparison.json"))
    done = call_script("compare_attention", *arguments, f"folder={folder}", *changes, cwd=start)
    assert done.returncode == 2
    assert named in done.stderr
    assert b"Traceback" not in done.stderr
    assert sorted(folder.glob("*/comparison.json")) == finished


def test_changed_text_is_refused(compared, corpus, tmp_path):
    folder, arguments, start, _ = compared
    moved = tmp_path / "text"
    shutil.copytree(corpus, moved)
    with (moved / "test.en").open("r+", encoding="utf-8") as file:
        file.write("A")
    done = call_script(
        "compare_attention", *arguments, f"folder={folder}", f'data.root="{moved}"', cwd=start
    )
    assert done.returncode == 2
    assert b"other text" in done.stderr


def test_bleu_by_length_with_and_without_attention(compared, corpus):
    start = compared[2]
    done = call_script(
        "compare_lengths",
        *data_arguments(corpus, start / "prepared"),
        *TINY,
        "data.max_tokens=9,100",
        "edges=[8]",
        "long=8",
        "lines=[2,3]",
        "trainer.max_steps=2",
        "decoding.beam_size=1",
        "decoding.max_length_extra=2",
        cwd=start,
    )
    assert done.returncode == 0, done.stderr.decode()
    (folder,) = (start / "runs" / "compare_lengths").iterdir()
    table = (folder / "lengths.md").read_text(encoding="utf-8")
    assert done.stdout.decode() == table
    sentences, *models = rows(table)
    assert sum(int(sentences[name]) for name in ("≤ 8", "> 8")) == 25
    names = [row["source words"] for row in models]
    assert names == ["RNNsearch-9", "RNNsearch-100", "RNNencdec-9", "RNNencdec-100"]
    # A later evaluation, which writes next to the checkpoint, changes no number.
    (texts,) = {tuple(run.texts["references"]) for run in read_comparison(folder)}
    assert len(texts) == 25
    # Two gaps: models that were trained on the same sentences.
    assert table.count("paired bootstrap") == 2
    for name in ("lengths.png", "alignments.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
