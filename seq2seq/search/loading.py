"""The model and the two sides that a checkpoint holds, made again.

The file may be a stranger's: what it says is looked at before anything is made of it.
"""

from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from seq2seq.checkpoint import Checkpoint, check_tensors
from seq2seq.config.model import ModelConfig
from seq2seq.config.schema import check_values
from seq2seq.data.codec import Codec, codec_from_state
from seq2seq.model.encoder_decoder import EncoderDecoder, build_model


def sides_of(checkpoint: Checkpoint) -> tuple[Codec, Codec]:
    """The two sides that a checkpoint was trained on.

    Raises:
        ValueError: its vocabularies or tokenizers are none; names the file.
    """
    models = checkpoint.part("tokenizer")

    def side(name: str) -> Codec:
        entries = f"sides.{name}"
        state: dict[str, Any] = {
            "tokenizer": {
                "name": checkpoint.read(f"{entries}.tokenizer.name", str),
                "language": checkpoint.read(f"{entries}.tokenizer.language", str),
                "lowercase": checkpoint.read(f"{entries}.tokenizer.lowercase", bool),
            },
            "vocabulary": checkpoint.read(f"{entries}.vocabulary", list[str]),
        }
        model = models.get(name)
        with checkpoint.blamed():
            # spaCy takes a path for a model, and runs what is there.
            if set("/\\") & set(language := state["tokenizer"]["language"]):
                raise ValueError(f"{entries}.tokenizer.language={language!r} is no language.")
            if model is not None and (model.dtype, model.dim()) != (torch.uint8, 1):
                raise ValueError(f"the tensor 'tokenizer.{name}' is no file's bytes.")
            return codec_from_state(state, None if model is None else bytes(model.tolist()))

    return side("source"), side("target")


class WithoutInitialisation(TorchFunctionMode):
    """Leaves parameters as they are made. On the device ``meta`` they have no values anyway, and
    drawing them there would first import two seconds of symbolic algebra."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        named = kwargs or {}
        if getattr(function, "__module__", None) == "torch.nn.init":
            return args[0] if args else named["tensor"]
        return function(*args, **named)


def build_stored_model(checkpoint: Checkpoint, sizes: tuple[int, int]) -> EncoderDecoder:
    """The model whose parameters a checkpoint holds, for vocabularies of these two sizes.

    Raises:
        ValueError: its settings and its parameters do not belong together; names the file.
    """
    config = checkpoint.read("config.model", ModelConfig)
    parameters = checkpoint.part("model")
    with checkpoint.blamed():
        check_values(config, "model.")
        widest = max((size for tensor in parameters.values() for size in tensor.shape), default=0)
        # First without memory: a file of a kilobyte may ask for a model of a terabyte, or, by
        # these two, for one without end.
        if config.encoder_layers > len(parameters) or config.attention.heads > widest:
            raise ValueError(
                f"model.encoder_layers={config.encoder_layers}, model.attention.heads="
                f"{config.attention.heads} are more than it has parameters for."
            )
        try:
            with torch.device("meta"), WithoutInitialisation():
                # Uniform, because other schemes loop over parts of matrices.
                outline = build_model(replace(config, initialisation="uniform"), *sizes)
        # Sizes that no tensor can have: torch has an error of its own for each way to ask.
        except (RuntimeError, TypeError, OverflowError) as error:
            raise ValueError("its settings describe a model that cannot be.") from error
        check_tensors(parameters, outline.state_dict())
    model = build_model(config, *sizes)
    model.load_state_dict(parameters)
    return model
