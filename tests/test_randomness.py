import json
import random

import numpy as np
import pytest
import torch

from seq2seq.randomness import random_state, restore_random_state, seed_everything


def draw():
    """Draw numbers from every generator; Gaussian ones, too, which come in pairs."""
    return [
        random.random(),
        random.gauss(0, 1),
        *np.random.rand(2).tolist(),
        np.random.randn(),
        *torch.rand(3).tolist(),
        torch.nn.functional.dropout(torch.ones(20)).tolist(),
    ]


@pytest.mark.parametrize("num_draws", [0, 1, 3])
def test_restored_generators_draw_the_same_numbers(num_draws):
    seed_everything(5)
    for _ in range(num_draws):
        draw()
    tensors, plain = random_state()
    expected = [draw() for _ in range(3)]  # which must not change the state that was returned
    seed_everything(6)
    # Through JSON, as in a checkpoint.
    restore_random_state(tensors, json.loads(json.dumps(plain)))
    assert [draw() for _ in range(3)] == expected


@pytest.mark.guarantee("The same seed gives the same run.")
@pytest.mark.parametrize("seed", [1, 2**40 + 3])  # NumPy itself takes no seed above 2**32
def test_seed_determines_every_number(seed):
    seed_everything(seed)
    first = draw()
    seed_everything(seed)
    assert draw() == first
    seed_everything(seed + 1)
    assert all(a != b for a, b in zip(draw(), first, strict=True))
