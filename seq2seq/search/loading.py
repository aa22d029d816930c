"""Builds a translator from a checkpoint.

The file may come from a stranger: its contents are checked before anything is built from them.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from seq2seq.checkpoint import Checkpoint, check_tensors, load_checkpoint
from seq2seq.config.model import ModelConfig
from seq2seq.config.plugins import require_plugins
from seq2seq.config.schema import check_values
from seq2seq.config.scripts import TranslatorConfig
from seq2seq.config.training import DecodingConfig
from seq2seq.data.codec import Codec, codec_from_state
from seq2seq.device import select_device, set_threads
from seq2seq.fast.accelerate import accelerate
from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.search.translator import Translator


def open_translator(config: TranslatorConfig) -> tuple[Translator, Checkpoint]:
    """Load the translator that a script asks for, on its device and with its threads.

    Raises:
        ValueError, OSError: the device or the file does not exist; see ``load_translator``.
    """
    set_threads(config.threads)
    device = select_device(config.device)
    return load_translator(Path(config.checkpoint), config.decoding, device)


def load_translator(
    path: Path, config: DecodingConfig, device: torch.device
) -> tuple[Translator, Checkpoint]:
    """Load a translator and the checkpoint that holds it (without its optimizer).

    Raises:
        ValueError, OSError: as ``load_checkpoint``, or the file does not hold a model. Names the
            file.
    """
    checkpoint = load_checkpoint(path, sections=("model", "tokenizer"))
    require_plugins(
        checkpoint.read("config", dict).get("plugins", []), f"checkpoint={checkpoint.path}"
    )
    source, target = load_codecs(checkpoint)
    model = load_model(checkpoint, len(source.vocabulary), len(target.vocabulary))
    return Translator(model.to(device).eval(), source, target, config), checkpoint


def load_codecs(checkpoint: Checkpoint) -> tuple[Codec, Codec]:
    """Load the codecs of the source and the target language.

    Raises:
        ValueError: a vocabulary or a tokenizer is not valid; names the file.
    """
    models = checkpoint.section("tokenizer")

    def load(name: str) -> Codec:
        entry = f"sides.{name}"
        state: dict[str, Any] = {
            "tokenizer": {
                "name": checkpoint.read(f"{entry}.tokenizer.name", str),
                "language": checkpoint.read(f"{entry}.tokenizer.language", str),
                "lowercase": checkpoint.read(f"{entry}.tokenizer.lowercase", bool),
            },
            "vocabulary": checkpoint.read(f"{entry}.vocabulary", list[str]),
        }
        model = models.get(name)
        with checkpoint.naming_file():
            # spaCy would take a path for a model, and execute the code there.
            if set("/\\") & set(language := state["tokenizer"]["language"]):
                raise ValueError(f"{entry}.tokenizer.language={language!r} is not a language.")
            if model is not None and (model.dtype, model.dim()) != (torch.uint8, 1):
                raise ValueError(
                    f"the tensor 'tokenizer.{name}' does not hold the bytes of a file."
                )
            return codec_from_state(state, None if model is None else bytes(model.tolist()))

    return load("source"), load("target")


def load_model(
    checkpoint: Checkpoint, source_vocabulary_size: int, target_vocabulary_size: int
) -> EncoderDecoder:
    """Build the model of a checkpoint, accelerated, with its parameters.

    Raises:
        ValueError: its settings and its parameters do not match; names the file.
    """
    sizes = source_vocabulary_size, target_vocabulary_size
    config = checkpoint.read("config.model", ModelConfig)
    parameters = checkpoint.section("model")
    with checkpoint.naming_file():
        check_values(config, "model.")
        check_tensors(parameters, _stored_outline(config, parameters, sizes).state_dict())
    model = build_model(config, *sizes)
    model.load_state_dict(parameters)
    return accelerate(model)


def build_outline(config: ModelConfig, source_size: int, target_size: int) -> EncoderDecoder:
    """Build a model for vocabularies of these sizes; its parameters have shapes, but no values.

    Raises:
        ValueError: a setting has an unknown value, or two settings contradict each other.
        RuntimeError, TypeError, OverflowError: a size is too large for a tensor.
    """
    with torch.device("meta"), WithoutInitialization():
        # Uniform, because other schemes loop over blocks of matrices.
        return build_model(replace(config, initialization="uniform"), source_size, target_size)


def _stored_outline(
    config: ModelConfig, parameters: dict[str, torch.Tensor], sizes: tuple[int, int]
) -> EncoderDecoder:
    """Build the outline of a stored model: a file of a kilobyte may describe one of a terabyte.

    Raises:
        ValueError: there is no such model.
    """
    widest = max((size for tensor in parameters.values() for size in tensor.shape), default=0)
    # Even without allocating memory, building too many layers or heads would take forever.
    if config.encoder_layers > len(parameters) or config.attention.heads > widest:
        raise ValueError(
            f"model.encoder_layers={config.encoder_layers}, model.attention.heads="
            f"{config.attention.heads} are more than it has parameters for."
        )
    try:
        return build_outline(config, *sizes)
    # Sizes that no tensor can have; torch raises different errors for them.
    except (RuntimeError, TypeError, OverflowError) as error:
        raise ValueError("its settings describe an impossible model.") from error


class WithoutInitialization(TorchFunctionMode):
    """Skips ``torch.nn.init``.

    On the device ``meta`` parameters have no values, and drawing them there would first import two
    seconds of symbolic algebra.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        named = kwargs or {}
        if getattr(function, "__module__", None) == "torch.nn.init":
            return args[0] if args else named["tensor"]
        return function(*args, **named)
