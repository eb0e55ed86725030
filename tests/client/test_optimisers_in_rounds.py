"""Local optimisers in whole rounds: every engine, moments that are kept, and what methods refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsash import Fork
from fedsash.client import OPTIMISERS, SGD, Adagrad, Adam, AdamW, LocalTraining, Optimiser, RMSprop, RoundPlan
from fedsash.errors import ConfigError
from fedsash.lab.config import parse
from fedsash.methods import (
    METHODS,
    AdaBest,
    FedAvg,
    FedCM,
    FedMoSWA,
    FedNova,
    Method,
    Mime,
    MimeLite,
    MoFedSAM,
    Scaffold,
)
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from fedsash.settings.errors import RunError, SettingError
from fedsash.testing import close as compared
from fedsash.vector.arrays import Vectors
from support.by_default import rotated, some
from support.observing import final, go_on, observed, start
from support.worlds import ENGINES, SIZES, VECTORISED, after, data, federation, sampled

ROUGH: dict[str, Optimiser] = {
    "sgd": SGD(0.5, 0.2, weight_decay=0.01),
    "nesterov": SGD(0.5, nesterov=True),
    "adam": Adam(weight_decay=0.01),
    "adamw": AdamW(0.8, 0.95),
    "adagrad": Adagrad(0.1, 0.01, weight_decay=0.01),
    "rmsprop": RMSprop(0.9, momentum=0.5, centered=True),
}


def training(name: str, **settings: Any) -> LocalTraining:
    return LocalTraining(**{"lr": 0.01, "batch": 5, "epochs": 2, "optimiser": ROUGH[name]} | settings)


def pytorchs(f: Federation, client: int, steps: int) -> Tensor:
    """The model `[D]` after full-batch steps of PyTorch's optimiser on one client's samples."""
    o: Any = f.local.optimiser
    betas = {"betas": (o.beta1, o.beta2)} if isinstance(o, Adam) else {}
    words = {"epsilon": "eps", "initial": "initial_accumulator_value"}
    rest = {words.get(k, k): v for k, v in vars(o).items() if k not in ("beta1", "beta2")}
    module = f.model
    f.layout.load(module, f.start().w)
    step = getattr(torch.optim, type(o).__name__)(module.parameters(), lr=f.local.lr, **betas, **rest)
    own = torch.from_numpy(f.data.clients[client])
    for _ in range(steps):
        step.zero_grad()
        f.goal.loss(module(f.data.train.x[own]), f.data.train.y[own]).mean().backward()
        step.step()
    return f.layout.flatten(module)


@pytest.mark.parametrize("name, engine", rotated(ROUGH, ENGINES, turns=3))
def test_a_client_steps_as_pytorch_does_in_every_engine(name: str, engine: str) -> None:
    local = training(name, batch="full", epochs=1, steps=5)
    f = federation(local=local, sampling=Uniform(1), engine=ENGINES[engine])
    expected = pytorchs(f, int(sampled(f, 0)[0]), 5)
    torch.testing.assert_close(after(f, 1).w, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", some(ROUGH, "nesterov", "adamw", "rmsprop"))
def test_with_kept_moments_one_client_is_pytorchs_optimiser_through_all_rounds(name: str) -> None:
    """Moments that begin anew are not: they forget."""
    local = training(name, batch="full", epochs=1, steps=3, keep_moments=True)
    f = federation(local=local, data=data((9,)), sampling=Uniform(1))
    expected = pytorchs(f, 0, 12)
    torch.testing.assert_close(after(f, 4).w, expected, rtol=0, atol=1e-12)
    anew = after(federation(local=replace(local, keep_moments=False), data=f.data, sampling=Uniform(1)), 4).w
    assert float((anew - expected).norm()) > 1e-6


@pytest.mark.parametrize("name, keep", rotated(ROUGH, [True, False], turns=3))
def test_stacked_clients_of_unequal_steps_are_those_trained_one_by_one(name: str, keep: bool) -> None:
    """Also their kept moments, which a client without steps left does not change."""
    settings: dict[str, Any] = {"local": training(name, keep_moments=keep), "sampling": Uniform(4)}
    one, stacked = (after(federation(engine=ENGINES[e], **settings), 4) for e in ("sequential", "vectorised"))
    assert compared(one, stacked, 1e-11)
    assert bool(one.client_state) == keep


@pytest.mark.slow
@pytest.mark.parametrize("name", ROUGH)
def test_compiled_steps_are_those_of_stacked_clients(name: str) -> None:
    settings: dict[str, Any] = {"local": training(name, keep_moments=True), "sampling": Uniform(4)}
    stacked, compiled = (
        after(federation(engine=engine, **settings), 3) for engine in (VECTORISED, replace(VECTORISED, compile=True))
    )
    assert compared(stacked, compiled, 1e-11)


@pytest.mark.parametrize("engine", ENGINES)
def test_absent_clients_keep_their_moments_bitwise(engine: str) -> None:
    f = federation(local=training("adam", keep_moments=True), sampling=Uniform(3), engine=ENGINES[engine])
    state, taken = f.start(), np.zeros(len(SIZES))
    for t in range(4):
        before = {name: rows.clone() for name, rows in state.client_state.items()}
        present = sampled(f, t)
        absent = np.setdiff1d(np.arange(len(SIZES)), present)
        state, _ = f.round(state)
        taken[present] += RoundPlan.mean(f.local, f.method, f.sizes[present]).steps
        assert all(torch.equal(rows[absent], before[name][absent]) for name, rows in state.client_state.items())
        np.testing.assert_array_equal(state.client_state["adam_steps"][:, 0].numpy(), taken)
    f.close()


def test_kept_moments_and_a_methods_client_state_do_not_mix() -> None:
    local = training("adamw")
    both = after(federation(method=Scaffold("raw"), local=replace(local, keep_moments=True)), 3)
    assert set(both.client_state) == {"c", "adamw_m", "adamw_v", "adamw_steps"}
    assert set(after(federation(method=Scaffold("raw"), local=local), 1).client_state) == {"c"}


@pytest.mark.parametrize(
    "name, engine",
    [
        ("adam", "vectorised"),
        *(pytest.param(name, "sequential", marks=pytest.mark.full) for name in ("nesterov", "rmsprop", "adam")),
        pytest.param("adam", "workers", marks=pytest.mark.full),
    ],
)
def test_a_resumed_run_with_kept_moments_is_the_unbroken_one_to_the_byte(
    name: str, engine: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"local": training(name, keep_moments=True), "engine": ENGINES[engine]}
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    start(observed(**settings), 4, whole)
    start(observed(**settings), 2, halves)
    go_on(observed(**settings), 4, halves)
    assert final(halves) == final(whole)


def test_a_fork_with_kept_moments_keeps_its_optimiser(tmp_path: Path) -> None:
    """Both have one moment `v` of the same shape, which means something else in each."""
    adagrad, rmsprop = (LocalTraining(optimiser=one, keep_moments=True) for one in (Adagrad(), RMSprop()))
    start(observed(local=adagrad), 2, tmp_path / "source")
    with pytest.raises(RunError, match="is of another experiment: client_state/rmsprop_v is missing there"):
        start(observed(local=rmsprop), 4, tmp_path / "fork", fork=Fork(tmp_path / "source", 2))
    assert not (tmp_path / "fork" / "metrics.jsonl").exists()


NEED_SGD: list[Method] = [
    Scaffold(),
    FedMoSWA(),
    AdaBest(),
    AdaBest(variant="code"),
    FedCM(),
    MoFedSAM(),
    Mime(),
    Mime(0.0),
    MimeLite(),
]


@pytest.mark.parametrize(
    "method, optimiser", rotated(NEED_SGD, [kind() for kind in OPTIMISERS.values() if kind is not SGD]), ids=repr
)
def test_a_method_that_rests_on_sgds_step_refuses_others(method: Method, optimiser: Optimiser) -> None:
    with pytest.raises(ValueError) as refusal:
        federation(method=method, local=LocalTraining(optimiser=optimiser))
    message = str(refusal.value)
    assert (
        message.startswith(f"LocalTraining.optimiser = {optimiser!r}: must be sgd: the method") and "\n" not in message
    )


@pytest.mark.full
def test_every_other_method_takes_any_optimiser_and_learns() -> None:
    others = [kind() for kind in METHODS.values() if not kind().why_sgd]
    assert {type(method) for method in NEED_SGD} == {kind for kind in METHODS.values() if kind().why_sgd}
    for method in (*others, Scaffold("I"), Scaffold("raw"), FedMoSWA(option="I"), FedMoSWA(option="raw")):
        one, stacked = (
            after(federation(method=method, local=training("adamw", epochs=1), engine=ENGINES[engine]), 2)
            for engine in ("sequential", "vectorised")
        )
        assert compared(one, stacked, 1e-10), method


def test_fednova_refuses_other_optimisers_and_moments_of_earlier_rounds() -> None:
    with pytest.raises(ValueError, match=r"LocalTraining\.optimiser = Adam\(.*: must be sgd: FedNova's normalisers"):
        federation(aggregation=FedNova(), local=LocalTraining(optimiser=Adam()))
    kept = LocalTraining(optimiser=SGD(0.9), keep_moments=True)
    with pytest.raises(ValueError, match=r"LocalTraining\.keep_moments = True: must be false, because .*: FedNova's"):
        federation(aggregation=FedNova(), local=kept)
    assert after(federation(method=FedAvg(), local=kept), 1).round == 1


def test_an_experiment_file_names_the_key_of_a_refused_optimiser() -> None:
    table = {"method": {"name": "fedcm"}, "local": {"optimiser": {"name": "adam"}}}
    with pytest.raises(ConfigError, match=r"^local\.optimiser = Adam\(.*\): must be sgd: the method") as refusal:
        parse(table).federation()
    assert refusal.value.key == "local.optimiser"


def test_an_experiment_file_chooses_the_optimiser_and_its_settings() -> None:
    plain = parse({"local": {"optimiser": {"momentum": 0.9}}}).local
    named = parse({"local": {"optimiser": {"name": "adamw", "beta2": 0.95}, "keep_moments": True}}).local
    assert plain == LocalTraining(optimiser=SGD(momentum=0.9))
    assert named == LocalTraining(optimiser=AdamW(beta2=0.95), keep_moments=True)


class Momentum(Optimiser):
    """Its moment is v; subclasses say how it moves."""

    def moments(self, w: Tensor) -> Vectors:
        return {"v": torch.zeros_like(w)}


class InPlace(Momentum):
    def advance(self, w: Tensor, moments: Vectors, g: Tensor, lr: Any, n: Any) -> None:
        w.sub_(lr * moments["v"].mul_(0.5).add_(g))


class Assigning(Momentum):
    def advance(self, w: Tensor, moments: Vectors, g: Tensor, lr: Any, n: Any) -> None:
        moments["v"] = 0.5 * moments["v"] + g
        w.sub_(lr * moments["v"])


class Returning(Momentum):
    def advance(self, w: Tensor, moments: Vectors, g: Tensor, lr: Any, n: Any) -> Any:
        return w - lr * g


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize(
    ("optimiser", "message"),
    [
        (Assigning(), r"Assigning\.advance = 'a new v': must move v in place, as by moments\['v'\]\.mul_"),
        (Returning(), r"Returning\.advance = 'Tensor': must return nothing, and move w in place"),
    ],
)
def test_an_optimiser_that_does_not_work_in_place_is_refused(
    optimiser: Optimiser, message: str, clip: float | None
) -> None:
    local = LocalTraining(lr=0.01, batch=5, optimiser=optimiser, keep_moments=True, clip=clip)
    with pytest.raises(SettingError, match=message):
        after(federation(local=local), 1)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_optimiser_of_ones_own_is_the_librarys_of_the_same_formula(engine: str) -> None:
    models = []
    for optimiser in (InPlace(), SGD(0.5)):
        local = LocalTraining(lr=0.01, batch=5, epochs=2, optimiser=optimiser, keep_moments=True)
        models.append(after(federation(local=local, engine=ENGINES[engine]), 2).w)
    torch.testing.assert_close(*models, rtol=0, atol=1e-12)
