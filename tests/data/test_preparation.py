"""Text becomes ids that mean the same text; once, and anew when anything that matters changes."""

import gzip
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from seq2seq.config.data import DataConfig, SplitConfig, TokenizerConfig, VocabularyConfig
from seq2seq.data import preparation
from seq2seq.data.preparation import locate, prepare, report_lines
from seq2seq.data.tokenizer import train_sentencepiece
from seq2seq.data.vocabulary import UNK

TEXT = {
    "train.de": ["Der Hund schläft .", "Die Katze schläft .", "Ein Hund !", "Der Hund bellt ."],
    "train.en": ["The dog sleeps .", "The cat sleeps .", "A dog !", "The dog barks ."],
    "valid.de": ["Der Vogel schläft .", "Die Katze bellt ."],
    "valid.en": ["The bird sleeps .", "The cat barks ."],
}


def write(folder, **lines):
    """The files of ``TEXT``, some of them with other lines; names as in train_de."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (TEXT | {k.replace("_", "."): v for k, v in lines.items()}).items():
        (folder / name).write_text("".join(f"{line}\n" for line in text), encoding="utf-8")


def config_of(folder, ending="", **changes):
    """A corpus in ``folder``/text, prepared in ``folder``/prepared."""
    parts = {
        part: SplitConfig(f"{part}.de{ending}", f"{part}.en{ending}")
        for part in ("train", "valid", "test")
    }
    settings = {"tokenizer": TokenizerConfig("whitespace")} | parts | changes
    return DataConfig(
        name="toy",
        root=str(folder / "text"),
        prepared=str(folder / "prepared"),
        source_language="de",
        target_language="en",
        **settings,
    )


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "text")
    return tmp_path


def texts(corpus):
    """The training pairs, read back from the ids."""
    return [
        tuple(
            side.tokenizer.detokenize(side.vocabulary.tokens(ids[row]))
            for side, ids in (
                (corpus.source, corpus.source_ids),
                (corpus.target, corpus.target_ids),
            )
        )
        for row in range(len(corpus.source_ids))
    ]


def prepared_folders(folder):
    return sorted(path.name for path in (folder / "prepared").iterdir())


TRAIN_PAIRS = list(zip(TEXT["train.de"], TEXT["train.en"], strict=True))


def sentencepiece(**changes):
    return TokenizerConfig("sentencepiece", vocabulary_size=40, **changes)


@pytest.mark.parametrize(
    "tokenizer",
    [
        TokenizerConfig("whitespace"),
        TokenizerConfig("characters"),
        sentencepiece(),
        sentencepiece(joint=False),
        sentencepiece(model_type="unigram"),
    ],
    ids=["whitespace", "characters", "joint pieces", "pieces a side", "unigram"],
)
def test_ids_are_the_text(folder, tokenizer):
    if tokenizer.model_type == "unigram":
        write(folder / "text", train_de=TEXT["train.de"] * 5, train_en=TEXT["train.en"] * 5)
        tokenizer = replace(tokenizer, vocabulary_size=32)
    corpus = prepare(config_of(folder, tokenizer=tokenizer))
    assert set(texts(corpus)) == set(TRAIN_PAIRS)
    for ids in (corpus.source_ids, corpus.target_ids):
        assert all(UNK not in ids[row] for row in range(len(ids)))


def test_moses_ids_are_the_text(folder):
    lines = {"train_de": ["Der Hund (alt) schläft."], "train_en": ["The dog's old, isn't it?"]}
    write(folder / "text", **lines)
    corpus = prepare(config_of(folder, tokenizer=TokenizerConfig("moses")))
    assert texts(corpus) == [("Der Hund (alt) schläft.", "The dog's old, isn't it?")]
    assert "schläft" in corpus.source.vocabulary  # the full stop stands apart


@pytest.mark.parametrize("joint", [True, False])
def test_one_model_for_both_languages_or_one_for_each(folder, joint):
    corpus = prepare(config_of(folder, tokenizer=sentencepiece(joint=joint)))
    assert (corpus.source.tokenizer.model == corpus.target.tokenizer.model) == joint


def test_subwords_depend_on_the_words_and_their_counts_alone():
    """Which is why counting them is enough, and no text has to be kept or sampled."""
    lines = [line for text in TEXT.values() for line in text]
    words = [word for line in lines for word in line.split()]
    assert train_sentencepiece(lines, 40) == train_sentencepiece(words[::-1], 40)
    assert train_sentencepiece(lines, 40) != train_sentencepiece(sorted(set(words)), 40)


@pytest.mark.parametrize("joint", [True, False])
def test_one_vocabulary_for_both_languages_or_one_for_each(folder, joint):
    corpus = prepare(config_of(folder, vocabulary=VocabularyConfig(joint=joint)))
    source, target = corpus.source.vocabulary, corpus.target.vocabulary
    assert (source.token_list == target.token_list) == joint
    assert ("dog" in source) == joint
    assert texts(corpus) == TRAIN_PAIRS


def test_the_second_time_nothing_is_made(folder, monkeypatch):
    first = prepare(config_of(folder))

    def fail(*arguments):
        raise AssertionError("made again")

    monkeypatch.setattr(preparation, "_make", fail)
    again = prepare(config_of(folder))
    assert texts(again) == texts(first)
    assert again.report == first.report
    assert again.source.vocabulary.token_list == first.source.vocabulary.token_list


def test_files_elsewhere_with_the_same_text_need_no_new_preparation(folder, monkeypatch):
    prepare(config_of(folder))
    shutil.move(folder / "text", folder / "moved")
    monkeypatch.setattr(preparation, "_make", None)
    prepare(replace(config_of(folder), root=str(folder / "moved")))


@pytest.mark.parametrize("name", sorted(TEXT))
def test_a_changed_file_is_prepared_anew(folder, name):
    prepare(config_of(folder))
    path = folder / "text" / name
    before = path.stat()
    path.write_text(path.read_text(encoding="utf-8").replace(" ", "  ", 1), encoding="utf-8")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # the clock is not asked
    prepare(config_of(folder))
    assert len(prepared_folders(folder)) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": 3},
        {"tokenizer": TokenizerConfig("characters")},
        {"tokenizer": TokenizerConfig("whitespace", lowercase=True)},
        {"vocabulary": VocabularyConfig(min_frequency=2)},
        {"vocabulary": VocabularyConfig(max_size=3)},
        {"vocabulary": VocabularyConfig(joint=True)},
        {"source_language": "nl"},
    ],
    ids=lambda change: "-".join(change),
)
def test_a_changed_setting_is_prepared_anew(folder, change):
    prepare(config_of(folder))
    prepare(replace(config_of(folder), **change))
    prepare(config_of(folder))
    assert len(prepared_folders(folder)) == 2


def test_blank_and_long_pairs_are_left_out_as_pairs_and_reported(tmp_path):
    """Target n is a copy of source n: whatever is left out, the rest must stay copies."""
    lines = [f"satz nummer {number}" for number in range(1, 21)]
    source, target = list(lines), list(lines)
    source[6], target[9], source[12], target[12] = "", "   ", "\t", ""
    source[14], target[16] = "zu " * 9 + "lang", "zu " * 9 + "lang"
    write(tmp_path / "text", train_de=source, train_en=target)
    corpus = prepare(config_of(tmp_path, max_tokens=9))
    pairs = texts(corpus)
    assert all(a == b for a, b in pairs)
    assert [a for a, _ in pairs] == [
        line for number, line in enumerate(lines, 1) if number not in (7, 10, 13, 15, 17)
    ]
    assert report_lines(corpus.report)[:6] == [
        "train: read 20 pairs, kept 15",
        "train: dropped 1: blank source (line 7)",
        "train: dropped 1: blank target (line 10)",
        "train: dropped 1: both sides blank (line 13)",
        "train: dropped 1: source too long (line 15)",
        "train: dropped 1: target too long (line 17)",
    ]


def test_a_sentence_of_exactly_the_limit_stays(folder):
    corpus = prepare(config_of(folder, max_tokens=4))
    assert len(corpus.source_ids) == 4
    corpus = prepare(config_of(folder, max_tokens=3))
    assert texts(corpus) == [("Ein Hund !", "A dog !")]


def test_line_numbers_go_on_across_chunks(folder, monkeypatch):
    monkeypatch.setattr(preparation, "CHUNK", 3)
    lines = [f"satz {number}" for number in range(1, 11)]
    source = ["" if number in (2, 7, 10) else line for number, line in enumerate(lines, 1)]
    write(folder / "text", train_de=source, train_en=lines)
    corpus = prepare(config_of(folder))
    assert "train: dropped 3: blank source (line 2, 7, 10)" in report_lines(corpus.report)
    assert all(a == b for a, b in texts(corpus))
    assert corpus.lines.tolist() == [1, 3, 4, 5, 6, 8, 9]


def test_rows_of_a_table_are_lines_of_its_file(folder):
    """The header is line 1."""
    rows = ["source\ttarget", "a\tb", "\tb", "c\td"]
    (folder / "text" / "all.tsv").write_text("\n".join(rows) + "\n")
    table = SplitConfig("all.tsv", "all.tsv")
    corpus = prepare(config_of(folder, train=table))
    assert texts(corpus) == [("a", "b"), ("c", "d")]
    assert corpus.lines.tolist() == [2, 4]


def test_no_line_of_the_validation_part_is_ever_left_out(folder):
    write(folder / "text", valid_de=["", "wort " * 400], valid_en=["blank", ""])
    corpus = prepare(config_of(folder, max_tokens=50))
    assert corpus.report["valid"]["kept"] == corpus.report["valid"]["read"] == 2
    assert corpus.report["valid"]["source"]["tokens"] == 400


def test_the_report_counts_tokens_words_and_unknown_ones(folder):
    """Counted by hand: of 15 source tokens, Der 2, Hund 3, schläft 2, . 3 are frequent."""
    corpus = prepare(config_of(folder, vocabulary=VocabularyConfig(min_frequency=2)))
    source = corpus.report["train"]["source"]
    assert source["tokens"] == 15
    assert source["vocabulary"] == 4 + 4
    assert source["unknown"] == pytest.approx(5 / 15)  # Die Katze Ein ! bellt
    # Of 8: Vogel, Die, Katze, bellt.
    assert corpus.report["valid"]["source"]["unknown"] == pytest.approx(4 / 8)
    assert (
        "train source: 15 tokens, vocabulary of 8, 33.33% unknown"  # as a person reads it
        in report_lines(corpus.report)
    )


def test_a_table_gives_the_columns_that_are_named(folder):
    plain = texts(prepare(config_of(folder)))
    for part in ("train", "valid"):
        rows = zip(TEXT[f"{part}.en"], TEXT[f"{part}.de"], strict=True)
        lines = ["id\tenglish\tgerman", *(f"{n}\t{en}\t{de}" for n, (en, de) in enumerate(rows))]
        (folder / "text" / f"{part}.tsv").write_text("\n".join(lines), encoding="utf-8")
    table = config_of(
        folder,
        train=SplitConfig("train.tsv", "train.tsv"),
        valid=SplitConfig("valid.tsv", "valid.tsv"),
        source_column="german",
        target_column="english",
    )
    assert texts(prepare(table)) == plain
    with pytest.raises(ValueError, match=r"data\.source_column="):
        prepare(replace(table, source_column="deutsch"))


def test_a_blank_cell_is_named_by_its_line_in_the_table(folder):
    rows = ["source\ttarget", "eins\tone", "\ttwo", "drei\tthree"]
    (folder / "text" / "train.tsv").write_text("\n".join(rows), encoding="utf-8")
    corpus = prepare(config_of(folder, train=SplitConfig("train.tsv", "train.tsv")))
    assert "train: dropped 1: blank source (line 3)" in report_lines(corpus.report)


def test_gzip_files_are_read_as_they_are(folder):
    plain = prepare(config_of(folder))
    for name in TEXT:
        path = folder / "text" / name
        path.with_name(name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    packed = prepare(config_of(folder, ending=".gz"))
    assert texts(packed) == texts(plain)
    assert packed.report == plain.report


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, ValueError])
def test_an_interrupted_preparation_leaves_nothing_behind(folder, monkeypatch, error):
    def interrupted(config, sides, part):  # the last thing but writing the descriptions
        raise error("stop")

    with monkeypatch.context() as patch:
        patch.setattr(preparation, "_part_report", interrupted)
        with pytest.raises(error, match="stop"):
            prepare(config_of(folder))
    assert prepared_folders(folder) == []
    assert texts(prepare(config_of(folder))) == TRAIN_PAIRS


def test_the_slower_of_two_equal_preparations_uses_the_other(folder, monkeypatch):
    make = preparation._make

    def overtaken(config, made):
        monkeypatch.setattr(preparation, "_make", make)
        prepare(config)
        make(config, made)

    monkeypatch.setattr(preparation, "_make", overtaken)
    assert texts(prepare(config_of(folder))) == TRAIN_PAIRS
    assert len(prepared_folders(folder)) == 1


def test_what_looks_like_a_special_token_is_an_unknown_word(folder):
    write(folder / "text", train_de=["a <s> b </s>", "<pad> a"], train_en=["x </s> y", "<unk> x"])
    corpus = prepare(config_of(folder))
    rows = [corpus.source_ids[0].tolist(), corpus.source_ids[1].tolist()]
    a, b = (corpus.source.vocabulary.ids([word])[0] for word in "ab")
    assert rows == [[a, UNK, b, UNK], [UNK, a]]
    assert corpus.report["train"]["source"]["unknown"] == pytest.approx(3 / 6)


@pytest.mark.parametrize("tokenizer", [TokenizerConfig("whitespace"), sentencepiece()])
def test_a_corpus_of_blank_lines_is_refused_in_one_line(folder, tokenizer):
    write(folder / "text", train_de=["", " "], train_en=["", "\t"])
    with pytest.raises(ValueError, match="training") as caught:
        prepare(config_of(folder, tokenizer=tokenizer))
    assert "\n" not in str(caught.value)
    assert "blank" in str(caught.value)
    assert prepared_folders(folder) == []


def test_files_out_of_step_are_refused_by_name(folder):
    write(folder / "text", train_en=TEXT["train.en"][:3])
    with pytest.raises(ValueError, match=r"train\.de has 4 lines .*train\.en has 3"):
        prepare(config_of(folder))
    assert prepared_folders(folder) == []


def test_a_missing_file_is_named(folder):
    (folder / "text" / "valid.en").unlink()
    with pytest.raises(FileNotFoundError, match=r"valid\.en"):
        prepare(config_of(folder))


def test_parts_are_found_below_the_root():
    config = config_of(Path("x"), test=SplitConfig("a.de", "a.en", "a.align"))
    files = locate(config, "test")
    assert files[:3] == (Path("x/text/a.de"), Path("x/text/a.en"), Path("x/text/a.align"))
    assert locate(config, "valid").alignment is None
