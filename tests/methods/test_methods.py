"""FedAvg, FedProx and EWC against the identities of their papers, and what holds for every method."""

from __future__ import annotations

from functools import partial
from math import nan
from typing import Any

import numpy as np
import pytest
import torch

from fedsash.client import SGD, LocalTraining
from fedsash.methods import EWC, METHODS, AdaBest, FedDyn, FedLESAM, FedMoSWA, FedProx, LocalRun, Method, Scaffold, Step
from fedsash.methods.sampling import Uniform
from fedsash.settings.options import options
from support.by_default import rotated, some
from support.worlds import ENGINES, SIZES, after, federation, quadratic_federation, sampled

EVERYONE, WHOLE = Uniform(len(SIZES)), LocalTraining(lr=0.1, batch="full")
ROUGH = LocalTraining(lr=0.1, batch=5, epochs=2, optimiser=SGD(momentum=0.5, weight_decay=0.01))
MEMORIES = [
    Scaffold("I"),
    Scaffold("II"),
    Scaffold("raw"),
    FedDyn(0.1),
    AdaBest(),
    AdaBest(variant="code"),
    FedLESAM(),
    FedMoSWA(option="I"),
    FedMoSWA(option="II"),
    FedMoSWA(option="raw"),
]
close = partial(torch.testing.assert_close, rtol=0, atol=1e-14)


def test_fedavg_with_one_full_batch_step_of_all_clients_is_gradient_descent() -> None:
    f = federation(local=LocalTraining(lr=0.3, batch="full"), sampling=Uniform(len(SIZES)))
    w = after(f, 3).w
    module = f.model
    f.layout.load(module, f.start().w)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.3)
    for _ in range(3):
        optimiser.zero_grad()
        f.goal.loss(module(f.data.train.x), f.data.train.y).mean().backward()
        optimiser.step()
    torch.testing.assert_close(w, f.layout.flatten(module), rtol=0, atol=1e-14)


@pytest.mark.parametrize("momentum, weight_decay, clip", [(0.0, 0.0, None), (0.9, 0.01, None), (0.5, 0.1, 0.3)])
def test_one_client_is_plain_sgd_as_pytorch_has_it(momentum: float, weight_decay: float, clip: float | None) -> None:
    client = LocalTraining(
        lr=0.1, batch="full", steps=5, optimiser=SGD(momentum=momentum, weight_decay=weight_decay), clip=clip
    )
    f = federation(local=client, sampling=Uniform(1))
    only = int(sampled(f, 0)[0])
    w = after(f, 1).w
    module = f.model
    f.layout.load(module, f.start().w)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=momentum, weight_decay=weight_decay)
    own = torch.from_numpy(f.data.clients[only])
    for _ in range(5):
        optimiser.zero_grad()
        f.goal.loss(module(f.data.train.x[own]), f.data.train.y[own]).mean().backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimiser.step()
    tolerance = 1e-6 if clip else 1e-14  # PyTorch adds 1e-6 to the norm before it divides by it
    torch.testing.assert_close(w, f.layout.flatten(module), rtol=0, atol=tolerance)


def test_clients_with_the_same_data_are_one_client() -> None:
    one = quadratic_federation([2.0], [1.0])
    many = quadratic_federation([2.0] * 4, [1.0] * 4)
    torch.testing.assert_close(after(one, 5).w, after(many, 5).w, rtol=0, atol=1e-15)


@pytest.mark.parametrize("mu", [0.0, 0.1, 1.0])
def test_fedprox_on_a_quadratic_follows_its_closed_form(mu: float) -> None:
    a, b, eta, steps, start = 2.0, 1.5, 0.1, 7, -0.4
    f = quadratic_federation(
        [a], [b], start, method=FedProx(mu), local=LocalTraining(lr=eta, batch="full", steps=steps)
    )
    target = (a * b + mu * start) / (a + mu)
    expected = target + (1 - eta * (a + mu)) ** steps * (start - target)
    assert float(after(f, 1).w) == pytest.approx(expected, abs=1e-14)


def test_ewc_on_a_quadratic_is_fedprox_with_mu_times_the_last_rounds_fisher() -> None:
    client = LocalTraining(lr=0.1, batch="full", steps=7)
    f = quadratic_federation([2.0], [1.5], -0.4, method=EWC(3.0), local=client)
    first = after(f, 1)
    w, strength = float(first.w), 3 * float(first.server_state["fisher"])
    prox = quadratic_federation([2.0], [1.5], w, method=FedProx(strength), local=client)
    close(after(f, 1, first).w, after(prox, 1).w)
    assert strength > 1


@pytest.mark.parametrize("method", [FedProx(0.0), EWC(0.0)], ids=repr)
def test_without_proximal_term_it_is_fedavg_bitwise(method: Method) -> None:
    assert torch.equal(after(federation(method=method, local=ROUGH), 4).w, after(federation(local=ROUGH), 4).w)


@pytest.mark.parametrize("method", [FedProx(5.0), EWC(5.0)], ids=repr)
def test_with_one_local_step_a_proximal_term_does_nothing_bitwise(method: Method) -> None:
    assert torch.equal(after(federation(method=method, local=WHOLE), 4).w, after(federation(local=WHOLE), 4).w)


def test_ewcs_first_round_is_fedavg_bitwise_and_its_second_is_not() -> None:
    ewc, plain = federation(method=EWC(5.0)), federation()
    assert torch.equal(after(ewc, 1).w, after(plain, 1).w)
    assert not torch.allclose(after(ewc, 2).w, after(plain, 2).w)


def test_ewcs_fisher_is_the_mean_of_squared_gradients_over_steps_and_clients() -> None:
    seen: list[list[torch.Tensor]] = []

    class Watched(EWC):
        def round_state(self, local: LocalRun) -> dict[str, torch.Tensor]:
            seen.append([])
            return super().round_state(local)

        def direction(self, step: Step) -> torch.Tensor:
            seen[-1].append(step.grad(step.w)[0] ** 2)
            return super().direction(step)

    f = federation(method=Watched(2.0))
    f.prepare()
    state = f.start()
    for t in range(3):
        seen.clear()
        sizes = torch.from_numpy(f.data.sizes[sampled(f, t)]).double()
        state, _ = f.round(state)
        of_clients = torch.stack([torch.stack(squares).mean(0) for squares in seen])
        close(state.server_state["fisher"], sizes / sizes.sum() @ of_clients)


@pytest.mark.parametrize("engine, method", rotated(["sequential", "vectorised"], MEMORIES, turns=5), ids=str)
def test_absent_clients_keep_their_memory_bitwise_and_no_two_share_any(method: Method, engine: str) -> None:
    f = federation(method=method, sampling=Uniform(3), engine=ENGINES[engine])
    state = f.start()
    for t in range(3):
        before = {name: rows.clone() for name, rows in state.client_state.items()}
        present = sampled(f, t)
        absent = np.setdiff1d(np.arange(len(SIZES)), present)
        state, _ = f.round(state)
        assert all(torch.equal(rows[absent], before[name][absent]) for name, rows in state.client_state.items())
        assert any(not torch.equal(rows[present], before[name][present]) for name, rows in state.client_state.items())
    w, server_state = state.w.clone(), {name: value.clone() for name, value in state.server_state.items()}
    for rows in state.client_state.values():
        others = rows[1:].clone()
        rows[0] = nan
        assert torch.equal(rows[1:], others)
    assert torch.equal(state.w, w) and all(
        torch.equal(state.server_state[name], value) for name, value in server_state.items()
    )


def test_every_method_with_memory_is_among_those() -> None:
    w = torch.zeros(3)
    assert {kind for kind in METHODS.values() if kind().client_state(w)} == {type(method) for method in MEMORIES}


WORDS = ("FedAvg.weighting", "Scaffold.option", "AdaBest.variant", "FedMoSWA.option")
BAD: dict[str, tuple[Any, ...]] = {f"{kind.__name__}.weighting": ("other",) for kind in METHODS.values()}
BAD |= dict.fromkeys(WORDS, ("other", None))
KINDS = {kind.__name__: kind for kind in METHODS.values()}


@pytest.mark.parametrize("field, value", [(field, value) for field, values in BAD.items() for value in values])
def test_a_bad_value_is_refused_with_one_line_that_names_it(field: str, value: Any) -> None:
    kind, option = field.split(".")
    with pytest.raises(ValueError) as refusal:
        KINDS[kind](**{option: value})
    message = str(refusal.value)
    assert message.startswith(f"{field} = {value!r}: must ") and "\n" not in message


def test_every_option_that_can_be_bad_is_among_those() -> None:
    """A bool can't be bad, and limits are tried elsewhere."""
    known = [(name, option) for name, kind in KINDS.items() for option in options(kind).values()]
    bad = {f"{name}.{option.name}" for name, option in known if option.kind is not bool and option.limit is None}
    assert bad == BAD.keys()


@pytest.mark.parametrize("name", some(METHODS, "fedacg", "feddyn", "fedlesam", "fedmoswa", "mime"))
def test_at_rate_zero_nothing_moves_and_nothing_is_refused(name: str) -> None:
    f = federation(method=METHODS[name](), local=LocalTraining(lr=0.0, batch=5))
    with f:
        state, outcome = f.round(f.start())
    assert outcome.moved
    if name != "fedfa":  # its calibration has a rate of its own
        assert torch.equal(state.w, f.start().w)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_it_is_in_one_line_and_where_it_comes_from(name: str) -> None:
    first = (METHODS[name].__doc__ or "").strip().splitlines()[0]
    assert first.endswith(".") and "20" in first
