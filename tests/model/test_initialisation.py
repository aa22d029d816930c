import itertools
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from seq2seq.config.model import AttentionConfig, ModelConfig, OutputConfig
from seq2seq.model.cells import CELLS
from seq2seq.model.encoder_decoder import build_model

# Large enough for the spread of a matrix to be known to a few per cent.
LARGE = ModelConfig(
    embedding_size=60,
    encoder_size=40,
    encoder_layers=2,
    decoder_size=50,
    attention=AttentionConfig(size=70),
    output=OutputConfig(size=60),
)


def initialised(scheme, cell="gru", tie="none"):
    """Parameters by name, freshly initialised."""
    torch.manual_seed(1)
    config = replace(LARGE, initialisation=scheme, cell=cell, tie_embeddings=tie)
    return dict(build_model(config, 200, 200).named_parameters())


def is_recurrent(name):
    return "weight_hh" in name or ("cell" in name and name.endswith("weight"))


@pytest.mark.parametrize("cell", CELLS)
def test_uniform_means_everything_between_minus_and_plus_a_tenth(cell):
    for parameter in initialised("uniform", cell).values():
        assert -0.1 <= parameter.min() < 0 < parameter.max() <= 0.1
        if parameter.numel() > 1000:
            assert parameter.min() < -0.09
            assert parameter.max() > 0.09
            assert parameter.std().item() == pytest.approx(0.2 / 12**0.5, rel=0.1)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("scheme", ["paper", "xavier"])
def test_each_recurrent_matrix_is_a_rotation_of_its_own(scheme, cell):
    parameters = initialised(scheme, cell)
    names = [name for name in parameters if is_recurrent(name)]
    assert {name.partition(".")[0] for name in names} == {"encoder", "decoder"}
    num_gates = 0
    for name in names:
        size = parameters[name].shape[1]
        gates = parameters[name].detach().split(size)
        num_gates += len(gates)
        for gate in gates:
            assert_close(gate @ gate.T, torch.eye(size), rtol=0, atol=1e-5)
        for one, other in itertools.combinations(gates, 2):
            assert not torch.allclose(one, other, atol=0.01)
    # Two layers of two directions and the decoder.
    assert num_gates == 5 * CELLS[cell].num_gates


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("scheme", ["paper", "xavier"])
def test_biases_start_at_zero(scheme, cell):
    biases = [p for p in initialised(scheme, cell).values() if p.dim() == 1]
    assert biases
    assert all((bias == 0).all() for bias in biases)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("tie", ["none", "target", "all"])
def test_the_papers_spreads_are_those_of_appendix_b1(cell, tie):
    """v_a is 0; W_a and U_a have a standard deviation of 0.001, all other matrices of 0.01."""
    parameters = initialised("paper", cell, tie)
    score = "decoder.attention.score."
    assert (parameters.pop(f"{score}energy_layer.weight") == 0).all()
    for name in ("query_layer", "key_layer"):
        spread = parameters.pop(f"{score}{name}.weight").std().item()
        assert spread == pytest.approx(0.001, rel=0.1)
    for name, parameter in parameters.items():
        if parameter.dim() == 2 and not is_recurrent(name):
            assert parameter.std().item() == pytest.approx(0.01, rel=0.1), name
            assert parameter.mean().item() == pytest.approx(0, abs=0.001), name


@pytest.mark.parametrize("tie", ["none", "target", "all"])
def test_xavier_keeps_matrices_in_glorots_range_and_embeddings_at_unit_length(tie):
    for name, parameter in initialised("xavier", tie=tie).items():
        if parameter.dim() < 2 or is_recurrent(name):
            continue
        if "embedding" in name:
            assert parameter.square().sum(dim=1).mean().item() == pytest.approx(1, rel=0.1)
        else:
            bound = (6 / sum(parameter.shape)) ** 0.5  # Glorot and Bengio 2010, eq. 16
            assert parameter.abs().max() <= bound, name
            assert parameter.std().item() == pytest.approx(bound / 3**0.5, rel=0.15), name


def test_the_same_seed_gives_the_same_model():
    for scheme in ("uniform", "paper", "xavier"):
        first, second = initialised(scheme), initialised(scheme)
        assert all(torch.equal(first[name], second[name]) for name in first)
