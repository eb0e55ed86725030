"""What users write themselves: found by experiment files and taken by Python, checked by `fedsash.testing`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedsash.lab.config import parse
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from fedsash.testing import (
    FakeClients,
    after,
    check_average,
    check_executor,
    check_method,
    check_sampling,
    check_server,
    close,
    equal,
    identical,
    record,
    small_federation,
)
from fedsash.testing.worlds import Point
from support.by_default import full
from support.own import Backwards, Borrows, Counts, Doubled, Everyone, PlainMean, Remembers, Signs, Slower

OWN: dict[str, Any] = {
    "method": {"name": "support.own:Signs", "scale": 0.02},
    "server": {"name": "support.own:Slower", "lr": 0.5},
    "sampling": {"name": "support.own:Everyone"},
    "engine": {"name": "support.own:Backwards"},
    "averages": {"mean": {"name": "support.own:PlainMean", "start": 2}},
}


@pytest.mark.parametrize(
    "check, value",
    [
        pytest.param(check_average, PlainMean(), marks=pytest.mark.full),
        (check_server, Slower()),
        full(check_sampling, Everyone()),
        (check_method, Signs()),
        full(check_executor, Backwards()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_ones_own_passes_the_check_of_its_kind(check: Callable[[Any], None], value: Any) -> None:
    check(value)


@pytest.mark.parametrize(
    "check, value, identity",
    [
        (check_server, Remembers(), "a step must start from the model that was sent"),
        (check_average, Borrows(), "it must keep copies of the models that it is given"),
        (check_method, Counts(), "stacked clients must give the numbers of one at a time"),
        (check_sampling, Doubled(), r"answer in round 1 = \[0, 0, 1\]: must hold distinct client ids"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_mistake_is_named_in_one_sentence(check: Callable[[Any], None], value: Any, identity: str) -> None:
    with pytest.raises(AssertionError, match=identity) as error:
        check(value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300 and type(value).__name__ in str(error.value)


def test_an_experiment_file_finds_them_and_trains_what_python_does() -> None:
    partition = {"name": "iid", "clients": 6}
    experiment = parse(
        {"rounds": 2, "partition": partition, "model": {"name": "mlp", "hidden": [4]}} | OWN, own_code=True
    )
    assert (experiment.method, experiment.server, experiment.sampling) == (Signs(scale=0.02), Slower(0.5), Everyone())
    assert experiment.averages == {"mean": PlainMean(start=2)} and experiment.engine == Backwards()
    assert parse(experiment.table()) == experiment
    found = experiment.federation()
    made = Federation(
        found.model,
        found.data,
        method=Signs(scale=0.02),
        local=found.local,
        server=Slower(0.5),
        averages={"mean": PlainMean(start=2)},
        sampling=Everyone(),
        engine=Backwards(),
        seed=found.seed,
    )
    assert identical(after(found, 2), after(made, 2))


# Clients that a function answers for.


def test_fake_clients_move_the_model_by_the_weighted_mean_of_what_they_say() -> None:
    goals = torch.tensor([[1.0, 0.0], [0.0, 2.0], [4.0, 4.0]], dtype=torch.float64)
    clients = FakeClients(lambda request: {"delta": goals[int(request.ids[0])] - request.sent}, sizes=[1, 2, 3])
    world = Federation(Point([5.0, 5.0]), clients, sampling=Uniform(3), device="cpu")
    expected = (1 * goals[0] + 2 * goals[1] + 3 * goals[2]) / 6
    assert close(after(world, 1).w, expected, 1e-14)


def test_a_fake_client_that_gives_a_reason_is_missing() -> None:
    def handler(request: Any) -> Any:
        return "late" if request.ids[0] == 1 else {"delta": torch.ones_like(request.sent)}

    with Federation(Point([0.0]), FakeClients(handler), sampling=Uniform(3), device="cpu") as world:
        state, outcome = world.round(world.start())
    assert outcome.missing == {1: "late"} and equal(state.w, torch.ones(1))


# The three equalities.


def test_identical_sees_a_window_that_equal_models_hide() -> None:
    one, other = (after(small_federation(averages={"it": PlainMean()}), 3) for _ in range(2))
    assert identical(one, other)
    other.averages["it"]["sum"][0] += 1
    assert str(identical(one, other)) == "averages/it/sum: up to 1 apart" and not close(one, other, 0.5)


def test_identical_is_of_bytes_equal_of_numbers_and_close_within_a_tolerance() -> None:
    one, other = torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 1.0], dtype=torch.float64)
    assert not identical(one, other) and not identical(one, -one * torch.tensor([1.0, -1.0])) and equal(one, other)
    assert close(one, other + 1e-3, 2e-3) and not close(one, other + 1e-3, 1e-4)
    nan = torch.tensor([float("nan")])
    assert identical(nan, nan.clone()) and equal(nan, nan.clone()) and not equal(nan, one[:1])


def test_a_record_stays_as_it_is_when_its_state_changes() -> None:
    state = after(small_federation(), 1)
    before = record(state)
    assert identical(state, before)
    state.w.add_(1.0)
    assert not identical(state, before)


def test_numbers_are_compared_in_double_precision() -> None:
    assert not equal({"x": 0.1}, {"x": 0.1 + 1e-10}) and close({"x": 0.1}, {"x": 0.1 + 1e-10}, 1e-9)
    assert not close({"x": 1e9}, {"x": 1e9 + 10}, 1e-3) and not equal({"x": 2**70}, {"x": 2**70 + 1})
    assert equal({"x": float("nan")}, {"x": float("nan")})
