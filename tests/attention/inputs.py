"""Random inputs and parameters for the tests of this folder."""

import torch


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def mask_of(lengths, size):
    """True at the first ``lengths`` positions of each row."""
    return torch.arange(size) < torch.tensor(lengths)[..., None]


def lively(module):
    """With parameters of about 1: tanh and softmax are then far from linear."""
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module.double()
