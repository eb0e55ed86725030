"""SCAFFOLD against the identities of its paper."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from fedsash.basics.arrays import Vectors
from fedsash.local import LocalTraining
from fedsash.methods import FedAvg, LocalRun, Scaffold, Step, Upload
from fedsash.sampling import Uniform
from support.worlds import SIZES, after, federation, sampled

EVERYONE, WHOLE = Uniform(len(SIZES)), LocalTraining(lr=0.2, batch="full")
UNIFORM = FedAvg(weighting="uniform")
close = partial(torch.testing.assert_close, rtol=0, atol=1e-13)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("count", [1, 4, 6])
def test_c_is_the_mean_of_all_client_variates_after_every_round(option: Any, count: int, weighting: Any) -> None:
    f = federation(method=Scaffold(option, weighting=weighting), sampling=Uniform(count))
    state = f.start()
    for _ in range(6):
        state, _ = f.round(state)
        close(state.server_state["c"], state.client_state["c"].mean(0), atol=1e-14)
    assert float(state.server_state["c"].norm()) > 0


@pytest.mark.parametrize("option", ["I", "II"])
def test_with_one_full_batch_step_of_all_clients_it_is_gradient_descent_on_their_mean(option: Any) -> None:
    plain = after(federation(method=UNIFORM, local=WHOLE, sampling=EVERYONE), 5).w
    close(after(federation(method=Scaffold(option), local=WHOLE, sampling=EVERYONE), 5).w, plain)


def test_both_options_agree_on_the_variate_of_a_single_full_batch_step() -> None:
    one, two = (after(federation(method=Scaffold(option), local=WHOLE), 3) for option in ("I", "II"))
    close(one.client_state["c"], two.client_state["c"])


@pytest.mark.parametrize("option", ["I", "II"])
def test_its_first_round_is_uniform_fedavg_bitwise(option: Any) -> None:
    assert torch.equal(after(federation(method=Scaffold(option)), 1).w, after(federation(method=UNIFORM), 1).w)


def test_with_variates_that_stay_zero_it_is_uniform_fedavg_bitwise() -> None:
    class Forgetful(Scaffold):
        def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
            upload, client_state = super().upload(local)
            return upload | {"c": 0 * upload["c"]}, {"c": 0 * client_state["c"]}

    assert torch.equal(after(federation(method=Forgetful()), 4).w, after(federation(method=UNIFORM), 4).w)


def test_option_two_is_the_mean_gradient_along_the_way_whatever_c_was() -> None:
    """(x - y) / (K eta) is the mean corrected gradient, so c_i+ is the mean of the raw ones, sign included."""
    seen: list[torch.Tensor] = []

    class Watched(Scaffold):
        def direction(self, step: Step) -> torch.Tensor:
            seen.append(step.grad(step.w)[0])
            return super().direction(step)

    f = federation(method=Watched(), sampling=Uniform(1))
    f.prepare()
    state = f.start()
    for _ in range(4):
        seen.clear()
        client = int(sampled(f, state.round)[0])
        state, _ = f.round(state)
        close(state.client_state["c"][client], torch.stack(seen).mean(0))
