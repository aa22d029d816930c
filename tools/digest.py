"""Train for 200 updates and print a digest of the parameters.

    python tools/digest.py [key=value ...]

Run it before and after a change: equal digests mean that training is bit-identical. The arguments
are those of scripts/train.py. Another machine, torch version or number of threads may give another
digest.
"""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from safetensors import safe_open

TRAIN = Path(__file__).resolve().parent.parent / "scripts" / "train.py"
UPDATES = ("trainer.max_epochs=null", "trainer.max_minutes=null", "trainer.max_steps=200")


def tensors_digest(checkpoint: Path, prefix: str) -> str:
    """Return the SHA-256 of the names and bytes of all tensors whose names start with a prefix."""
    digest = hashlib.sha256()
    with safe_open(checkpoint, framework="numpy") as tensors:
        for name in sorted(tensors.keys()):
            if name.startswith(prefix):
                digest.update(name.encode())
                digest.update(tensors.get_tensor(name).tobytes())
    return digest.hexdigest()


def main(overrides: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        # The user's settings come last, so that they may ask for fewer updates.
        command = [sys.executable, str(TRAIN), f"hydra.run.dir={folder}/run", *UPDATES, *overrides]
        status = subprocess.run(command).returncode
        if status == 0:
            checkpoint = Path(folder, "run", "checkpoints", "last.safetensors")
            for kind in ("model", "optimizer"):
                print(f"{kind:<9}  {tensors_digest(checkpoint, kind + '.')}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
