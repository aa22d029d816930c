"""Prepared ids mean the same text, and are made again only if something relevant changes."""

import gzip
import os
import shutil
from dataclasses import replace

import pytest

from seq2seq.config.data import DataConfig, SplitConfig, TokenizerConfig, VocabularyConfig
from seq2seq.data import corpus as corpus_module
from seq2seq.data import download, preparation
from seq2seq.data.corpus import locate, open_corpus
from seq2seq.data.preparation import prepare
from seq2seq.data.report import report_lines
from seq2seq.data.tokenizer import train_sentencepiece
from seq2seq.data.vocabulary import UNK

TEXT = {
    "train.de": ["Der Hund schläft .", "Die Katze schläft .", "Ein Hund !", "Der Hund bellt ."],
    "train.en": ["The dog sleeps .", "The cat sleeps .", "A dog !", "The dog barks ."],
    "valid.de": ["Der Vogel schläft .", "Die Katze bellt ."],
    "valid.en": ["The bird sleeps .", "The cat barks ."],
    "test.de": ["Der Hund bellt !"],
    "test.en": ["The dog barks !"],
}
TRAIN_PAIRS = list(zip(TEXT["train.de"], TEXT["train.en"], strict=True))


def write(folder, **lines):
    """Write the files of ``TEXT``, some of them with other lines; train_de is train.de."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (TEXT | {k.replace("_", "."): v for k, v in lines.items()}).items():
        (folder / name).write_text("".join(f"{line}\n" for line in text), encoding="utf-8")


def config_of(folder, suffix="", **changes):
    """A corpus in ``folder``/text, prepared in ``folder``/prepared."""
    splits = {
        split: SplitConfig(f"{split}.de{suffix}", f"{split}.en{suffix}")
        for split in ("train", "valid", "test")
    }
    settings = {"name": "toy", "tokenizer": TokenizerConfig("whitespace")} | splits | changes
    return DataConfig(
        root=str(folder / "text"),
        prepared=str(folder / "prepared"),
        source_language="de",
        target_language="en",
        **settings,
    )


def prepared(folder, **changes):
    config = config_of(folder, **changes)
    return prepare(open_corpus(config), config)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "text")
    return tmp_path


def texts(corpus):
    """The training pairs, decoded from the ids."""
    return [
        (
            corpus.source.decode(corpus.source_ids[row].tolist()),
            corpus.target.decode(corpus.target_ids[row].tolist()),
        )
        for row in range(len(corpus.source_ids))
    ]


def prepared_folders(folder):
    return sorted(path.name for path in (folder / "prepared").iterdir())


def sentencepiece(**changes):
    return TokenizerConfig("sentencepiece", **{"vocabulary_size": 40} | changes)


# --- opening


@pytest.mark.guarantee("Each file of a corpus is hashed once per start.")
@pytest.mark.parametrize("name", ["toy", "named"])
def test_each_file_is_hashed_once_per_start(folder, monkeypatch, name):
    (folder / "text" / "test.align").write_text("0-0\n")
    config = config_of(folder, name=name, test=SplitConfig("test.de", "test.en", "test.align"))
    digests = open_corpus(config).digests
    assert list(digests) == sorted([*TEXT, "test.align"])
    files = {file: download.NamedFile(digests[file], 1) for file in TEXT}
    named = download.NamedCorpus("http://corpus.invalid/", "free", files)
    monkeypatch.setitem(download.CORPORA, "named", named)
    hashed = []

    def counting(path):
        hashed.append(path.name)
        return digests[path.name]

    monkeypatch.setattr(corpus_module, "file_digest", counting)
    monkeypatch.setattr(download, "file_digest", counting)
    corpus = open_corpus(config)
    prepare(corpus, config)
    assert sorted(hashed) == list(digests) == list(corpus.digests)


def test_missing_file_of_any_split_is_named(folder):
    (folder / "text" / "test.en").unlink()
    with pytest.raises(FileNotFoundError, match=r"test\.en.*data\.root"):
        open_corpus(config_of(folder))
    files = locate(config_of(folder, test=SplitConfig("a.de", "a.en", "a.align")), "test")
    assert files[:3] == tuple(folder / "text" / f"a.{kind}" for kind in ("de", "en", "align"))


# --- ids


@pytest.mark.guarantee(
    "Prepared ids decode to the text, and changed text or settings are prepared again."
)
@pytest.mark.parametrize(
    "tokenizer",
    [
        TokenizerConfig("moses"),
        TokenizerConfig("characters"),
        sentencepiece(),
        sentencepiece(joint=False),
        sentencepiece(model_type="unigram", vocabulary_size=32),
    ],
    ids=["moses", "characters", "joint", "separate", "unigram"],
)
def test_ids_decode_to_the_text(folder, tokenizer):
    lines = [line.replace(" .", ".").replace(" !", "!") for line in TEXT["train.de"]]
    write(folder / "text", train_de=lines * 5, train_en=TEXT["train.en"] * 5)
    corpus = prepared(folder, tokenizer=tokenizer)
    expected = TEXT["train.en"]
    if tokenizer.name == "moses":  # which joins punctuation to the word before
        expected = [line.replace(" .", ".").replace(" !", "!") for line in expected]
    assert texts(corpus) == list(zip(lines, expected, strict=True)) * 5
    for ids in (corpus.source_ids, corpus.target_ids):
        assert all(UNK not in ids[row] for row in range(len(ids)))


@pytest.mark.parametrize("joint", [True, False])
def test_models_and_vocabularies_are_joint_if_requested(folder, joint):
    corpus = prepared(folder, tokenizer=sentencepiece(joint=joint))
    assert (corpus.source.tokenizer.model == corpus.target.tokenizer.model) == joint
    corpus = prepared(folder, vocabulary=VocabularyConfig(joint=joint))
    source, target = corpus.source.vocabulary, corpus.target.vocabulary
    assert (source.token_list == target.token_list) == joint
    assert ("dog" in source) == joint
    assert texts(corpus) == TRAIN_PAIRS


def test_subwords_depend_only_on_words_and_counts():
    """Counting words is enough for training; the text need not be kept or sampled."""
    lines = [line for text in TEXT.values() for line in text]
    words = [word for line in lines for word in line.split()]
    assert train_sentencepiece(lines, 40) == train_sentencepiece(words[::-1], 40)
    assert train_sentencepiece(lines, 40) != train_sentencepiece(sorted(set(words)), 40)


@pytest.mark.guarantee(
    "Text never becomes a control token, and a vocabulary depends only on token counts."
)
def test_spelling_of_special_tokens_is_unknown(folder):
    write(folder / "text", train_de=["a <s> b </s>", "<pad> a"], train_en=["x </s> y", "<unk> x"])
    corpus = prepared(folder)
    a, b = corpus.source.vocabulary.ids(["a", "b"])
    assert [corpus.source_ids[row].tolist() for row in (0, 1)] == [[a, UNK, b, UNK], [UNK, a]]
    assert corpus.report["train"]["source"]["unknown"] == pytest.approx(3 / 6)


def test_gzip_files_give_the_same_ids(folder):
    plain = prepared(folder)
    for name in TEXT:
        path = folder / "text" / name
        path.with_name(name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    packed = prepared(folder, suffix=".gz")
    assert texts(packed) == texts(plain)
    assert packed.report == plain.report


def test_named_columns_of_a_table_are_read(folder):
    plain = texts(prepared(folder))
    for split in ("train", "valid"):
        rows = zip(TEXT[f"{split}.en"], TEXT[f"{split}.de"], strict=True)
        lines = [f"{n}\t{en}\t{de}" for n, (en, de) in enumerate(rows)]
        lines = ["id\tenglish\tgerman", "a\tb\t", *lines]
        (folder / "text" / f"{split}.tsv").write_text("\n".join(lines), encoding="utf-8")
    table = {split: SplitConfig(f"{split}.tsv", f"{split}.tsv") for split in ("train", "valid")}
    table |= {"source_column": "german", "target_column": "english"}
    corpus = prepared(folder, **table)
    assert texts(corpus) == plain
    assert corpus.lines.tolist() == [3, 4, 5, 6]  # the header is line 1
    assert "train: dropped 1: blank source (line 2)" in report_lines(corpus.report)
    with pytest.raises(ValueError, match=r"data\.source_column="):
        prepared(folder, **table | {"source_column": "deutsch"})


# --- dropped pairs and the report


@pytest.mark.guarantee(
    "Blank and overlong training pairs are dropped, counted, and reported with their line numbers."
)
def test_blank_and_long_pairs_are_dropped_as_pairs_and_reported(tmp_path, monkeypatch):
    """Target n is a copy of source n: the pairs that are kept must still be copies."""
    monkeypatch.setattr(preparation, "CHUNK", 3)  # line numbers continue across chunks
    lines = [f"satz nummer {number}" for number in range(1, 21)]
    source, target = list(lines), list(lines)
    source[6], target[9], source[12], target[12] = "", "   ", "\t", ""
    source[14], target[16] = "zu " * 9 + "lang", "zu " * 9 + "lang"
    source[0] = target[0] = "genau neun " * 4 + "wörter"
    write(tmp_path / "text", train_de=source, train_en=target)
    corpus = prepared(tmp_path, max_tokens=9)
    kept = [number for number in range(1, 21) if number not in (7, 10, 13, 15, 17)]
    assert corpus.lines.tolist() == kept
    assert texts(corpus) == [(source[number - 1],) * 2 for number in kept]
    assert report_lines(corpus.report)[:6] == [
        "train: read 20 pairs, kept 15",
        "train: dropped 1: blank source (line 7)",
        "train: dropped 1: blank target (line 10)",
        "train: dropped 1: both sides blank (line 13)",
        "train: dropped 1: source too long (line 15)",
        "train: dropped 1: target too long (line 17)",
    ]


@pytest.mark.guarantee("Validation and test lines are never dropped.")
def test_validation_lines_are_never_dropped(folder):
    write(folder / "text", valid_de=["", "wort " * 400], valid_en=["blank", ""])
    corpus = prepared(folder, max_tokens=50)
    assert corpus.report["valid"]["kept"] == corpus.report["valid"]["read"] == 2
    assert corpus.report["valid"]["source"]["tokens"] == 400


def test_report_counts_tokens_vocabulary_and_unknown_tokens(folder):
    """Counted by hand: of 15 source tokens, Der 2, Hund 3, schläft 2, . 3 are frequent."""
    report = prepared(folder, vocabulary=VocabularyConfig(min_frequency=2)).report
    assert report["train"]["source"] == {
        "tokens": 15,
        "vocabulary": 4 + 4,
        "unknown": pytest.approx(5 / 15),  # Die Katze Ein ! bellt
    }
    assert report["valid"]["source"]["unknown"] == pytest.approx(4 / 8)  # Vogel Die Katze bellt
    assert "train source: 15 tokens, vocabulary of 8, 33.33% unknown" in report_lines(report)


# --- reuse of prepared folders


def test_prepared_folder_is_reused_even_if_the_files_move(folder, monkeypatch):
    first = prepared(folder)
    monkeypatch.setattr(preparation, "_write", None)
    again = prepared(folder)
    assert texts(again) == texts(first)
    assert again.report == first.report
    assert again.source.vocabulary.token_list == first.source.vocabulary.token_list
    shutil.move(folder / "text", folder / "moved")
    config = replace(config_of(folder), root=str(folder / "moved"))
    assert prepare(open_corpus(config), config).folder == first.folder


@pytest.mark.guarantee(
    "Prepared ids decode to the text, and changed text or settings are prepared again."
)
@pytest.mark.parametrize("name", ["train.de", "train.en", "valid.de", "valid.en"])
def test_changed_file_is_prepared_again(folder, name):
    first = prepared(folder).folder
    path = folder / "text" / name
    before = path.stat()
    path.write_text(path.read_text(encoding="utf-8").replace(" ", "  ", 1), encoding="utf-8")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # which do not matter
    assert prepared(folder).folder != first


@pytest.mark.guarantee(
    "Prepared ids decode to the text, and changed text or settings are prepared again."
)
@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": 3},
        {"tokenizer": TokenizerConfig("characters")},
        {"tokenizer": TokenizerConfig("whitespace", lowercase=True)},
        {"vocabulary": VocabularyConfig(min_frequency=2)},
        {"vocabulary": VocabularyConfig(max_size=3)},
        {"vocabulary": VocabularyConfig(joint=True)},
        {"source_column": "x"},
    ],
    ids=lambda change: "-".join(change),
)
def test_changed_setting_is_prepared_again(folder, change):
    first = prepared(folder).folder
    assert prepared(folder, **change).folder != first
    assert prepared(folder).folder == first


@pytest.mark.guarantee(
    "Prepared ids decode to the text, and changed text or settings are prepared again."
)
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, ValueError])
def test_interrupted_preparation_leaves_no_folder(folder, monkeypatch, error):
    def interrupt(*arguments):  # the last step before the reports are written
        raise error("stop")

    with monkeypatch.context() as patch:
        patch.setattr(preparation, "_report_split", interrupt)
        with pytest.raises(error, match="stop"):
            prepared(folder)
    assert prepared_folders(folder) == []
    killed, active = (folder / "prepared" / f".unfinished-{name}" for name in ("old", "new"))
    killed.mkdir()
    active.mkdir()
    os.utime(killed, (0, 0))
    assert texts(prepared(folder)) == TRAIN_PAIRS
    assert not killed.exists()
    assert active.exists()


def test_slower_of_two_equal_preparations_uses_the_other(folder, monkeypatch):
    write_folder = preparation._write

    def overtaken(*arguments):
        monkeypatch.setattr(preparation, "_write", write_folder)
        prepared(folder)
        write_folder(*arguments)

    monkeypatch.setattr(preparation, "_write", overtaken)
    assert texts(prepared(folder)) == TRAIN_PAIRS
    assert len(prepared_folders(folder)) == 1


@pytest.mark.parametrize("tokenizer", [TokenizerConfig("whitespace"), sentencepiece()])
def test_corpus_of_blank_lines_is_refused_in_one_line(folder, tokenizer):
    write(folder / "text", train_de=["", " "], train_en=["", "\t"])
    with pytest.raises(ValueError, match=r"(?=.*training)(?=.*blank)^.*$"):
        prepared(folder, tokenizer=tokenizer)
    assert prepared_folders(folder) == []
