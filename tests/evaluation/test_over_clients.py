"""What clients make of a model on samples of their own: each of them, their mean, their worst tenth, their spread."""

from __future__ import annotations

import copy
from dataclasses import replace
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from fedsash.averages import Window
from fedsash.evaluation import Evaluation, FineTuning, Score, over_clients
from fedsash.server.federation import Federation
from fedsash.tasks import R2
from support.regression import numbers, regression
from support.worlds import ENGINES, SIZES, data, federation

several = st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=45)


@given(values=several, better=st.sampled_from(["higher", "lower"]))
def test_the_numbers_over_clients_are_those_of_a_sorted_list(values: list[float | None], better: Any) -> None:
    defined = [value for value in values if value is not None]
    worst = sorted(defined, reverse=better == "lower")[: max(len(defined) // 10, 1)]
    given = np.array([np.nan if value is None else value for value in values])
    found = over_clients(given, np.where(np.isnan(given), 0, 7), better)
    assert (found["scored"], found["without_samples"], found["undefined"]) == (
        len(defined),
        len(values) - len(defined),
        0,
    )
    four = [found[name] for name in ("client_mean", "worst_tenth", "client_std", "worst_client")]
    if defined:
        assert four == pytest.approx([fmean(defined), fmean(worst), pstdev(defined), worst[0]], abs=1e-12)
    else:
        assert np.isnan(four).all()


@given(value=st.floats(-1e6, 1e6), count=st.integers(1, 50))
def test_equal_clients_have_no_spread_at_all(value: float, count: int) -> None:
    found = over_clients(np.full(count, value), np.ones(count), "higher")
    assert found["client_std"] == 0 and found["worst_client"] == value


@pytest.mark.filterwarnings("error")
def test_an_infinite_loss_makes_the_mean_infinite_without_a_warning() -> None:
    numbers_of = over_clients(np.array([np.inf, 1.0]), np.ones(2), "lower")
    assert numbers_of["client_mean"] == numbers_of["worst_client"] == np.inf
    assert np.isnan(numbers_of["client_std"])


def by_hand(world: Federation, w: torch.Tensor, samples: Any, own: Any) -> float:
    """The accuracy of a model on some samples, by plain PyTorch."""
    output = copy.deepcopy(world.module_of(w)).eval()(samples.x[torch.from_numpy(own)])
    return float((output.argmax(1) == samples.y[torch.from_numpy(own)]).double().mean())


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_each_client_has_its_own_result_for_every_model_on_held_out_and_on_its_own_test_samples(engine: Any) -> None:
    own_test = [[0, 3, 4], [5], [], [6, 7, 8, 9, 10], [11, 12], [1, 2]]
    evaluation = Evaluation(held_out=0.3, client_test=True)
    world = federation(
        data=replace(data(), client_test=own_test), evaluation=evaluation, averages={"w": Window(2)}, engine=engine
    )
    with world:
        state = world.start()
        for _ in range(3):
            state, _ = world.round(state)
        metrics = {(m.model, m.split): m for m in world.evaluate(state)}
    both = world.training_data
    for model, w in world.models(state).items():
        for split, samples, of in (
            ("held_out", both.train, both.held),
            ("client_test", both.test, both.client_test),
        ):
            found = metrics[model, split]
            expected = [by_hand(world, w, samples, own) if len(own) else np.nan for own in of]
            assert found.each is not None
            np.testing.assert_allclose(found.each, expected, rtol=0, atol=1e-15)
            defined = [value for value in expected if not np.isnan(value)]
            assert found.more["client_mean"] == pytest.approx(fmean(defined), abs=1e-15)
            assert found.more["worst_client"] == found.more["worst_tenth"] == min(defined)
            assert found.more["client_std"] == pytest.approx(pstdev(defined), abs=1e-15)
            assert found.more["scored"] + found.more["without_samples"] == len(SIZES)
            pooled = np.concatenate([own for own in of])
            assert found["accuracy"] == pytest.approx(by_hand(world, w, samples, pooled), abs=1e-15)


def test_the_records_have_the_numbers_but_no_row_a_client() -> None:
    with federation(evaluation=Evaluation(client_test=True)) as world:
        rows = [m.row() for m in world.evaluate(world.start())]
    assert [row["split"] for row in rows] == ["test", "client_test"]
    assert {"client_mean", "worst_tenth", "client_std", "worst_client", "scored"} < rows[1].keys() - {"each"}


def test_a_metric_that_is_not_defined_for_a_client_is_left_out_and_counted() -> None:
    tested = [[0], [1, 2, 3, 4], [], [5, 6, 7], [8, 9], [10]]
    world = regression(
        data=replace(numbers(), client_test=tested),
        metrics={"r2": R2()},
        evaluation=Evaluation(client_test=True, metric="r2"),
    )
    with world:
        found = next(m for m in world.evaluate(world.start()) if m.split == "client_test")
    assert found.each is not None and np.isnan(found.each).tolist() == [True, False, True, False, False, True]
    assert (found.more["scored"], found.more["without_samples"], found.more["undefined"]) == (3, 1, 2)


def test_the_test_set_is_dealt_out_by_labels_if_the_data_do_not_say_whose_it_is() -> None:
    with federation(evaluation=Evaluation(client_test=True)) as world:
        found = world.evaluate(world.start())
    [central], [own] = ([m for m in found if m.split == split] for split in ("test", "client_test"))
    assert (own["accuracy"], own.loss) == pytest.approx((central["accuracy"], central.loss)), "all samples are dealt"


def test_asking_for_client_test_changes_no_other_number() -> None:
    def evaluated(**settings: Any) -> list[Score]:
        with federation(evaluation=Evaluation(held_out=0.3, **settings), averages={"w": Window(2)}) as world:
            state, _ = world.round(world.start())
            return [m for m in world.evaluate(state) if m.split in ("test", "held_out")]

    tuning = FineTuning(epochs=2)
    assert evaluated() == evaluated(client_test=True, clients=True) == evaluated(fine_tuning=tuning)


@pytest.mark.parametrize(
    ("evaluation", "line"),
    [
        ({"fine_tuning": FineTuning()}, "evaluation.fine_tuning = .*: needs samples that no client trains on"),
        ({"client_test": True}, "evaluation.client_test = True: must be false: there is no test set"),
    ],
)
def test_what_has_no_samples_is_refused(evaluation: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        federation(data=replace(data(), test=None), evaluation=Evaluation(**evaluation))


def test_fine_tuning_is_so_many_steps_or_so_many_epochs() -> None:
    with pytest.raises(ValueError, match=r"FineTuning.steps = 3: can't be combined with epochs"):
        FineTuning(epochs=2, steps=3)


def test_cross_entropy_of_clients_is_a_criterion_too() -> None:
    with federation(evaluation=Evaluation(client_test=True, metric="loss")) as world:
        state = world.start()
        [found] = [m for m in world.evaluate(state) if m.split == "client_test"]
        test, own = world.training_data.test, world.training_data.client_test
        assert test is not None
        index = [torch.from_numpy(rows) for rows in own if len(rows)]
        model = world.module_of(state.w).eval().requires_grad_(False)
        output = [F.cross_entropy(model(test.x[i]), test.y[i]) for i in index]
    assert found.more["client_mean"] == pytest.approx(fmean(map(float, output)), rel=1e-12)
    assert found.more["worst_client"] == pytest.approx(max(map(float, output)), rel=1e-12)
