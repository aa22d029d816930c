import itertools
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from seq2seq.config.model import AttentionConfig, ModelConfig, OutputConfig
from seq2seq.model.build import INITIALIZATIONS, Role, build_model, parameter_roles
from seq2seq.model.cells import CELLS

# Large enough that the spread of a matrix is known to a few per cent.
LARGE = ModelConfig(
    embedding_size=60,
    encoder_size=40,
    encoder_layers=2,
    decoder_size=50,
    attention=AttentionConfig(size=70),
    output=OutputConfig(size=60),
)
every_cell = pytest.mark.parametrize("cell", CELLS)
every_tie = pytest.mark.parametrize("tie", ["none", "target", "all"])


def build(scheme, cell="gru", tie="none"):
    torch.manual_seed(1)
    config = replace(LARGE, initialization=scheme, cell=cell, tie_embeddings=tie)
    return build_model(config, 200, 200)


def by_role(model):
    """Lists of (name, parameter)."""
    roles, found = parameter_roles(model), {role: [] for role in Role}
    for name, parameter in model.named_parameters():
        found[roles[parameter]].append((name, parameter.detach()))
    return found


@every_cell
def test_uniform_draws_every_parameter_from_minus_to_plus_a_tenth(cell):
    for parameter in build("uniform", cell).parameters():
        assert -0.1 <= parameter.min() < 0 < parameter.max() <= 0.1
        if parameter.numel() > 1000:
            assert parameter.min() < -0.09
            assert parameter.max() > 0.09
            assert parameter.std().item() == pytest.approx(0.2 / 12**0.5, rel=0.1)


@every_cell
@pytest.mark.parametrize("scheme", ["paper", "xavier"])
def test_recurrent_matrices_are_orthogonal_and_biases_zero(scheme, cell):
    found = by_role(build(scheme, cell))
    assert {name.partition(".")[0] for name, _ in found[Role.RECURRENT]} == {"encoder", "decoder"}
    num_gates = 0
    for _, parameter in found[Role.RECURRENT]:
        size = parameter.shape[1]
        gates = parameter.split(size)
        num_gates += len(gates)
        for gate in gates:
            assert_close(gate @ gate.T, torch.eye(size), rtol=0, atol=1e-5)
        for one, other in itertools.combinations(gates, 2):
            assert not torch.allclose(one, other, atol=0.01)
    # Two layers of two directions and the decoder.
    assert num_gates == 5 * CELLS[cell].num_gates
    assert found[Role.VECTOR]
    assert all((bias == 0).all() for _, bias in found[Role.VECTOR])


@pytest.mark.guarantee("Scoring functions, cells and initial values are those of the cited papers.")
@every_cell
@every_tie
def test_spreads_of_the_paper_are_those_of_appendix_b1(cell, tie):
    """v_a is 0; W_a and U_a have a standard deviation of 0.001, all other matrices of 0.01."""
    found = by_role(build("paper", cell, tie))
    score = "decoder.attention.score."
    ((name, energy_weight),) = found[Role.ENERGY]
    assert name == f"{score}energy_layer.weight"
    assert (energy_weight == 0).all()
    names = {name for name, _ in found[Role.SCORE]}
    assert names == {f"{score}query_layer.weight", f"{score}key_layer.weight"}
    for _, parameter in found[Role.SCORE]:
        assert parameter.std().item() == pytest.approx(0.001, rel=0.1)
    for name, parameter in found[Role.EMBEDDING] + found[Role.MATRIX]:
        assert parameter.std().item() == pytest.approx(0.01, rel=0.1), name
        assert parameter.mean().item() == pytest.approx(0, abs=0.001), name


@every_tie
def test_xavier_matrices_have_glorots_range_and_embeddings_unit_length(tie):
    found = by_role(build("xavier", tie=tie))
    assert len(found[Role.EMBEDDING]) == (1 if tie == "all" else 2)
    for _, parameter in found[Role.EMBEDDING]:
        assert parameter.square().sum(dim=1).mean().item() == pytest.approx(1, rel=0.1)
    for name, parameter in found[Role.MATRIX] + found[Role.SCORE] + found[Role.ENERGY]:
        bound = (6 / sum(parameter.shape)) ** 0.5  # Glorot and Bengio 2010, eq. 16
        assert parameter.abs().max() <= bound, name
        assert parameter.std().item() == pytest.approx(bound / 3**0.5, rel=0.15), name


@pytest.mark.parametrize("scheme", INITIALIZATIONS)
def test_same_seed_gives_same_parameters(scheme):
    assert all(map(torch.equal, build(scheme).parameters(), build(scheme).parameters()))


def test_unknown_initialization_is_refused():
    with pytest.raises(ValueError, match=r"model\.initialization=papr .*'paper'.* uniform, paper"):
        build("papr")
