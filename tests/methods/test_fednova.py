"""FedNova's coefficients are their closed forms, and its update is the formula over those clients that are accepted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedsash.client import SGD, LocalTraining
from fedsash.client.messages import Effort
from fedsash.client.plan import normalisers
from fedsash.data import FederatedData
from fedsash.methods import METHODS, FedACG, FedAvg, FedDyn, FedNova, FedProx, FedSWA, Method, Upload, WeightedMean
from fedsash.methods.sampling import Uniform
from fedsash.methods.schedules import Exponential, Flat, LocalSchedule, Mild, SawTooth
from fedsash.server.federation import Federation
from fedsash.vector.arrays import Floats, Ints
from support.by_default import rotated, some
from support.uploads import BAD, aggregate, rounds, updated
from support.worlds import ENGINES, Point, after, federation

# The coefficients.

tau = st.integers(1, 60)


def coefficient(local: LocalTraining, steps: int, method: Method | None = None) -> float:
    return float(normalisers(local, method or FedAvg(), np.array([steps]))[0])


@given(steps=tau, lr=st.floats(0, 10))
def test_the_coefficient_of_plain_sgd_is_its_number_of_steps(steps: int, lr: float) -> None:
    assert coefficient(LocalTraining(lr=lr), steps) == steps


@given(steps=tau, m=st.floats(0, 0.99), lr=st.floats(0, 10))
def test_the_coefficient_of_momentum_is_its_closed_form(steps: int, m: float, lr: float) -> None:
    expected = (steps - m * (1 - m**steps) / (1 - m)) / (1 - m)
    assert coefficient(LocalTraining(lr=lr, optimiser=SGD(momentum=m)), steps) == pytest.approx(expected, rel=1e-11)


@given(steps=tau, m=st.floats(0.1, 0.99))
def test_the_coefficient_of_nesterovs_momentum_is_that_of_one_step_more_less_the_first(steps: int, m: float) -> None:
    """Its direction is 1 + m * v, which is the momentum of the next step."""
    plain, ahead = (LocalTraining(optimiser=SGD(m, nesterov=nesterov)) for nesterov in (False, True))
    assert coefficient(ahead, steps) == pytest.approx(coefficient(plain, steps + 1) - 1, rel=1e-11)


@given(steps=tau, lr=st.floats(0.01, 1), mu=st.floats(0.01, 1))
def test_the_coefficient_of_a_proximal_term_is_its_closed_form(steps: int, lr: float, mu: float) -> None:
    expected = (1 - (1 - lr * mu) ** steps) / (lr * mu)
    for method in (FedProx(mu), FedACG(beta=mu), FedDyn(mu)):
        assert coefficient(LocalTraining(lr=lr), steps, method) == pytest.approx(expected, rel=1e-11)


@given(steps=tau, rho=st.floats(0, 2))
def test_the_coefficient_of_a_saw_tooth_is_the_sum_of_its_rates(steps: int, rho: float) -> None:
    expected = (steps * (1 + rho) + 1 - rho) / 2
    assert coefficient(LocalTraining(local_schedule=SawTooth(rho)), steps) == pytest.approx(expected, rel=1e-13)
    assert coefficient(LocalTraining(), steps, FedSWA(rho)) == pytest.approx(expected, rel=1e-13)


@given(steps=st.lists(tau, min_size=1, max_size=5), m=st.floats(0, 0.9), mu=st.floats(0, 2))
def test_a_clients_coefficient_does_not_depend_on_the_others(steps: list[int], m: float, mu: float) -> None:
    local = LocalTraining(lr=0.3, optimiser=SGD(momentum=m), local_schedule=SawTooth(0.1))
    together = normalisers(local, FedProx(mu), np.array(steps))
    assert together.tolist() == [coefficient(local, k, FedProx(mu)) for k in steps]


@dataclass(frozen=True)
class Watched(WeightedMean):
    """The mean, which keeps every update that it sees."""

    seen: list[Tensor] = field(default_factory=list)
    keeps_updates: ClassVar[bool] = True

    def update(self, mean: Upload, updates: list[Tensor]) -> Tensor:
        self.seen.extend(updates)
        return super().update(mean, updates)


def slope(**settings: Any) -> Federation:
    """Clients of unequal sizes whose loss is w everywhere, so that every gradient is 1."""
    sizes = (1, 4, 9, 2)
    clients = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    x, y = np.zeros((sum(sizes), 1)), np.zeros(sum(sizes), dtype=int)
    defaults: dict[str, Any] = {
        "model": Point([0.7]),
        "data": FederatedData.from_arrays(x, y, clients, classes=1),
        "loss": lambda output, y: -output.sum(-1),
        "local": LocalTraining(lr=0.3, batch=2, epochs=2),
        "sampling": Uniform(len(sizes)),
    }
    return federation(**defaults | settings)


@pytest.mark.parametrize("method", [FedAvg(), FedProx(1.5), FedACG(beta=1.5), FedDyn(0.5), FedSWA(0.3)])
@pytest.mark.parametrize(
    "optimiser, schedule",
    rotated([SGD(), SGD(0.9), SGD(0.9, 0.3), SGD(0.9, nesterov=True)], [Flat(), SawTooth(0.2)], turns=2),
    ids=str,
)
def test_the_coefficient_is_how_far_unit_gradients_take_a_client(method: Any, optimiser: SGD, schedule: Any) -> None:
    local = LocalTraining(lr=0.3, batch=2, epochs=2, optimiser=optimiser, local_schedule=schedule)
    watched = Watched()
    f = slope(method=method, local=local, aggregation=watched)
    after(f, 1)
    ids = f.sampling.clients(0, f.data.sizes, f.seed)
    steps = 2 * -(-f.data.sizes[ids] // 2)
    moved = -local.lr * normalisers(local, method, steps)
    assert len(set(steps.tolist())) > 2
    np.testing.assert_allclose(torch.cat(watched.seen).numpy(), moved, rtol=1e-14)


# The update.


@pytest.mark.parametrize(
    "name, momentum", some(rotated(METHODS, [0.0, 0.8]), "fedacg", "feddyn", "fedfa", "fedmoswa", "mime")
)
def test_with_equal_steps_fednova_is_the_mean(name: str, momentum: float) -> None:
    settings = {
        "method": METHODS[name](),
        "local": LocalTraining(lr=0.1, batch=5, steps=2, optimiser=SGD(momentum=momentum)),
    }
    nova, mean = (after(federation(**settings, aggregation=rule), 2) for rule in (FedNova(), WeightedMean()))
    torch.testing.assert_close(nova.w, mean.w, rtol=0, atol=1e-14)


def test_with_unequal_steps_fednova_is_not_the_mean() -> None:
    nova, mean = (after(federation(aggregation=rule), 1).w for rule in (FedNova(), WeightedMean()))
    assert float((nova - mean).norm()) > 1e-3 * float(mean.norm())


@dataclass(frozen=True)
class Rising(LocalSchedule):
    """Begins at 0, so a client with one step stays where it is."""

    def factors(self, k: Ints, steps: Ints) -> Floats:
        return k / np.maximum(steps, 1)


def test_a_client_whose_rates_are_all_0_adds_nothing_and_keeps_nobody_out() -> None:
    local = LocalTraining(lr=0.1, batch=7, epochs=1, local_schedule=Rising())
    for rule in (FedNova(), FedNova(tau="steps")):
        with federation(local=local, aggregation=rule) as world:
            start = world.start()
            state, outcome = world.round(start)
        assert outcome.moved and not outcome.refused and torch.isfinite(state.w).all()


UNEQUAL = {
    "momentum": {"local": LocalTraining(lr=0.3, batch=2, epochs=2, optimiser=SGD(momentum=0.9))},
    "proximal": {"method": FedProx(1.5)},
    "both, and a saw-tooth": {
        "method": FedProx(1.5, weighting="uniform"),
        "local": LocalTraining(lr=0.3, batch=2, optimiser=SGD(momentum=0.5), local_schedule=SawTooth(0.1)),
    },
    "rates by round": {
        "method": FedProx(1.5),
        "local": LocalTraining(lr=0.3, batch=2, optimiser=SGD(momentum=0.5), schedule=Exponential(0.6)),
    },
    "epochs by round": {
        "method": FedProx(1.5),
        "local": LocalTraining(lr=0.3, batch=2, epochs=3, schedule=Mild(0, "epochs", period=2)),
    },
}


@pytest.mark.parametrize("engine, world", rotated(ENGINES, UNEQUAL))
def test_where_all_gradients_are_1_fednova_is_the_mean_whatever_the_steps(world: str, engine: str) -> None:
    """All normalised updates are -eta then, so that only exact coefficients give the mean back, in every round."""
    settings = {"sampling": Uniform(3), "engine": ENGINES[engine]} | UNEQUAL[world]
    nova, mean = (after(slope(**settings, aggregation=rule), 3) for rule in (FedNova(), WeightedMean()))
    torch.testing.assert_close(nova.w, mean.w, rtol=1e-13, atol=0)


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_where_all_gradients_are_1_counting_steps_moves_by_their_mean_number(weighting: Any) -> None:
    f = slope(aggregation=FedNova(tau="steps"), method=FedProx(1.5, weighting=weighting))
    sizes = f.data.sizes
    mean = np.average(2 * -(-sizes // 2), weights=sizes if weighting == "samples" else None)
    assert float(after(f, 1).w - f.start().w) == pytest.approx(-0.3 * mean, rel=1e-13)


@given(round=rounds(), data=st.data(), kind=st.sampled_from(["coefficients", "steps"]))
@pytest.mark.parametrize("weighting", some(["samples", "uniform"], "samples"))
def test_fednova_is_its_formula_in_numpy_over_the_clients_that_are_accepted(
    weighting: Any, round: Any, data: st.DataObject, kind: Any
) -> None:
    sizes, upload = round
    clients = list(range(len(sizes)))
    a = np.array([data.draw(st.floats(0.1, 50)) for _ in clients])
    steps = np.array([data.draw(st.integers(1, 50)) for _ in clients])
    bad = data.draw(st.sets(st.sampled_from(clients), max_size=len(clients) - 1))
    for client in bad:
        upload["delta"][client, 0] = data.draw(st.sampled_from((*BAD, 1e7)))
    good = [client for client in clients if client not in bad]
    p = sizes[good] / sizes[good].sum() if weighting == "samples" else np.full(len(good), 1 / len(good))
    d = upload["delta"].numpy()[good] / a[good][:, None]
    expected = (p @ (a if kind == "coefficients" else steps)[good]) * (p @ d)
    effort = Effort(steps, steps, a)
    blocks = tuple(data.draw(st.lists(st.integers(0, len(sizes)))))
    method = FedAvg(weighting=weighting)
    sums = aggregate(sizes, {"delta": upload["delta"]}, blocks, method, FedNova(tau=kind), effort)
    np.testing.assert_allclose(updated(sums).numpy(), expected, rtol=1e-11, atol=1e-11)
