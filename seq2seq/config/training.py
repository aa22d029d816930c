"""Settings of training and decoding. ``conf/`` only gives values."""

from dataclasses import dataclass
from pathlib import Path

from seq2seq.config.data import NAME, DataConfig
from seq2seq.config.model import ModelConfig
from seq2seq.config.schema import MISSING, Form, group, setting
from seq2seq.run_folder import RunFolder

DEVICE = Form(r"auto|cpu|cuda(:\d{1,3})?", "auto, cpu, cuda or cuda:N")


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


@dataclass
class ScheduleConfig:
    name: str = setting(
        "constant",
        "decay of the learning rate after warm-up",
        decides="updates",
    )
    warmup_steps: int = setting(
        0, "steps over which the learning rate grows from 0", decides="updates", at_least=0
    )
    decay_from: float = setting(
        0.0,
        "fraction of the run after which linear and cosine decay begin",
        decides="updates",
        at_least=0,
        below=1,
    )


@dataclass
class OptimConfig:
    name: str = setting("adam", "optimizer", decides="parameters")
    learning_rate: float = setting(1e-3, "peak learning rate", decides="updates", above=0)
    betas: list[float] = setting(
        [0.9, 0.999], "decay rates of the moment estimates of Adam", decides="updates"
    )
    rho: float = setting(0.95, "decay rate of Adadelta", decides="updates", at_least=0, below=1)
    epsilon: float = setting(
        1e-8,
        "constant added to the denominator, for numerical stability",
        decides="updates",
        above=0,
    )
    weight_decay: float = setting(0.0, "coefficient of weight decay", decides="updates", at_least=0)
    max_gradient_norm: float | None = setting(
        1.0, "gradients with a larger norm are scaled down to this norm", decides="updates", above=0
    )
    schedule: ScheduleConfig = group(ScheduleConfig)

    def check(self) -> None:
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"optim.betas={self.betas} must be two numbers in [0, 1).")


@dataclass
class TrainerConfig:
    max_steps: int | None = setting(
        None, "maximum number of updates", decides="updates", at_least=1
    )
    max_epochs: int | None = setting(
        None, "maximum number of passes over the training data", decides="updates", at_least=1
    )
    max_minutes: float | None = setting(
        None, "maximum minutes of training", decides="updates", above=0
    )
    batch_tokens: int | None = setting(
        None,
        "maximum tokens in a batch, padding included, in the longer of source and target",
        decides="order",
        at_least=1,
    )
    batch_sentences: int | None = setting(
        64, "maximum sentences in a batch", decides="order", at_least=1
    )
    bucket_batches: int = setting(
        100,
        "number of batches whose sentences are sorted by length together; 1 keeps the random order",
        decides="order",
        at_least=1,
    )
    accumulate_batches: int = setting(
        1,
        "number of batches whose gradients are summed for one update",
        decides="updates",
        at_least=1,
    )
    label_smoothing: float = setting(
        0.0,
        "probability mass spread evenly over the vocabulary",
        decides="updates",
        at_least=0,
        below=1,
    )
    log_every_steps: int = setting(
        50, "steps between lines of the training log", decides="nothing", at_least=1
    )
    validate_every_steps: int = setting(
        500, "steps between validations", decides="scores", at_least=1
    )
    validation_beam_size: int = setting(
        1,
        "beam size for translating the validation set",
        decides="scores",
        at_least=1,
        at_most=1000,
    )
    select: str = setting(
        "bleu",
        "metric that decides which checkpoint is best",
        decides="scores",
    )
    keep_last: int = setting(
        2,
        "number of newest checkpoints to keep, as step_<n>.safetensors; a run continues from the "
        "previous one if the newest is damaged",
        decides="nothing",
        at_least=1,
    )
    keep_best: int = setting(
        1,
        "number of best checkpoints (by trainer.select) to keep, as step_<n>.safetensors",
        decides="nothing",
        at_least=1,
    )
    patience: int | None = setting(
        None,
        "stop after this many validations without a better score",
        decides="updates",
        at_least=1,
    )
    sentences: list[int] = setting(
        [1, 2, 3],
        "validation lines whose alignment is drawn at every validation, counted from 1",
        decides="nothing",
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
    beam_size: int = setting(
        5,
        "number of hypotheses to keep; 1 is greedy search",
        decides="scores",
        at_least=1,
        at_most=1000,
    )
    batch_size: int = setting(
        64,
        "sentences translated together; affects only speed and memory",
        decides="nothing",
        at_least=1,
    )
    length_penalty: float = setting(
        1.0,
        "alpha of Wu et al. 2016; 0 prefers short translations",
        decides="scores",
        at_least=0,
        at_most=10,
    )
    max_length_factor: float = setting(
        2.0, "maximum target tokens per source token", decides="scores", above=0, at_most=1000
    )
    max_length_extra: int = setting(
        10,
        "target tokens allowed in addition to decoding.max_length_factor",
        decides="scores",
        at_least=1,
        at_most=100_000,
    )
    replace_unknown: bool = setting(
        False, "replace an unknown word with the most attended source word", decides="scores"
    )


@dataclass
class PluginConfig:
    """Settings of every script that can use plug-ins."""

    plugins: list[str] = setting(
        [], "modules to import first, which register your own classes", decides="nothing"
    )


@dataclass
class RunConfig(PluginConfig):
    """Settings of every script that computes."""

    device: str = setting(
        "auto",
        "device to compute on; auto prefers a GPU",
        decides="nothing",
        form=DEVICE,
    )
    threads: int | None = setting(
        None,
        "CPU threads; by default the number of cores available to this process",
        decides="nothing",
        at_least=1,
        at_most=1024,
    )


@dataclass
class TrainConfig(RunConfig):
    name: str = setting(MISSING, "folder of the run below runs/", decides="nothing", form=NAME)
    task: str = setting("translation", "task to train", decides="parameters")
    seed: int = setting(1, "random seed", decides="parameters", comparable=True, at_least=0)
    resume: str | None = setting(None, "run folder to continue", decides="nothing")
    precision: str = setting(
        "fp32",
        "precision of matrix products in training; bf16 needs hardware support, fp16 needs a GPU",
        decides="updates",
        choices=("fp32", "bf16", "fp16"),
    )
    metric_tokenizer: str = setting(
        "13a",
        "sacreBLEU tokenizer; zh, ja-mecab or ko-mecab for those languages",
        decides="scores",
        choices=METRIC_TOKENIZERS,
    )
    data: DataConfig = group(DataConfig)
    model: ModelConfig = group(ModelConfig)
    optim: OptimConfig = group(OptimConfig)
    trainer: TrainerConfig = group(TrainerConfig)
    decoding: DecodingConfig = group(DecodingConfig)

    def check(self) -> None:
        if self.resume is not None and not RunFolder(Path(self.resume)).has_checkpoint:
            raise ValueError(
                f"resume={self.resume} has no {RunFolder(Path()).checkpoint('last')}; give the "
                f"folder of a run, such as runs/sample/<date>_<time>. A run that was stopped "
                f"before its first checkpoint has nothing to resume: start it again."
            )
