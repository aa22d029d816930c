"""The precision of matrix products: float32, bfloat16 or float16."""

import time

import torch

from seq2seq.device import processor


class Precision:
    """The precision in which training computes matrix products.

    Parameters, their gradients, states, softmax and loss are always in float32.
    """

    def __init__(self, name: str, device: torch.device):
        """Choose ``fp32``, ``bf16`` or ``fp16``; ``select_precision`` checks the device."""
        self.device = device
        self.dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
        # Small gradients would be 0 in fp16, whose smallest number is 6e-8.
        self.scaler = torch.amp.GradScaler(device.type, enabled=name == "fp16")

    def autocast(self) -> torch.autocast:
        """Return a context that computes matrix products in this precision."""
        lower = self.dtype != torch.float32
        return torch.autocast(self.device.type, self.dtype if lower else None, enabled=lower)

    @property
    def scaling(self) -> tuple[float, int]:
        """Scale of the gradients, and number of updates since it last changed."""
        state = self.scaler.state_dict()
        return (state["scale"], state["_growth_tracker"]) if state else (1.0, 0)

    @scaling.setter
    def scaling(self, scaling: tuple[float, int]) -> None:
        unscaled = (1.0, 0)  # stored by a run without scaling
        if self.scaler.is_enabled() and scaling != unscaled:
            known = dict(zip(("scale", "_growth_tracker"), scaling, strict=True))
            self.scaler.load_state_dict(self.scaler.state_dict() | known)


def select_precision(name: str, device: torch.device) -> Precision:
    """Return the precision that ``precision=`` names, after trying it on the device.

    Raises:
        ValueError: the device does not support it, or only emulates it slowly.
    """
    precision = Precision(name, device)
    if name == "fp32":
        return precision
    refusal = f"precision={name} cannot be used on device={device}"
    if name == "fp16" and device.type == "cpu":
        raise ValueError(
            f"{refusal}: it needs a GPU; use precision=fp32, or bf16 if the processor supports it."
        )
    try:
        layer = torch.nn.GRU(8, 8).to(device)
        with precision.autocast():
            layer(torch.ones(2, 2, 8, device=device))[0].sum().backward()
    except RuntimeError as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"{refusal} ({reason}); use precision=fp32.") from error
    # A processor without bfloat16 instructions emulates them, which is slower than float32.
    ratio = _product_seconds(precision.dtype, device) / _product_seconds(torch.float32, device)
    if device.type == "cpu" and ratio > 1.5:
        raise ValueError(
            f"{refusal}: {processor()} has no instructions for it, matrix products take "
            f"{ratio:.0f} times as long as in float32; use precision=fp32."
        )
    return precision


def _product_seconds(dtype: torch.dtype, device: torch.device) -> float:
    """Time one matrix product: the minimum of eight runs, which other load affects least."""
    left, right = (torch.ones(256, 256, dtype=dtype, device=device) for _ in range(2))
    seconds = []
    for _ in range(8):
        started = time.perf_counter()
        (left @ right)[0, 0].item()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
