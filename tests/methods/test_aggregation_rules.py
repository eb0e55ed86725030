"""What holds for every rule of aggregation, with every server, broadcast and method on every engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedsash.averages import Window
from fedsash.client import SGD, LocalTraining
from fedsash.client.messages import Effort
from fedsash.methods import (
    AGGREGATIONS,
    Aggregation,
    FedDyn,
    FedGMA,
    FedNova,
    FedProx,
    Method,
    Private,
    Scaffold,
    WeightedMean,
)
from fedsash.methods.schedules import SawTooth
from fedsash.methods.server_optimisers import FedAdam, ServerSGD
from fedsash.server.broadcast import Broadcast
from support.by_default import rotated
from support.uploads import aggregate, updated
from support.worlds import ENGINES, after, federation, identical

RULES: dict[str, Aggregation] = {
    "nova": FedNova(),
    "nova, steps": FedNova(tau="steps"),
    "gma": FedGMA(threshold=0.4),
    "gma, hard": FedGMA(threshold=0.4, mask="hard"),
    "gma, code": FedGMA(threshold=0.4, mask="code"),
}
COMPOSED: dict[str, dict[str, Any]] = {
    "momentum": {"server": ServerSGD(lr=0.7, momentum=0.9)},
    "FedAdam, fed after": {"server": FedAdam(lr=0.02), "broadcast": Broadcast("wima", 2)},
    "FedAdam, fed before": {"server": FedAdam(lr=0.02), "broadcast": Broadcast("wima", 2, "before")},
    "momentum, fed as the code": {"server": ServerSGD(momentum=0.5), "broadcast": Broadcast("wima", 2, "code")},
    "proximal and local momentum": {
        "method": FedProx(0.3),
        "local": LocalTraining(lr=0.1, batch=5, epochs=2, optimiser=SGD(momentum=0.5)),
    },
    "variates": {"method": Scaffold(), "local": LocalTraining(lr=0.1, batch=5, epochs=2, local_schedule=SawTooth(0.2))},
}


@pytest.mark.parametrize("rule, composed", rotated(RULES, COMPOSED, turns=1))
def test_engines_agree_on_every_rule_with_servers_broadcasts_and_methods(rule: str, composed: str) -> None:
    settings = {"averages": {"wima": Window(2)}} | COMPOSED[composed]
    states = {e: after(federation(**settings, aggregation=RULES[rule], engine=ENGINES[e]), 4) for e in ENGINES}
    one = states["sequential"]
    assert torch.isfinite(one.w).all() and not torch.equal(one.w, after(federation(**settings), 4).w)
    assert identical(states["workers"], one)
    for (name, a), (_, b) in zip(one.tensors(), states["vectorised"].tensors(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize(
    "rule, method", rotated(RULES, [Scaffold(), FedDyn(0.3), FedDyn(0.3, weighting="samples")], turns=3)
)
def test_the_servers_variate_stays_the_mean_of_the_clients_under_every_rule(method: Method, rule: str) -> None:
    """It says what clients remember, and those don't know how the server weighs their updates."""
    server, client = ("c", "c") if isinstance(method, Scaffold) else ("h", "g")
    state = after(federation(method=method, aggregation=RULES[rule]), 4)
    torch.testing.assert_close(state.server_state[server], state.client_state[client].mean(0), rtol=0, atol=1e-13)


@pytest.mark.parametrize("rule", RULES)
def test_rules_leave_every_upload_its_mean(rule: str) -> None:
    rng = np.random.default_rng(0)
    upload = {name: torch.from_numpy(rng.normal(size=(4, 5))) for name in ("delta", "c")}
    steps = np.array([1, 2, 3, 4])
    effort = Effort(10 * steps, steps, np.array([1.0, 1.9, 2.7, 3.4]))
    sums, plain = (aggregate([1, 2, 3, 4], upload, (2,), None, r, effort) for r in (RULES[rule], WeightedMean()))
    assert all(torch.equal(sums.mean()[name], value) for name, value in plain.mean().items())
    assert torch.equal(updated(plain), plain.mean()["delta"]) and not torch.equal(updated(sums), updated(plain))


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: FedNova(tau="epochs"), "FedNova.tau = 'epochs': must be 'coefficients' or 'steps'"),
        (lambda: FedGMA(mask="firm"), "FedGMA.mask = 'firm': must be 'soft' or 'hard' or 'code'"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_one_line(make: Any, line: str) -> None:
    with pytest.raises(ValueError) as error:
        make()
    assert str(error.value) == line


def test_every_rule_has_a_name() -> None:
    assert set(AGGREGATIONS.values()) == {WeightedMean, FedNova, FedGMA, Private}
