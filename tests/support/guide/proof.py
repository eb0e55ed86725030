"""FedVARP against its identities."""

from __future__ import annotations

import pytest

from fedsash.client import LocalTraining
from fedsash.methods import FedAvg, FedVARP
from fedsash.methods.sampling import Uniform
from fedsash.testing import after, check_method, close, quadratic_federation, small_federation
from fedsash.testing.worlds import SIZES


def test_it_keeps_what_every_method_keeps() -> None:
    check_method(FedVARP())


def test_y_is_the_mean_of_all_last_updates_after_every_round() -> None:
    with small_federation(method=FedVARP()) as f:
        state = f.start()
        for _ in range(6):
            state, _ = f.round(state)
            assert close(state.server_state["y"], state.client_state["y"].mean(0), 1e-15)
    assert float(state.server_state["y"].norm()) > 0


def test_with_all_clients_in_every_round_it_is_uniform_fedavg() -> None:
    everyone = Uniform(len(SIZES))
    fedavg = after(small_federation(method=FedAvg(weighting="uniform"), sampling=everyone), 5).w
    assert close(after(small_federation(method=FedVARP(), sampling=everyone), 5).w, fedavg, 1e-14)


def test_with_one_client_a_round_it_comes_to_rest_where_fedavg_with_all_clients_does() -> None:
    """In K steps of rate eta a client with f_i(w) = a_i/2 * (w - b_i)^2 goes the share 1 - (1 - eta a_i)^K to b_i."""
    eta, steps, a, b = 0.1, 5, [1.0, 3.0], [0.0, 1.2]
    pull = [1 - (1 - eta * a_i) ** steps for a_i in a]
    rest = sum(p * b_i for p, b_i in zip(pull, b, strict=True)) / sum(pull)
    client, alone = LocalTraining(lr=eta, batch="full", steps=steps), Uniform(1)
    reached = after(quadratic_federation(a, b, method=FedVARP(), local=client, sampling=alone), 200).w
    assert float(reached) == pytest.approx(rest, abs=1e-12)
    restless = after(quadratic_federation(a, b, local=client, sampling=alone), 200).w
    assert abs(float(restless) - rest) > 0.1
