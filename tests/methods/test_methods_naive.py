"""Every method and every aggregation of the library equals the naive account, on every engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsash.client import SGD, LocalTraining
from fedsash.methods import AGGREGATIONS, METHODS
from fedsash.methods.schedules import Exponential
from fedsash.methods.server_optimisers import ServerSGD
from fedsash.server.federation import Federation
from support.accounts import ADABEST, FA, SAMPLES, STEP, TRAINING, UNIFORM, world
from support.by_default import by_default
from support.choices import chequered
from support.naive import KINDS, run
from support.worlds import ENGINES

MO: dict[str, Any] = {"rho": 0.2, "alpha": 1.3, "gamma": 0.3}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("fedavg", SAMPLES),
    ("fedavg", UNIFORM),
    ("fedprox", {"mu": 0.3}),
    ("fedprox", {"mu": 0.3} | UNIFORM),
    ("scaffold", {"option": "I"}),
    ("scaffold", {"option": "II"}),
    ("scaffold", {"option": "raw"}),
    ("scaffold", {"option": "II"} | SAMPLES),
    ("feddyn", {"alpha": 0.1}),
    ("feddyn", {"alpha": 0.1} | SAMPLES),
    ("adabest", ADABEST),
    ("adabest", ADABEST | SAMPLES),
    ("adabest", ADABEST | {"variant": "code"}),
    ("fedcm", {"alpha": 0.3}),
    ("fedcm", {"alpha": 0.3} | SAMPLES),
    ("fedacg", {"lam": 0.85, "beta": 0.1}),
    ("fedacg", {"lam": 0.85, "beta": 0.1} | SAMPLES),
    ("mime", {"beta": 0.6, "damped": True}),
    ("mime", {"beta": 0.6, "damped": False} | SAMPLES),
    ("mime", {"beta": 0.0, "damped": True}),
    ("mimelite", {"beta": 0.6, "damped": True}),
    ("mimelite", {"beta": 0.6, "damped": False} | SAMPLES),
    ("fedsam", {"rho": 0.2}),
    ("fedsam", {"rho": 0.2} | UNIFORM),
    ("fedasam", {"rho": 0.2, "eta": 0.1}),
    ("mofedsam", {"alpha": 0.3, "rho": 0.2}),
    ("fedlesam", {"rho": 0.5}),
    ("fedlesam", {"rho": 0.5} | SAMPLES),
    ("fedfa", FA),
    ("fedfa", FA | {"calibration": 0.0}),
    ("fedfa", FA | {"anchors_from": 1, "calibrate_from": 2}),
    ("fedswa", {"rho": 0.2, "alpha": 1.3}),
    ("fedswa", {"rho": 0.2, "alpha": 1.3} | SAMPLES),
    ("fedmoswa", MO | {"option": "I"}),
    ("fedmoswa", MO | {"option": "II"}),
    ("fedmoswa", MO | {"option": "raw"}),
    ("fedmoswa", MO | {"option": "II"} | SAMPLES),
    ("ewc", {"mu": 2.0}),
    ("ewc", {"mu": 2.0} | UNIFORM),
]
CASES += [(kind, {}) for kind in KINDS if kind not in dict(CASES)]
AGGREGATED: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("fedavg", {}, "fednova", {"tau": "coefficients"}),
    ("fedavg", {}, "fednova", {"tau": "steps"}),
    ("fedavg", UNIFORM, "fednova", {"tau": "coefficients"}),
    ("fedprox", {"mu": 0.3}, "fednova", {"tau": "coefficients"}),
    ("fedprox", {"mu": 0.3}, "fednova", {"tau": "steps"}),
    ("fedavg", {}, "fedgma", {"threshold": 0.7, "mask": "soft"}),
    ("fedavg", {}, "fedgma", {"threshold": 0.7, "mask": "hard"}),
    ("fedprox", {"mu": 0.3} | UNIFORM, "fedgma", {"threshold": 0.5, "mask": "soft"}),
    ("fedacg", {"lam": 0.85, "beta": 0.1}, "fednova", {"tau": "coefficients"}),
    ("fedswa", {"rho": 0.2, "alpha": 1.3}, "fednova", {"tau": "coefficients"}),
    ("scaffold", {"option": "II"}, "fedgma", {"threshold": 0.7, "mask": "soft"}),
    ("feddyn", {"alpha": 0.1} | SAMPLES, "fednova", {"tau": "coefficients"}),
    ("feddyn", {"alpha": 0.1}, "fedgma", {"threshold": 0.7, "mask": "soft"}),
    ("feddyn", {"alpha": 0.1}, "fednova", {"tau": "steps"}),
    ("fedavg", UNIFORM, "private", {"clip": 0.1, "noise": 0.0}),
    ("fedacg", {"lam": 0.85, "beta": 0.1}, "private", {"clip": 0.1, "noise": 0.0}),
]


def compare(f: Federation, kind: str, options: dict[str, Any], momentum: float = 0.0, rounds: int = 3) -> None:
    """The model and all vectors that the naive account names; FedLESAM's clients may have nothing to compare yet."""
    expected = run(f, rounds, kind, options, server_momentum=momentum, **TRAINING)
    with f:
        state = f.start()
        for _ in range(rounds):
            state, _ = f.round(state)
    got = (
        {"w": state.w}
        | state.server_state
        | {f"client_state/{name}": rows for name, rows in state.client_state.items()}
    )
    for name, value in expected.items():
        known = np.isfinite(value)
        assert known.all() or name == "client_state/old", f"{name}: the naive account has diverged"
        np.testing.assert_allclose(got[name].numpy()[known], value[known], rtol=0, atol=1e-10, err_msg=name)


def trained(method: Any, engine: str, **settings: Any) -> Federation:
    client = LocalTraining(lr=0.1, batch=5, epochs=2, schedule=Exponential(0.9), optimiser=SGD(**STEP))
    return world(client, method=method, engine=ENGINES[engine], **{"server": ServerSGD(lr=0.7)} | settings)


def name_of(value: Any) -> str:
    if isinstance(value, tuple):
        return "-".join(map(name_of, value))
    return ",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


ROUNDS = pytest.mark.parametrize("rounds", [3, pytest.param(6, marks=pytest.mark.full)])


def full_if_rare(pair: Any) -> Any:
    """In full only: another weighting of a method that has nothing to do with weights, and more options in workers."""
    kind, options = pair.values[0]
    rare = "weighting" in options and kind not in ("fedavg", "scaffold", "feddyn", "adabest")
    rare = rare or (pair.values[1] == "workers" and [name for name, _ in CASES].count(kind) > 1 and kind != "scaffold")
    return pytest.param(*pair.values, marks=pytest.mark.full) if rare and not pair.marks else pair


@ROUNDS
@pytest.mark.parametrize("case, engine", list(map(full_if_rare, chequered(CASES, ENGINES, of=3))), ids=name_of)
def test_every_method_equals_the_naive_account(case: tuple[str, dict[str, Any]], engine: str, rounds: int) -> None:
    kind, options = case
    compare(trained(METHODS[kind](**options), engine), kind, options, rounds=rounds)


@pytest.mark.parametrize("kind", ["feddyn", "adabest", "fedacg", "fedmoswa"])
def test_methods_that_change_the_update_equal_the_naive_account_with_server_momentum(kind: str) -> None:
    options = next(options for name, options in CASES if name == kind)
    server = ServerSGD(lr=0.7, momentum=0.5)
    compare(trained(METHODS[kind](**options), "sequential", server=server), kind, options, momentum=0.5)


@ROUNDS
@pytest.mark.parametrize(
    "case, engine",
    by_default(chequered(AGGREGATED, ENGINES, of=3), lambda case, engine: engine != "workers"),
    ids=name_of,
)
def test_every_aggregation_equals_the_naive_account(case: Any, engine: str, rounds: int) -> None:
    kind, options, rule, settings = case
    f = trained(METHODS[kind](**options), engine, aggregation=AGGREGATIONS[rule](**settings))
    compare(f, kind, options | settings | {"aggregation": rule}, rounds=rounds)


def test_every_method_and_every_aggregation_of_the_library_has_a_naive_account() -> None:
    assert set(KINDS) == {kind for kind, _ in CASES} == set(METHODS)
    assert set(AGGREGATIONS) == {"mean"} | {rule for _, _, rule, _ in AGGREGATED}
