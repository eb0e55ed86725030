"""The round: identities that hold for every combination of the axes."""

from __future__ import annotations

import functools
import itertools
import os
import re
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsash.averages import Window
from fedsash.client import LocalTraining
from fedsash.engines import LocalEngine
from fedsash.methods import FedAvg, Scaffold
from fedsash.methods.sampling import FixedClients, Uniform
from fedsash.methods.schedules import Exponential, SawTooth
from fedsash.methods.server_optimisers import ServerSGD
from fedsash.server.federation import Broadcast
from fedsash.server.state import State
from fedsash.vector.arrays import Vectors
from support.by_default import rotated, some
from support.choices import AVERAGES, METHODS, SAMPLINGS, SERVERS, crossed
from support.worlds import (
    ENGINES,
    SEQUENTIAL,
    VECTORISED,
    WORKERS,
    after,
    data,
    federation,
    identical,
    mlp,
    quadratic_federation,
)


def with_sampling(method: str, sampling: str) -> Any:
    """By default one that shows much, as the checks of every method and every sampling compare workers, too."""
    if (method, sampling) == ("scaffold-II", "dropout"):
        return pytest.param(method, sampling)
    more = sampling == "uniform" or method in ("scaffold-II", "feddyn")
    return pytest.param(method, sampling, marks=pytest.mark.full if more else pytest.mark.slow)


@pytest.mark.parametrize(
    "method, sampling", list(itertools.starmap(with_sampling, itertools.product(METHODS, SAMPLINGS)))
)
def test_workers_give_the_bytes_of_the_sequential_engine(method: str, sampling: str) -> None:
    settings = {"method": METHODS[method], "sampling": SAMPLINGS[sampling], "averages": AVERAGES}
    states = [after(federation(**settings, engine=engine), 4) for engine in (SEQUENTIAL, WORKERS)]
    assert identical(*states)


@pytest.mark.parametrize("count", rotated([3, 1, 2], turns=1))
def test_the_number_of_workers_does_not_matter(count: int) -> None:
    engine = LocalEngine("sequential", count, 1, False, "contiguous", 1)
    assert torch.equal(after(federation(engine=engine), 3).w, after(federation(), 3).w)


@functools.cache
def unobserved(method: str, server: str) -> State:
    """The state after three rounds without an average."""
    return after(federation(method=METHODS[method], server=SERVERS[server]), 3)


@pytest.mark.parametrize(
    "method, server", some(crossed(METHODS, SERVERS), "fedavg", "fedprox", "scaffold-I", "feddyn", "mofedsam")
)
def test_observing_changes_nothing(method: str, server: str) -> None:
    plain = unobserved(method, server)
    watched = after(federation(method=METHODS[method], server=SERVERS[server], averages=AVERAGES), 3)
    assert torch.equal(plain.w, watched.w)
    assert identical(plain, replace(watched, averages={}, past={}))


def test_five_averages_cost_not_one_gradient_more() -> None:
    asked: list[int] = []

    class Counted(FedAvg):
        def direction(self, step: Any) -> Tensor:
            asked.append(len(step.w))
            return super().direction(step)

    counts = []
    for averages in ({}, AVERAGES):
        asked.clear()
        after(federation(method=Counted(), averages=averages), 5)
        counts.append(sum(asked))
    assert counts[0] == counts[1] > 0


def test_many_averages_in_one_run_are_as_many_runs_with_one() -> None:
    together = after(federation(averages=AVERAGES), 6)
    for name, average in AVERAGES.items():
        alone = after(federation(averages={name: average}), 6)
        for key, value in alone.averages[name].items():
            assert torch.equal(value, together.averages[name][key]), (name, key)


@pytest.mark.parametrize(
    "method, server", some(crossed(METHODS, SERVERS), "adabest", "mime", "mimelite", "fedfa", "fedswa")
)
def test_broadcasting_a_window_of_one_is_no_broadcasting_bitwise(method: str, server: str) -> None:
    settings = {"method": METHODS[method], "server": SERVERS[server], "averages": {"ima": Window(1)}}
    fed = after(federation(**settings, broadcast=Broadcast("ima", 1)), 3)
    assert torch.equal(fed.w, unobserved(method, server).w)


def test_before_and_after_the_plain_server_are_the_same_broadcast() -> None:
    settings = {"averages": {"ima": Window(3)}}
    f = {order: federation(**settings, broadcast=Broadcast("ima", 3, order)) for order in ("after", "before")}
    s = {order: after(f[order], 7) for order in f}
    sent = {order: f[order].server_round.send(s[order])[0] for order in f}
    torch.testing.assert_close(sent["after"], sent["before"], rtol=0, atol=1e-13)


@pytest.mark.parametrize("order", ["after", "before"])
def test_a_broadcast_changes_nothing_up_to_its_start_and_then_sends_the_mean_of_the_window(order: str) -> None:
    start, size = 3, 2
    f = federation(averages={"ima": Window(size)}, broadcast=Broadcast("ima", start, order))
    plain = federation(averages={"ima": Window(size)})
    state, other = f.start(), plain.start()
    models: list[Tensor] = []
    for t in range(6):
        sent = f.server_round.send(state)[0]
        if order == "after" and t >= start:
            torch.testing.assert_close(sent, torch.stack(models[-size:]).mean(0), rtol=0, atol=1e-15)
            assert not torch.equal(sent, state.w)
        else:
            assert torch.equal(sent, state.w)
        state, _ = f.round(state)
        other, _ = plain.round(other)
        models.append(state.w.clone())
        same_so_far = torch.equal(state.w, other.w)
        assert same_so_far == (t < start if order == "after" else t < start - 1)


def test_the_server_moves_from_what_the_clients_received() -> None:
    """Momentum computed from any other base is the trap that a well-known library fell into."""
    fed = {"averages": {"ima": Window(3)}, "broadcast": Broadcast("ima", 1)}
    f = federation(**fed, server=ServerSGD(momentum=0.9))
    state = after(f, 3)
    sent, v = f.server_round.send(state)[0].clone(), state.optimiser["v"].clone()
    plain = deepcopy(state)
    plain.optimiser = {}
    delta = after(federation(**fed), 1, plain).w - sent
    torch.testing.assert_close(after(f, 1, state).w, sent + 0.9 * v + delta, rtol=0, atol=1e-14)


def test_wima_equals_its_closed_form_in_the_updates() -> None:
    """WiMA's eq. 4 (mean of models) equals its eq. 6 (linearly decaying weights on the updates)."""
    size = 4
    f = federation(averages={"wima": Window(size)})
    state, models = f.start(), []
    models.append(state.w.clone())
    for _ in range(9):
        state, _ = f.round(state)
        models.append(state.w.clone())
    updates = [models[i] - models[i + 1] for i in range(9)]
    t = 9 - size
    expected = models[t] - sum((size - i) / size * updates[t + i] for i in range(size))
    torch.testing.assert_close(f.models(state)["wima"], expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("engine", rotated([VECTORISED, SEQUENTIAL, WORKERS], turns=2))
def test_a_poisoned_client_is_left_out_and_named_and_no_window_ever_holds_it(engine: LocalEngine) -> None:
    def poison(value: float) -> Any:
        def loss(output: Tensor, y: Tensor) -> Tensor:
            return nn.functional.cross_entropy(output, y, reduction="none") * torch.where(y == 2, value, 1.0)

        return loss

    world = data()
    labels = torch.zeros_like(world.train.y)
    labels[torch.from_numpy(world.clients[3])] = 2
    world.train.y.copy_(labels)
    settings = {
        "data": world,
        "sampling": Uniform(6),
        "engine": engine,
        "averages": {"wima": Window(3)},
        "method": Scaffold(),
    }
    with federation(**settings, loss=poison(float("nan"))) as f:
        state, outcome = f.round(f.start())
    assert outcome.refused == [3] and outcome.moved
    assert torch.isfinite(state.w).all() and torch.isfinite(f.models(state)["wima"]).all()
    assert torch.equal(state.client_state["c"][3], torch.zeros_like(state.w))
    torch.testing.assert_close(state.server_state["c"], state.client_state["c"].mean(0), rtol=0, atol=1e-14)
    others = after(federation(**settings | {"sampling": FixedClients(((0, 1, 2, 4, 5),))}), 1)
    torch.testing.assert_close(state.w, others.w, rtol=0, atol=1e-14)
    with federation(**settings, loss=poison(1e30)) as f:
        _, outcome = f.round(f.start())
    assert outcome.refused == [3]


def test_a_round_in_which_all_are_bad_or_nobody_answers_is_skipped() -> None:
    f = federation(loss=lambda output, y: output.sum(-1) * float("nan"), averages={"wima": Window(3)})
    before = f.start()
    w = before.w.clone()
    state, outcome = f.round(before)
    assert not outcome.moved and len(outcome.refused) == 4
    assert state.round == 1 and torch.equal(state.w, w) and f.models(state).keys() == {"model"}
    trace = np.zeros((1, 6), dtype=bool)
    state, outcome = federation(sampling=Uniform(4, trace=trace)).round(federation().start())
    assert not outcome.moved and len(outcome.clients) == 0 and outcome.round == state.round == 1


@dataclass(frozen=True)
class Overflowing(ServerSGD):
    def step(self, sent: Tensor, delta: Tensor, optimiser: Vectors) -> tuple[Tensor, Vectors]:
        return super().step(sent, delta * 1e308, optimiser)


def test_a_server_step_that_overflows_leaves_the_round_as_if_it_had_not_been() -> None:
    f = federation(method=Scaffold(), server=Overflowing(lr=1e9), averages={"wima": Window(3)})
    state, outcome = f.round(f.start())
    assert not outcome.moved and state.round == 1
    assert identical(state, replace(f.start(), round=1))


def test_one_client_with_one_sample_and_a_window_longer_than_the_run() -> None:
    f = federation(data=data(sizes=(1,)), sampling=Uniform(1), averages={"wima": Window(500)})
    state = after(f, 3)
    assert torch.isfinite(f.models(state)["wima"]).all()


@pytest.mark.parametrize("engine", some(ENGINES, "vectorised"))
def test_an_error_in_a_users_loss_names_the_clients_and_the_round(engine: str) -> None:
    def loss(output: Tensor, y: Tensor) -> Tensor:
        if broken():
            raise ArithmeticError("no such loss")
        return nn.functional.cross_entropy(output, y, reduction="none")

    parent = os.getpid()
    started: list[bool] = []

    def broken() -> bool:
        """Not before the engine has started; then in a worker, or here where there are none."""
        return bool(started) or os.getpid() != parent

    f = federation(loss=loss, engine=ENGINES[engine])
    f.prepare()
    started.append(True)
    with f, pytest.raises(ArithmeticError, match="no such loss") as error:
        f.round(f.start())
    assert re.search(r"while training clients \[[\d, ]+\] in round 1", "\n".join(error.value.__notes__))


def test_seeds_differ_and_the_same_seed_repeats() -> None:
    runs = [after(federation(seed=seed), 3).w for seed in (1, 1, 2)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_the_users_module_is_never_changed() -> None:
    model = mlp()
    before = [p.clone() for p in model.parameters()]
    after(federation(model=model), 2)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("engine", ["vectorised", "workers"])
def test_dropout_schedules_and_saw_tooth_agree_between_engines(engine: str) -> None:
    local = LocalTraining(
        lr=0.1, batch=5, steps=7, schedule=Exponential(0.8), local_schedule=SawTooth(0.1), drop_last=True
    )
    settings = {"model": mlp(dropout=0.4), "local": local}
    reference = after(federation(**settings), 4).w
    torch.testing.assert_close(
        after(federation(**settings, engine=ENGINES[engine]), 4).w, reference, rtol=0, atol=1e-14
    )


def test_a_model_that_cannot_be_vectorised_falls_back_with_a_line() -> None:
    class Stubborn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) * (1.0 if x.sum().item() > -1e9 else 2.0)

    f = federation(model=Stubborn(), engine=LocalEngine(workers=1))
    notes = f.prepare()
    assert f.described()["kind"] == "sequential" and any("can't be vectorised" in note for note in notes)
    assert torch.isfinite(after(f, 2).w).all()
    wanted = {"kind = 'vectorised'": LocalEngine("vectorised"), "compile = True": LocalEngine(compile=True)}
    for named, engine in wanted.items():
        with pytest.raises(ValueError, match=rf"^LocalEngine\.{named}: this model can't be vectorised over clients"):
            federation(model=Stubborn(), engine=engine).prepare()


def test_auto_chooses_a_complete_engine_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsash.engines.timings.ENOUGH", 0.01)  # what is measured need not be exact
    f = federation(engine=LocalEngine())
    notes = f.prepare(10)
    assert LocalEngine(**f.described()).resolved and f.described()["compile"] is False
    assert len(notes) == 1 and "ms for each round" in notes[0]
    torch.testing.assert_close(after(f, 3).w, after(federation(), 3).w, rtol=0, atol=1e-13)


def test_a_quadratic_federation_is_where_gradient_descent_takes_it() -> None:
    f = quadratic_federation([1.0, 3.0], [0.0, 1.2], local=LocalTraining(lr=0.1, batch="full"))
    w = 0.0
    for _ in range(4):
        w -= 0.1 * (1 * (w - 0.0) + 3 * (w - 1.2)) / 2
    assert float(after(f, 4).w) == pytest.approx(w, abs=1e-15)
