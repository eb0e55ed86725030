"""Clients that fine-tune a copy of a model before they score it."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedsash.averages import Window
from fedsash.client import SGD, Adam, LocalTraining
from fedsash.evaluation import Evaluation, FineTuning, Score
from fedsash.methods import Method, Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.methods.schedules import Exponential
from fedsash.server.federation import Federation
from fedsash.settings.errors import SettingError
from fedsash.testing import identical
from fedsash.vector.sharing import OWN
from support.by_default import rotated, some
from support.norms import with_norm
from support.worlds import ENGINES, EVERY_ENGINE, SEQUENTIAL, SPAWNED_TOO, VECTORISED, data, federation

ADAM = LocalTraining(lr=0.01, batch=5, optimiser=Adam(), keep_moments=True)
COMPILED = replace(VECTORISED, compile=True)
TESTED = [[0, 3, 4, 13], [5, 14, 15], [16], [6, 7, 8, 9, 10], [11, 12, 17], [1, 2, 18, 19]]


def tuned(tuning: FineTuning | None, rounds: int = 2, **settings: Any) -> dict[tuple[str, str], Score]:
    """The results of a federation after some rounds, whose clients score fine-tuned models too."""
    settings = {"averages": {"w": Window(2)}} | settings
    evaluation = Evaluation(held_out=0.3, client_test=True, fine_tuning=tuning, metric="loss")
    with federation(data=replace(data(), client_test=TESTED), evaluation=evaluation, **settings) as world:
        state = world.start()
        for _ in range(rounds):
            state, _ = world.round(state)
        before = copy.deepcopy(state)
        found = {(m.model, m.split): m for m in world.evaluate(state)}
        assert identical(before, state), "trained copies are thrown away"
    return found


def close(one: dict[tuple[str, str], Score], other: dict[tuple[str, str], Score], tolerance: float = 0) -> None:
    """Check that the results of every client are the same."""
    assert one.keys() == other.keys()
    for key, found in one.items():
        if found.each is not None and other[key].each is not None:
            np.testing.assert_allclose(found.each, other[key].each, rtol=0, atol=tolerance)
        assert found.loss == pytest.approx(other[key].loss, rel=0, abs=tolerance), key


def test_a_number_in_its_place_is_refused_and_told_what_would_be_right() -> None:
    with pytest.raises(SettingError, match=r"fine_tuning = 2: must be a FineTuning, such as FineTuning\(epochs=2\)$"):
        Evaluation(client_test=True, fine_tuning=2)  # type: ignore[arg-type]


def test_all_clients_tune_by_the_same_amount_whatever_they_train_by() -> None:
    local = LocalTraining(lr=0.1, batch=5, epochs=3)
    fewer = replace(local, epochs=(1, 2), stragglers=1.0, keep_moments=True)
    close(tuned(FineTuning(steps=4), 0, local=fewer), tuned(FineTuning(steps=4), 0, local=local))


def test_results_before_and_after_tuning_are_both_there() -> None:
    found = tuned(FineTuning(epochs=3))
    splits = {split for model, split in found if model == "w"}
    assert splits == {"test", "held_out", "client_test", "held_out_tuned", "client_test_tuned"}
    assert found["w", "client_test"].loss != found["w", "client_test_tuned"].loss
    close({k: m for k, m in found.items() if not k[1].endswith("tuned")}, tuned(None))


@pytest.mark.parametrize("engine, none", rotated(ENGINES, [FineTuning(epochs=0), FineTuning(steps=0)], turns=2))
def test_without_a_step_the_results_are_those_of_the_model(engine: str, none: FineTuning) -> None:
    found = tuned(none, engine=ENGINES[engine])
    for model in ("model", "w"):
        for split in ("held_out", "client_test"):
            close({("", ""): found[model, split]}, {("", ""): found[model, f"{split}_tuned"]}, 1e-15)


def by_hand(world: Federation, w: Tensor, client: int, steps: int, make: Any) -> float:
    """A client's loss on its test samples after full-batch steps of one of PyTorch's optimisers."""
    model, both = world.module_of(w), world.training_data
    own, optimiser = torch.from_numpy(both.clients[client]), make(model.parameters())
    for _ in range(steps):
        optimiser.zero_grad()
        F.cross_entropy(model(both.train.x[own]), both.train.y[own]).backward()
        optimiser.step()
    assert both.test is not None
    tested = torch.from_numpy(both.client_test[client])
    return float(F.cross_entropy(model(both.test.x[tested]), both.test.y[tested]).detach())


@pytest.mark.parametrize("engine", [SEQUENTIAL, VECTORISED], ids=["sequential", "vectorised"])
@pytest.mark.parametrize(
    ("optimiser", "make"),
    [
        (SGD(momentum=0.9), lambda p: torch.optim.SGD(p, 0.05, momentum=0.9)),
        (Adam(), lambda p: torch.optim.Adam(p, 0.05)),
    ],
)
def test_with_full_batches_each_client_takes_pytorchs_steps_from_the_model_that_is_scored(
    engine: Any, optimiser: Any, make: Any
) -> None:
    local = LocalTraining(lr=0.05, batch="full", optimiser=optimiser, epochs=2, keep_moments=True)
    evaluation = Evaluation(client_test=True, fine_tuning=FineTuning(steps=4), metric="loss")
    given = replace(data(), client_test=TESTED)
    with federation(
        data=given, local=replace(local), evaluation=evaluation, averages={"w": Window(2)}, engine=engine
    ) as world:
        state = world.start()
        for _ in range(2):
            state, _ = world.round(state)
        found = {(m.model, m.split): m for m in world.evaluate(state)}
        for name, w in world.models(state).items():
            expected = [by_hand(world, w, i, 4, make) for i in range(len(TESTED))]
            each = found[name, "client_test_tuned"].each
            assert each is not None
            np.testing.assert_allclose(each, expected, rtol=1e-12)


@pytest.mark.parametrize("method", [Scaffold()])
def test_a_methods_memory_belongs_to_its_training_and_not_to_tuning(method: Method) -> None:
    with federation(method=method) as world, federation() as plain:
        state, _ = world.round(world.start())
        evaluation = Evaluation(client_test=True, fine_tuning=FineTuning(), metric="loss")
        with (
            replace(world, evaluation=evaluation) as one,
            replace(plain, evaluation=evaluation) as other,
        ):
            close(
                {(m.model, m.split): m for m in one.judge(state.w, 1, "model", state)},
                {(m.model, m.split): m for m in other.judge(state.w, 1, "model")},
            )


@pytest.mark.parametrize("name", ["vectorised", "workers", SPAWNED_TOO])
def test_every_executor_gives_every_client_the_same_result(name: str) -> None:
    local = LocalTraining(lr=0.1, batch=2, epochs=2)
    settings: dict[str, Any] = {"local": local, "sampling": Uniform(4)}
    one = tuned(FineTuning(epochs=2), **settings)
    other = tuned(FineTuning(epochs=2), engine=EVERY_ENGINE[name], **settings)
    close(one, other, 1e-13 if name == "vectorised" else 0)


def test_on_a_simulated_network_nothing_changes() -> None:
    from fedsash.network import OnNetwork

    given = replace(data(), client_test=TESTED)
    evaluation = Evaluation(client_test=True, fine_tuning=FineTuning(epochs=2))
    here = federation(data=given, evaluation=evaluation)
    with here, replace(here, data=OnNetwork(here.clients)) as there:
        plain, _ = here.round(here.start())
        state, _ = there.round(there.start())
        before = there.saved(state).executor
        close(
            {(m.model, m.split): m for m in here.evaluate(plain)},
            {(m.model, m.split): m for m in there.evaluate(state)},
        )
        assert all(torch.equal(old, there.saved(state).executor[name]) for name, old in before.items())


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"method": Scaffold()}, {"local": ADAM}], ids=["plain", "scaffold", "adam"])
def test_compiled_steps_tune_as_others_do_whatever_training_remembers(settings: dict[str, Any]) -> None:
    one, other = (tuned(FineTuning(epochs=2), engine=engine, **settings) for engine in (VECTORISED, COMPILED))
    close(one, other, 1e-11)


def test_the_draws_are_a_pure_function_of_the_seed_and_the_round_and_its_own() -> None:
    local = LocalTraining(lr=0.3, batch=2, epochs=1)
    evaluation = Evaluation(client_test=True, fine_tuning=FineTuning(), metric="loss")
    with federation(local=local, evaluation=evaluation) as world:
        w = world.start().w

        def each(round: int) -> list[float]:
            found = {m.split: m.each for m in world.judge(w, round, "model")}["client_test_tuned"]
            assert found is not None
            return list(np.nan_to_num(found))  # a client without test samples has no result

        assert each(3) == each(3) != each(4)


def test_the_rate_is_that_of_the_last_round_or_ones_own() -> None:
    local = LocalTraining(lr=0.1, batch=4, schedule=Exponential(0.5))
    now = tuned(FineTuning(), local=local, rounds=3)
    for lr, same in ((0.1 * 0.5**2, True), (0.1, False)):
        own = tuned(FineTuning(lr=lr), local=local, rounds=3)
        equal = np.array_equal(now["model", "held_out_tuned"].each, own["model", "held_out_tuned"].each, equal_nan=True)
        assert equal == same


@pytest.mark.parametrize("buffers", some(["average", "local", "local_norm"], "local_norm"))
@pytest.mark.parametrize("engine", [SEQUENTIAL, VECTORISED], ids=["sequential", "vectorised"])
def test_what_clients_keep_of_batch_norm_moves_with_their_copy_only(buffers: Any, engine: Any) -> None:
    evaluation = Evaluation(clients=True, held_out=0.3, fine_tuning=FineTuning(epochs=2), metric="loss")
    local = LocalTraining(lr=0.1, batch="full")
    with with_norm(buffers=buffers, evaluation=evaluation, engine=engine, local=local) as world:
        state, _ = world.round(world.start())
        kept = {name: rows.clone() for name, rows in state.client_state.items()}
        found = {m.split: m for m in world.evaluate(state)}
        assert all(torch.equal(rows, state.client_state[name]) for name, rows in kept.items())
        assert (OWN in kept) == (buffers != "average")
    assert found["held_out"].loss != found["held_out_tuned"].loss
