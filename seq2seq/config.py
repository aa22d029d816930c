"""Every setting: its type, meaning, unit, range and default. ``conf/`` only gives values."""

from dataclasses import dataclass
from pathlib import Path

from seq2seq.schema import MISSING, Form, part, setting

# Of a folder, so that it needs no quotes in an override and leads nowhere else.
NAME = Form(r"\w[\w.-]{0,99}", "a name of up to 100 letters, digits, . _ and -, no path")
DEVICE = Form(r"auto|cpu|cuda(:\d{1,3})?", "auto, cpu, cuda or cuda:N")
LANGUAGE = Form(r"[A-Za-z][\w-]{0,29}", "the code of a language, such as de or zh-Hans")
METRIC_TOKENIZERS = (
    "13a",
    "intl",
    "char",
    "zh",
    "ja-mecab",
    "ko-mecab",
    "spm",
    "flores101",
    "flores200",
    "spBLEU-1K",
    "none",
)


def checkpoint_path(run_dir: Path, name: str) -> Path:
    """Where a run keeps its ``last`` state, from which it can go on, and its ``best``."""
    return run_dir / "checkpoints" / f"{name}.safetensors"


@dataclass
class SplitConfig:
    """Where one part of a corpus lies, below ``data.root``; ``.gz`` is read as it is."""

    source: str = setting(MISSING, "file of source sentences, or a .tsv file with a header")
    target: str = setting(MISSING, "file of target sentences, or the same .tsv file")
    alignment: str | None = setting(None, "file of true word alignments, Pharaoh format")


@dataclass
class TokenizerConfig:
    name: str = setting(
        "moses",
        "how sentences are split",
        choices=(
            "moses",
            "sentencepiece",
            "whitespace",
            "characters",
            "basic_english",
            "toktok",
            "spacy",
            "revtok",
        ),
    )
    lowercase: bool = setting(False, "lowercase first; scores are then not comparable to others")
    model_type: str = setting("bpe", "kind of SentencePiece model", choices=("bpe", "unigram"))
    vocabulary_size: int = setting(8000, "SentencePiece pieces", at_least=10)
    joint: bool = setting(True, "one SentencePiece model for both languages")


@dataclass
class VocabularyConfig:
    max_size: int | None = setting(
        None, "most tokens kept a side, special ones not counted", at_least=1
    )
    min_frequency: int = setting(1, "occurrences below which a token is unknown", at_least=1)
    joint: bool = setting(False, "one vocabulary for both languages")


@dataclass
class DataConfig:
    name: str = setting(
        MISSING, "names run folders; `multi30k` also says what to download", form=NAME
    )
    root: str = setting(MISSING, "folder of the files")
    url: str | None = setting(None, "mirror to download a named corpus from")
    prepared: str = setting(MISSING, "folder in which token ids are kept for the next run")
    source_language: str = setting(MISSING, "code of the language translated from", form=LANGUAGE)
    target_language: str = setting(MISSING, "code of the language translated into", form=LANGUAGE)
    source_column: str = setting("source", "column of a .tsv file")
    target_column: str = setting("target", "column of a .tsv file")
    train: SplitConfig = part(SplitConfig)
    valid: SplitConfig = part(SplitConfig)
    test: SplitConfig = part(SplitConfig)
    test_set: str = setting("test", "which test part, where a corpus has several")
    max_tokens: int = setting(
        100,
        "longest training sentence, in tokens of either side; longer "
        "pairs are left out, of the training part only",
        at_least=1,
    )
    tokenizer: TokenizerConfig = part(TokenizerConfig)
    vocabulary: VocabularyConfig = part(VocabularyConfig)


@dataclass
class AttentionConfig:
    name: str = setting(
        "additive",
        "scoring function; none: no attention, one context for all positions",
        choices=(
            "additive",
            "normed_additive",
            "concat",
            "dot",
            "scaled_dot",
            "bilinear",
            "cosine",
            "gaussian",
            "location",
            "average",
            "none",
        ),
    )
    size: int = setting(256, "units of a hidden layer, where there is one", at_least=1)
    weighing: str = setting(
        "soft",
        "which source positions get weights: all, a window around the diagonal (local_m) or around "
        "a predicted position (local_p), one drawn at random (hard), the next one that stops a "
        "search from left to right (monotonic)",
        choices=("soft", "local_m", "local_p", "hard", "monotonic"),
    )
    normalisation: str = setting(
        "softmax",
        "how energies become weights, of soft and local attention",
        choices=("softmax", "sparsemax", "entmax15"),
    )
    heads: int = setting(1, "attentions side by side", at_least=1)
    coverage: bool = setting(False, "let the sum of the weights given so far enter the score")
    window: int = setting(10, "of local attention: positions to either side", at_least=1)
    temperature: float = setting(1.0, "of hard attention's gradient", above=0)
    noise: float = setting(1.0, "added to monotonic attention's energies in training", at_least=0)
    max_positions: int = setting(100, "source positions that location can tell apart", at_least=1)

    def check(self) -> None:
        blind = self.name in ("location", "average", "none")
        if self.name == "none" and (self.weighing, self.normalisation) != ("soft", "softmax"):
            raise ValueError(
                f"model.attention.name=none weighs nothing: leave out model.attention.weighing="
                f"{self.weighing}, model.attention.normalisation={self.normalisation}."
            )
        if self.coverage and (blind or self.heads > 1):
            raise ValueError(
                f"model.attention.coverage=true needs one head and a scoring function that reads "
                f"keys, not model.attention.name={self.name}, model.attention.heads={self.heads}."
            )
        if self.heads > 1 and (self.name == "none" or self.weighing not in ("soft", "hard")):
            raise ValueError(
                f"model.attention.heads={self.heads} goes with model.attention.weighing=soft or "
                f"hard and some attention, not with weighing={self.weighing}, name={self.name}."
            )
        if self.normalisation != "softmax" and self.weighing in ("hard", "monotonic"):
            raise ValueError(
                f"model.attention.normalisation={self.normalisation} has no meaning with "
                f"model.attention.weighing={self.weighing}; leave it at softmax."
            )


@dataclass
class OutputConfig:
    activation: str = setting("maxout", "of the deep output", choices=("maxout", "tanh"))
    size: int = setting(256, "units of the deep output", at_least=1)
    state: str = setting(
        "current",
        "decoder state that it reads; the paper: previous",
        choices=("current", "previous"),
    )


@dataclass
class ModelConfig:
    cell: str = setting(
        "gru",
        "recurrent cell, encoder and decoder; paper_gru applies the reset gate before the product",
        choices=("gru", "lstm", "paper_gru"),
    )
    embedding_size: int = setting(256, "units of a word embedding", at_least=1)
    encoder_size: int = setting(256, "units of an encoder layer, in each direction", at_least=1)
    encoder_layers: int = setting(1, "encoder layers", at_least=1)
    decoder_size: int = setting(512, "units of the decoder state", at_least=1)
    dropout: float = setting(0.2, "probability that a unit is zeroed", at_least=0, at_most=0.99)
    tie_embeddings: str = setting(
        "none",
        "share the output layer with the target embedding "
        "(target), and both with the source embedding (all)",
        choices=("none", "target", "all"),
    )
    initialisation: str = setting(
        "uniform", "how parameters start", choices=("uniform", "paper", "xavier")
    )
    attention: AttentionConfig = part(AttentionConfig)
    output: OutputConfig = part(OutputConfig)

    def check(self) -> None:
        if self.tie_embeddings != "none" and self.output.size != self.embedding_size:
            raise ValueError(
                f"model.tie_embeddings={self.tie_embeddings} shares a matrix between embedding "
                f"and output, so model.output.size={self.output.size} must equal "
                f"model.embedding_size={self.embedding_size}."
            )
        attention, annotation_size = self.attention, 2 * self.encoder_size
        same = ("dot", "scaled_dot", "cosine", "gaussian")
        if attention.heads > 1:
            if annotation_size % attention.heads:
                raise ValueError(
                    f"model.attention.heads={attention.heads} must divide 2 * "
                    f"model.encoder_size={annotation_size}."
                )
        elif attention.name in same and self.decoder_size != annotation_size:
            raise ValueError(
                f"model.attention.name={attention.name} compares state and annotation unit by "
                f"unit, so model.decoder_size={self.decoder_size} must equal 2 * "
                f"model.encoder_size={annotation_size}; bilinear needs no such equality."
            )


@dataclass
class ScheduleConfig:
    name: str = setting(
        "constant",
        "how the learning rate falls after the warm-up",
        choices=("constant", "linear", "cosine", "inverse_sqrt"),
    )
    warmup_steps: int = setting(0, "steps over which the rate grows from 0", at_least=0)
    decay_from: float = setting(
        0.0, "fraction of the run after which linear and cosine begin to fall", at_least=0, below=1
    )


@dataclass
class OptimConfig:
    name: str = setting("adam", "optimiser", choices=("adam", "adamw", "adadelta"))
    learning_rate: float = setting(1e-3, "its highest learning rate", above=0)
    betas: list[float] = setting([0.9, 0.999], "Adam's decay rates")
    rho: float = setting(0.95, "Adadelta's decay rate", at_least=0, below=1)
    epsilon: float = setting(1e-8, "added to the denominator", above=0)
    weight_decay: float = setting(0.0, "pull towards 0", at_least=0)
    max_gradient_norm: float | None = setting(
        1.0, "norm above which gradients are scaled down", above=0
    )
    schedule: ScheduleConfig = part(ScheduleConfig)

    def check(self) -> None:
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"optim.betas={self.betas} must be two numbers in [0, 1).")


@dataclass
class TrainerConfig:
    max_steps: int | None = setting(None, "updates after which to stop", at_least=1)
    max_epochs: int | None = setting(None, "passes over the data after which to stop", at_least=1)
    max_minutes: float | None = setting(None, "minutes of training after which to stop", above=0)
    batch_tokens: int | None = setting(
        None, "most tokens in a batch, padding included, of the longer side", at_least=1
    )
    batch_sentences: int | None = setting(64, "most sentences in a batch", at_least=1)
    bucket_batches: int = setting(
        100,
        "batches whose sentences are sorted by length together; 1 leaves them in random order",
        at_least=1,
    )
    accumulate_batches: int = setting(1, "batches whose gradients make one step", at_least=1)
    label_smoothing: float = setting(
        0.0, "probability given to all words alike", at_least=0, below=1
    )
    log_every_steps: int = setting(50, "steps between lines of the training log", at_least=1)
    validate_every_steps: int = setting(500, "steps between validations", at_least=1)
    validation_beam_size: int = setting(
        1, "beam of the translations made while training", at_least=1, at_most=1000
    )
    select: str = setting(
        "bleu", "score that decides which checkpoint is best", choices=("bleu", "loss")
    )
    keep_last: int = setting(
        2,
        "newest checkpoints kept, as step_<n>.safetensors; a run whose newest is damaged goes on "
        "from the one before",
        at_least=1,
    )
    keep_best: int = setting(
        1, "checkpoints kept, as step_<n>.safetensors, that are best by select", at_least=1
    )
    patience: int | None = setting(
        None, "validations without a better score after which to stop", at_least=1
    )
    sentences: list[int] = setting(
        [1, 2, 3],
        "lines of the validation part whose alignment is "
        "drawn at every validation, the first being 1",
    )

    def check(self) -> None:
        if self.max_steps is None and self.max_epochs is None and self.max_minutes is None:
            raise ValueError(
                "trainer has no end: set trainer.max_steps, trainer.max_epochs or "
                "trainer.max_minutes."
            )
        if self.batch_tokens is None and self.batch_sentences is None:
            raise ValueError(
                "trainer has no batch size: set trainer.batch_tokens or trainer.batch_sentences."
            )
        if any(line < 1 for line in self.sentences):
            raise ValueError(f"trainer.sentences={self.sentences} counts lines from 1.")


@dataclass
class DecodingConfig:
    beam_size: int = setting(5, "hypotheses kept; 1 is greedy", at_least=1, at_most=1000)
    batch_size: int = setting(64, "sentences translated together; changes speed only", at_least=1)
    length_penalty: float = setting(
        1.0, "alpha of Wu et al. 2016; 0 prefers short translations", at_least=0, at_most=10
    )
    max_length_factor: float = setting(
        2.0, "most target tokens for each source token", above=0, at_most=1000
    )
    max_length_extra: int = setting(
        10, "target tokens allowed beyond that", at_least=1, at_most=100_000
    )
    replace_unknown: bool = setting(False, "write the most attended source word for an unknown one")


@dataclass
class RunConfig:
    """What every script has."""

    device: str = setting(
        "auto",
        "where to compute; auto prefers a GPU",
        form=DEVICE,
    )
    threads: int | None = setting(
        None, "CPU threads; by default the cores this process may use", at_least=1, at_most=1024
    )


@dataclass
class PrepareConfig:
    data: DataConfig = part(DataConfig)


@dataclass
class TrainConfig(RunConfig):
    name: str = setting(MISSING, "folder of the run, below runs/", form=NAME)
    seed: int = setting(1, "of every random number", at_least=0)
    resume: str | None = setting(None, "run folder to continue")
    precision: str = setting(
        "fp32",
        "of the matrix products in training; bf16 needs a CPU or GPU that has it, fp16 a GPU",
        choices=("fp32", "bf16", "fp16"),
    )
    metric_tokenizer: str = setting(
        "13a",
        "sacreBLEU's tokeniser; zh, ja-mecab or ko-mecab for those languages",
        choices=METRIC_TOKENIZERS,
    )
    data: DataConfig = part(DataConfig)
    model: ModelConfig = part(ModelConfig)
    optim: OptimConfig = part(OptimConfig)
    trainer: TrainerConfig = part(TrainerConfig)
    decoding: DecodingConfig = part(DecodingConfig)

    def check(self) -> None:
        # Any, because one before the last serves where the last is damaged or missing.
        if self.resume is not None and not any(
            checkpoint_path(Path(self.resume), "last").parent.glob("*.safetensors")
        ):
            raise ValueError(
                f"resume={self.resume} holds no {checkpoint_path(Path(), 'last')}; give the "
                f"folder of a run, such as runs/sample/<date>_<time>. A run that was stopped "
                f"before its first checkpoint has nothing to resume: start it again."
            )


@dataclass
class CompareConfig(TrainConfig):
    """Of one of several models that are trained under equal conditions."""

    folder: str | None = setting(None, "of an earlier comparison, to go on with it")
    label: str | None = setting(
        None, "what tables and pictures call the model; by default the choice of model/attention"
    )
    lines: list[int] = setting(
        [1], "lines of the test part whose alignment is drawn for each model, the first being 1"
    )

    def check(self) -> None:
        super().check()
        if any(line < 1 for line in self.lines):
            raise ValueError(f"lines={self.lines} counts lines from 1.")
        if self.folder is not None and not Path(self.folder).is_dir():
            raise ValueError(f"folder={self.folder} is no folder; leave it out to begin a new one.")


@dataclass
class CompareLengthsConfig(CompareConfig):
    edges: list[int] = setting(
        [5, 10, 15, 20, 25], "longest source sentence of each group, in words; one more is longer"
    )
    long: int = setting(20, "words above which a source sentence is called long", at_least=1)

    def check(self) -> None:
        super().check()
        if not self.edges or self.edges != sorted({*self.edges}) or self.edges[0] < 1:
            raise ValueError(f"edges={self.edges} must be numbers of words that grow.")


@dataclass
class TranslatorConfig(RunConfig):
    """What every script has that translates."""

    checkpoint: str = setting(MISSING, "file made by training")
    decoding: DecodingConfig = part(DecodingConfig)


@dataclass
class EvaluateConfig(TranslatorConfig):
    split: str = setting("test", "part of the corpus to score", choices=("test", "valid"))
    source: str | None = setting(None, "file of source sentences, instead of split")
    target: str | None = setting(None, "file of reference translations, instead of split")
    alignment: str | None = setting(None, "file of true word alignments of these")
    output: str | None = setting(
        None, "folder for what is written; by default one beside the checkpoint"
    )
    metric_tokenizer: str = setting("13a", "sacreBLEU's tokeniser", choices=METRIC_TOKENIZERS)

    def check(self) -> None:
        if (self.source is None) != (self.target is None):
            raise ValueError(
                f"source={self.source} and target={self.target} go together: give both files, or "
                f"neither and the corpus of the checkpoint is scored."
            )
        if self.alignment is not None and self.source is None:
            raise ValueError(
                f"alignment={self.alignment} belongs to source= and target=; give these too. The "
                f"corpus of the checkpoint has alignments of its own."
            )


@dataclass
class TranslateConfig(TranslatorConfig):
    num_best: int = setting(
        1,
        "translations of each sentence; above 1, lines of number, "
        "translation and score, separated by tabs",
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
    checkpoints: list[str] = setting([], "files made by training, of one model")
    run: str | None = setting(None, "instead: run folder, whose newest checkpoints to take")
    last: int = setting(2, "how many of run; trainer.keep_last says how many it keeps", at_least=1)
    output: str = setting(MISSING, "file to write, a checkpoint for translation")

    def check(self) -> None:
        if bool(self.checkpoints) == (self.run is not None):
            raise ValueError(
                f"checkpoints={self.checkpoints} and run={self.run or 'null'}: give one of them, a "
                f"list of files ('checkpoints=[a.safetensors,b.safetensors]') or a run's folder."
            )


@dataclass
class ReproduceConfig:
    run: str = setting(MISSING, "folder of the run to train again")
    root: str | None = setting(
        None, "folder of the files of its corpus; by default where they were"
    )
    device: str | None = setting(
        None, "where to compute; by default the device of the run", form=DEVICE
    )
    threads: int | None = setting(
        None, "CPU threads; by default as many as the run had", at_least=1, at_most=1024
    )


@dataclass
class BenchmarkConfig(RunConfig):
    parts: list[str] = setting(
        ["training", "peak", "attention", "decoding", "loading", "memory"],
        "what to measure; memory, which takes a process for each figure, goes with the others",
        choices=("training", "peak", "attention", "decoding", "loading", "memory"),
    )
    repeats: int = setting(10, "turns that medians are taken of", at_least=1)
    updates: int = setting(4, "updates of the model that make a turn of training", at_least=1)
    sentences: int = setting(256, "sentences that make a turn of decoding", at_least=1)
    lengths: list[int] = setting(
        [25, 50, 100],
        "source and target lengths of attention, the first being the usual one",
        at_least=1,
    )
    small_pairs: int = setting(30_000, "sentence pairs of the small corpus to load", at_least=1)
    large_pairs: int = setting(
        1_000_000, "those of the large one, 140 MB for a million, in the run folder", at_least=1
    )
    seed: int = setting(1, "of every random number", at_least=0)
    model: ModelConfig = part(ModelConfig)

    def check(self) -> None:
        if not {*self.parts} - {"memory"}:
            raise ValueError(
                f"parts={self.parts} names nothing to measure; --help lists the parts."
            )
        if not self.lengths:
            raise ValueError(f"lengths={self.lengths} must hold one length at least.")
        if self.small_pairs == self.large_pairs:
            raise ValueError(
                f"small_pairs={self.small_pairs} and large_pairs={self.large_pairs} are compared, "
                f"so they must differ."
            )


@dataclass
class PlotAlignmentConfig(TranslatorConfig):
    source: str = setting(MISSING, "sentence to translate")
    target: str | None = setting(None, "its translation; by default the model's own")
    output: str = setting(
        "alignment.png",
        "picture to write; the weights go beside it",
        form=Form(r".+\.png", "the name of a file that ends in .png"),
    )
