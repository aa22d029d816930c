"""Learning rates follow their formulas, and optimizers restore their state."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.checkpoint import load_checkpoint, save_checkpoint
from seq2seq.config.training import OptimConfig, ScheduleConfig
from seq2seq.training.optim import (
    OPTIMIZERS,
    SCHEDULES,
    build_optimizer,
    build_schedule,
    optimizer_tensors,
    restore_optimizer,
    set_learning_rate,
)

schedules = st.builds(
    ScheduleConfig, st.sampled_from(list(SCHEDULES)), st.integers(0, 50), st.floats(0, 0.99)
)


@given(schedules, st.integers(0, 1000), st.floats(0, 1))
def test_factors_lie_in_the_unit_interval(schedule, step, progress):
    assert 0 <= build_schedule(schedule)(step, progress) <= 1


@given(schedules, st.integers(50, 1000), st.integers(1, 50), st.floats(0, 1), st.floats(0, 1))
def test_rates_never_grow_after_the_warm_up(schedule, step, more, progress, other):
    early, late = sorted((progress, other))
    earlier, later = (
        build_schedule(schedule)(step, early),
        build_schedule(schedule)(step + more, late),
    )
    assert later <= earlier + 1e-12


@pytest.mark.parametrize("name", SCHEDULES)
def test_warm_up_is_linear_from_the_first_update(name):
    schedule = ScheduleConfig(name, warmup_steps=4)
    rates = [build_schedule(schedule)(step, 0.0) for step in range(4)]
    assert rates == pytest.approx([1 / 4, 2 / 4, 3 / 4, 1])


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_first_update_without_warm_up_has_the_full_rate(name):
    assert build_schedule(ScheduleConfig(name))(0, 0.0) == 1


def test_constant_schedule_is_constant():
    assert {build_schedule(ScheduleConfig())(step, step / 100) for step in range(101)} == {1.0}


@pytest.mark.parametrize("decay_from", [0.0, 0.5])
def test_linear_and_cosine_reach_half_midway_and_zero_at_the_end(decay_from):
    midway = (1 + decay_from) / 2
    for name in ("linear", "cosine"):
        schedule = ScheduleConfig(name, decay_from=decay_from)
        assert build_schedule(schedule)(9, decay_from) == 1
        assert build_schedule(schedule)(9, midway) == pytest.approx(1 / 2)
        assert build_schedule(schedule)(9, 1.0) == pytest.approx(0)
    quarter = decay_from + (1 - decay_from) / 4
    assert build_schedule(ScheduleConfig("linear", decay_from=decay_from))(9, quarter) == (
        pytest.approx(3 / 4)
    )
    assert build_schedule(ScheduleConfig("cosine", decay_from=decay_from))(9, quarter) == (
        pytest.approx((1 + math.sqrt(1 / 2)) / 2)
    )


@pytest.mark.parametrize("warmup_steps", [1, 10])
def test_inverse_sqrt_continues_where_the_warm_up_ends(warmup_steps):
    schedule = ScheduleConfig("inverse_sqrt", warmup_steps)
    rates = [build_schedule(schedule)(step, 0.0) for step in range(4 * warmup_steps)]
    assert rates[warmup_steps - 1] == max(rates) == 1
    assert rates[-1] == pytest.approx(1 / 2)  # four times the steps, half the rate


def test_an_update_uses_the_learning_rate_that_was_set():
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = build_optimizer(OptimConfig("adam", epsilon=1e-12), [weight])
    set_learning_rate(optimizer, 0.25)
    weight.grad = torch.tensor([3.0])
    optimizer.step()
    # The first step of Adam equals its learning rate for any gradient (Kingma and Ba 2015).
    assert weight.item() == pytest.approx(0.75)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_optimizer_has_the_configured_constants(name):
    config = OptimConfig(name, 0.5, [0.8, 0.7], 0.6, 0.03, 0.2)
    (group,) = build_optimizer(config, [torch.nn.Parameter(torch.ones(1))]).param_groups
    assert (group["lr"], group["eps"], group["weight_decay"]) == (0.5, 0.03, 0.2)
    if name == "adadelta":
        assert group["rho"] == 0.6
    else:
        assert tuple(group["betas"]) == (0.8, 0.7)


@pytest.mark.guarantee("A run that is killed and resumed equals an uninterrupted run, bit for bit.")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_restored_optimizer_continues_identically(name, tmp_path):
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator) for shape in ((3, 2), (12,))]
    gradients = [[torch.randn(p.shape, generator=generator) for p in start] for _ in range(6)]

    def made(values):
        parameters = [torch.nn.Parameter(value.clone()) for value in values]
        return parameters, build_optimizer(OptimConfig(name, weight_decay=0.1), parameters)

    def update(parameters, optimizer, steps):
        for row in gradients[steps]:
            for parameter, gradient in zip(parameters, row, strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()

    parameters, optimizer = made(start)
    update(parameters, optimizer, slice(0, 3))
    path = tmp_path / "optimizer.safetensors"
    save_checkpoint(path, optimizer_tensors(optimizer), {})
    copies, restored = made([parameter.detach() for parameter in parameters])
    restore_optimizer(restored, load_checkpoint(path).tensors)

    update(parameters, optimizer, slice(3, 6))
    update(copies, restored, slice(3, 6))
    assert all(torch.equal(a, b) for a, b in zip(parameters, copies, strict=True))

    # Without its state, the updates would differ.
    forgetful, fresh = made(start)
    update(forgetful, fresh, slice(3, 6))
    assert not torch.equal(forgetful[0], parameters[0])


def test_a_new_optimizer_has_an_empty_state():
    optimizer = build_optimizer(OptimConfig(), [torch.nn.Parameter(torch.ones(1))])
    assert optimizer_tensors(optimizer) == {}
    restore_optimizer(optimizer, {})
