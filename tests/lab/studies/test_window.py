"""What a window holds: its mean from the updates of rounds and of clients, by closed forms and in a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedsash as fs
from fedsash import Broadcast, SettingError
from fedsash.averages import Window
from fedsash.averages.trajectory import Past
from fedsash.lab.studies.client_models import client_models
from fedsash.lab.studies.opened import OpenRun, open_run
from fedsash.lab.studies.window import WindowStudy, client_weights, distances, participation, round_weights
from fedsash.methods import FedAvg, FedCM, FedProx, Method
from fedsash.methods.sampling import Uniform
from fedsash.methods.server_optimisers import FedAdam, ServerSGD
from fedsash.server.federation import Federation
from support import trajectories
from support.by_default import rotated
from support.studies import ROUNDS, analysis, fedsash
from support.trajectories import Alone
from support.worlds import SIZES, federation

WINDOWS = [Window(1), Window(4), Window(20), Window(3, every=2), Window(3, start=5)]


def follow(window: Window, models: Tensor) -> Alone:
    """A window that has seen w_1, w_2, ..."""
    return trajectories.follow(window, torch.cat([models[:1], models]))


def walk(rounds: int) -> Tensor:
    return torch.randn(rounds, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).cumsum(0)


def trace(f: Federation, rounds: int) -> tuple[list[Tensor], Tensor, dict[str, Past], dict[str, Tensor]]:
    """The models w_0, ..., the clients' updates `[t, N, D]`, what windows hold, and their values."""
    with f:
        state = f.start()
        models, deltas = [state.w], torch.zeros(rounds, len(SIZES), f.layout.size, dtype=torch.float64)
        for t in range(rounds):
            if len(f.sampling.clients(t, f.data.sizes, f.seed)):
                trained = client_models(f, state)
                deltas[t, torch.from_numpy(trained.ids)] = trained.w - f.server_round.send(state)[0]
            state, _ = f.round(state)
            models.append(state.w)
        return models, deltas, state.past, f.models(state)


# --- rounds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size, rounds", [(1, 1), (1, 6), (4, 2), (4, 4), (4, 9)])
def test_the_weights_of_wima_fall_linearly_over_the_window(size: int, rounds: int) -> None:
    """Eq. 6 with rounds from 1: (t + 1 - tau)/W within the window, 1 before it; W the models that there are."""
    w = min(size, rounds)
    closed = [min((rounds + 1 - tau) / w, 1.0) for tau in range(1, rounds + 1)]
    assert round_weights(follow(Window(size), walk(rounds)).held).tolist() == closed


def test_a_window_over_every_kth_round_has_steps_of_k_equal_weights() -> None:
    c = round_weights(follow(Window(3, every=2), walk(9)).held)  # holds rounds 4, 6 and 8
    assert c.tolist() == [1, 1, 1, 1, 2 / 3, 2 / 3, 1 / 3, 1 / 3]


def test_a_model_that_was_retracted_has_no_weight() -> None:
    window = follow(Window(3), walk(6)).retract(5)
    assert round_weights(window.held).tolist() == [1, 1, 1, 1, 0.5, 0.5]


@pytest.mark.parametrize(
    "window, server", rotated(WINDOWS, [ServerSGD(), ServerSGD(0.7, momentum=0.5), FedAdam(0.05)], turns=3), ids=str
)
def test_the_weighted_updates_of_rounds_are_the_average_whatever_the_server_optimiser(
    window: Window, server: ServerSGD | FedAdam
) -> None:
    models, _, past, values = trace(federation(server=server, averages={"wima": window}), 9)
    c = round_weights(past["wima"])
    updates = torch.stack(models).diff(dim=0)[: len(c)]
    torch.testing.assert_close(models[0] + c @ updates, values["wima"], rtol=0, atol=1e-12)


# --- clients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "window, method",
    rotated(WINDOWS, [FedAvg(), FedAvg(weighting="uniform"), FedProx(0.2), FedCM(0.3)], turns=3),
    ids=str,
)
def test_the_weighted_updates_of_clients_are_the_average(window: Window, method: Method) -> None:
    f = federation(method=method, averages={"wima": window})
    models, deltas, past, values = trace(f, 9)
    weights = client_weights(past["wima"], participation(f, 9))
    mean = models[0] + torch.einsum("tn,tnd->d", weights, deltas[: len(weights)])
    torch.testing.assert_close(mean, values["wima"], rtol=0, atol=1e-12)


def test_a_servers_learning_rate_scales_the_weights_of_clients() -> None:
    f = federation(server=ServerSGD(0.3), averages={"wima": Window(4)})
    models, deltas, past, values = trace(f, 6)
    weights = 0.3 * client_weights(past["wima"], participation(f, 6))
    mean = models[0] + torch.einsum("tn,tnd->d", weights, deltas)
    torch.testing.assert_close(mean, values["wima"], rtol=0, atol=1e-12)


def test_rounds_in_which_nobody_answers_have_no_weight_and_the_identity_holds() -> None:
    answers = np.ones((3, len(SIZES)), dtype=np.bool_)
    answers[1] = False
    f = federation(sampling=Uniform(4, trace=answers), averages={"wima": Window(3)})
    models, deltas, past, values = trace(f, 9)
    p = participation(f, 9)
    assert p.sum(1).tolist() == pytest.approx([1, 0, 1] * 3, abs=1e-15)
    weights = client_weights(past["wima"], p)
    mean = models[0] + torch.einsum("tn,tnd->d", weights, deltas[: len(weights)])
    torch.testing.assert_close(mean, values["wima"], rtol=0, atol=1e-12)


def test_summed_over_clients_the_weights_are_those_of_the_rounds() -> None:
    f = federation(averages={"wima": Window(3)})
    _, _, past, _ = trace(f, 6)
    weights = client_weights(past["wima"], participation(f, 6))
    torch.testing.assert_close(weights.sum(1), round_weights(past["wima"]), rtol=0, atol=1e-15)


def test_with_all_clients_in_every_round_participation_is_their_share_of_the_samples() -> None:
    f = federation(sampling=Uniform(len(SIZES)))
    share = torch.tensor(SIZES, dtype=torch.float64) / sum(SIZES)
    torch.testing.assert_close(participation(f, 3), share.expand(3, -1), rtol=0, atol=1e-16)


# --- distances ----------------------------------------------------------------------------------------------------


def test_the_distances_are_those_of_the_models_from_the_windows_value_oldest_first() -> None:
    models = walk(9)
    window = follow(Window(4), models)
    rounds, found = distances(window.held)
    assert rounds.tolist() == [6, 7, 8, 9]
    closed = torch.linalg.vector_norm(models[5:] - window.value(models[-1]), dim=1)
    torch.testing.assert_close(found, closed, rtol=0, atol=1e-14)


def test_models_on_a_straight_line_lie_as_far_from_their_mean_as_their_rounds_do() -> None:
    step = torch.tensor([3.0, 4.0], dtype=torch.float64)
    _, found = distances(follow(Window(5), torch.arange(1, 8)[:, None] * step).held)
    torch.testing.assert_close(found, 5 * torch.tensor([2.0, 1, 0, 1, 2], dtype=torch.float64), rtol=0, atol=1e-14)


def test_a_window_with_one_model_has_no_width() -> None:
    rounds, found = distances(follow(Window(5), walk(1)).held)
    assert rounds.tolist() == [1] and found.tolist() == [0]


# --- refusals -----------------------------------------------------------------------------------------------------


def test_an_empty_window_and_missing_rounds_are_refused() -> None:
    empty = Alone(Window(3), torch.zeros(3, dtype=torch.float64)).held
    for measure in (round_weights, distances):
        with pytest.raises(ValueError, match=r"^window = 'empty'"):
            measure(empty)
    with pytest.raises(ValueError, match="must have 6 rounds or more"):
        client_weights(follow(Window(3), walk(6)).held, torch.zeros(5, 2))


# --- in a run -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("average, size", [("w", 3), ("wide", 6), ("late", 1)])
def test_a_windows_weights_are_those_of_wimas_equation_6(opened: OpenRun, average: str, size: int) -> None:
    """(t + 1 - tau)/W within the window and 1 before it, W the models that there are; clients share them out."""
    found = WindowStudy(average).write([opened], "x")
    assert found["round"] == ROUNDS and found["rounds"] == list(range(1, ROUNDS + 1))
    closed = [min((ROUNDS + 1 - tau) / size, 1) for tau in found["rounds"]]
    assert found["weights"] == pytest.approx(closed, rel=1e-15)
    assert found["distance_rounds"] == list(range(ROUNDS - size + 1, ROUNDS + 1))
    assert sum(found["weights"]) == pytest.approx(np.mean(found["distance_rounds"]))
    assert sum(found["clients"]) == pytest.approx(sum(found["weights"]))


def test_the_window_command_writes_what_the_study_finds(opened: OpenRun) -> None:
    assert fedsash("window", opened.folder, "--average", "w", "--round", 3) == 0
    found = WindowStudy("w", 3).write([opened], "x")
    written = analysis(opened.folder, "window_w_3")
    assert written.pop("command").startswith("fedsash window") and written.pop("checksum")
    assert written == {key: value for key, value in found.items() if key != "command"}


def test_a_window_of_clients_means_is_no_sum_of_the_rounds_updates(tmp_path: Path) -> None:
    """With the server's plain step the means are the models."""
    settings: dict[str, Any] = {"averages": {"w": Window(3)}, "broadcast": Broadcast("w", order="before")}
    plain, adam = federation(**settings), federation(server=FedAdam(), **settings)
    for name, made in {"plain": plain, "adam": adam}.items():
        fs.run(made, 4, out=tmp_path / name, progress=False)
    assert len(WindowStudy("w").measure([open_run(tmp_path / "plain", federation=plain)])["weights"]) == 4
    with pytest.raises(SettingError, match=r"WindowStudy\.average = 'w': must be a window of global models"):
        WindowStudy("w").measure([open_run(tmp_path / "adam", federation=adam)])
