"""Settings of the other scripts. ``conf/`` only gives values."""

from dataclasses import dataclass
from pathlib import Path

from seq2seq.config.data import DataConfig
from seq2seq.config.model import ModelConfig
from seq2seq.config.schema import MISSING, Form, group, setting
from seq2seq.config.training import (
    DEVICE,
    METRIC_TOKENIZERS,
    DecodingConfig,
    PluginConfig,
    RunConfig,
    TrainConfig,
)


@dataclass
class PrepareConfig(PluginConfig):
    data: DataConfig = group(DataConfig)


@dataclass
class CompareConfig(TrainConfig):
    """Settings of each model of a comparison under equal conditions."""

    folder: str | None = setting(
        None, "folder of an earlier comparison to continue", decides="nothing"
    )
    label: str | None = setting(
        None,
        "name of the model in tables and figures; by default the choice of model/attention",
        decides="nothing",
    )
    lines: list[int] = setting(
        [1],
        "test lines whose alignment is drawn for each model, counted from 1",
        decides="nothing",
    )

    def check(self) -> None:
        super().check()
        if any(line < 1 for line in self.lines):
            raise ValueError(f"lines={self.lines} counts lines from 1.")
        if self.folder is not None and not Path(self.folder).is_dir():
            raise ValueError(
                f"folder={self.folder} is not a folder; leave it out to start a new comparison."
            )


@dataclass
class CompareLengthsConfig(CompareConfig):
    edges: list[int] = setting(
        [5, 10, 15, 20, 25],
        "maximum source length of each group, in words; one more group has the longer sentences",
        decides="nothing",
    )
    long: int = setting(
        20,
        "source sentences with more words than this are called long",
        decides="nothing",
        at_least=1,
    )

    def check(self) -> None:
        super().check()
        if not self.edges or self.edges != sorted({*self.edges}) or self.edges[0] < 1:
            raise ValueError(f"edges={self.edges} must be increasing numbers of words.")


@dataclass
class TranslatorConfig(RunConfig):
    """Settings of every script that translates."""

    checkpoint: str = setting(MISSING, "checkpoint file", decides="parameters")
    decoding: DecodingConfig = group(DecodingConfig)


@dataclass
class EvaluateConfig(TranslatorConfig):
    split: str = setting(
        "test", "split of the corpus to score", decides="corpus", choices=("test", "valid")
    )
    source: str | None = setting(
        None, "file of source sentences, instead of split", decides="corpus"
    )
    target: str | None = setting(
        None, "file of reference translations, instead of split", decides="corpus"
    )
    alignment: str | None = setting(
        None, "file of true word alignments of source and target", decides="corpus"
    )
    output: str | None = setting(
        None,
        "folder for the output files; by default a folder next to the checkpoint",
        decides="nothing",
    )
    metric_tokenizer: str = setting(
        "13a", "sacreBLEU tokenizer", decides="scores", choices=METRIC_TOKENIZERS
    )

    def check(self) -> None:
        if (self.source is None) != (self.target is None):
            raise ValueError(
                f"source={self.source} and target={self.target} go together: give both files, or "
                f"neither to score the corpus of the checkpoint."
            )
        if self.alignment is not None and self.source is None:
            raise ValueError(
                f"alignment={self.alignment} belongs to source= and target=; give these too. The "
                f"corpus of the checkpoint has its own alignments."
            )


@dataclass
class TranslateConfig(TranslatorConfig):
    num_best: int = setting(
        1,
        "translations per sentence; above 1, output lines have line number, translation and score, "
        "separated by tabs",
        decides="scores",
        at_least=1,
    )

    def check(self) -> None:
        if self.num_best > self.decoding.beam_size:
            raise ValueError(
                f"num_best={self.num_best} needs a beam at least as wide; "
                f"decoding.beam_size={self.decoding.beam_size}."
            )


@dataclass
class AverageConfig:
    checkpoints: list[str] = setting([], "checkpoint files of one model", decides="parameters")
    run: str | None = setting(
        None,
        "run folder whose newest checkpoints are averaged, instead of checkpoints",
        decides="parameters",
    )
    last: int = setting(
        2,
        "number of checkpoints of run; training keeps trainer.keep_last of them",
        decides="parameters",
        at_least=1,
    )
    output: str = setting(
        MISSING, "checkpoint file to write, for evaluation and translation", decides="nothing"
    )

    def check(self) -> None:
        if bool(self.checkpoints) == (self.run is not None):
            raise ValueError(
                f"checkpoints={self.checkpoints} and run={self.run or 'null'}: give one of them, a "
                f"list of files ('checkpoints=[a.safetensors,b.safetensors]') or a run's folder."
            )


@dataclass
class ReproduceConfig(PluginConfig):
    run: str = setting(MISSING, "folder of the run to repeat", decides="parameters")
    root: str | None = setting(
        None,
        "folder of the corpus files; by default the folder that the run used",
        decides="nothing",
    )
    device: str | None = setting(
        None, "device to compute on; by default that of the run", decides="nothing", form=DEVICE
    )
    threads: int | None = setting(
        None,
        "CPU threads; by default as many as the run used",
        decides="nothing",
        at_least=1,
        at_most=1024,
    )


@dataclass
class BenchmarkConfig(RunConfig):
    parts: list[str] = setting(
        ["training", "peak", "attention", "decoding", "loading", "memory"],
        "what to measure; memory measures the memory of the other parts, each in its own process",
        decides="nothing",
        choices=("training", "peak", "attention", "decoding", "loading", "memory"),
    )
    repeats: int = setting(
        10, "number of turns; the table shows their medians", decides="nothing", at_least=1
    )
    updates: int = setting(4, "training updates per turn", decides="nothing", at_least=1)
    sentences: int = setting(256, "sentences decoded per turn", decides="nothing", at_least=1)
    lengths: list[int] = setting(
        [25, 50, 100],
        "source and target lengths for the attention benchmark; the first one is the usual length",
        decides="nothing",
        at_least=1,
    )
    small_pairs: int = setting(
        30_000, "sentence pairs of the small corpus to load", decides="nothing", at_least=1
    )
    large_pairs: int = setting(
        1_000_000,
        "sentence pairs of the large corpus, written to the run folder, 140 MB per million",
        decides="nothing",
        at_least=1,
    )
    seed: int = setting(1, "random seed", decides="parameters", at_least=0)
    model: ModelConfig = group(ModelConfig)

    def check(self) -> None:
        if not {*self.parts} - {"memory"}:
            raise ValueError(
                f"parts={self.parts} leaves nothing to measure; --help lists the parts."
            )
        if not self.lengths:
            raise ValueError(f"lengths={self.lengths} must contain at least one length.")
        if self.small_pairs == self.large_pairs:
            raise ValueError(
                f"small_pairs={self.small_pairs} and large_pairs={self.large_pairs} are compared, "
                f"so they must differ."
            )


@dataclass
class PlotAlignmentConfig(TranslatorConfig):
    source: str = setting(MISSING, "sentence to translate", decides="corpus")
    target: str | None = setting(
        None,
        "translation of source; by default the translation that the model generates",
        decides="corpus",
    )
    output: str = setting(
        "alignment.png",
        "image file to write; a JSON file next to it has the weights",
        decides="nothing",
        form=Form(r".+\.png", "the name of a file that ends in .png"),
    )
