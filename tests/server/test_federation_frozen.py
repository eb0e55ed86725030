"""A federation is a value: nothing overwrites its fields, and looking at it changes nothing."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
import torch

from fedsash.client import LocalTraining
from fedsash.client.messages import Reply
from fedsash.engines import LocalEngine
from fedsash.evaluation import Evaluation
from fedsash.methods import Scaffold, WeightedMean
from fedsash.methods.schedules import Exponential, Mild
from fedsash.runs.tally import best_after
from fedsash.server.federation import Federation
from support.broadcasting import ALONE, noisy
from support.worlds import after, best, federation, identical, learned, mlp, record

HOLDING: Any = {"evaluation": Evaluation(held_out=0.4), "method": Scaffold()}


@pytest.fixture(scope="module")
def trained() -> tuple[Federation, dict[str, Any]]:
    """A federation after two rounds, and the values of its fields before them."""
    world = federation(**HOLDING)
    before = {field.name: getattr(world, field.name) for field in fields(world)}
    after(world, 2)
    return world, before


@pytest.mark.parametrize("name", [field.name for field in fields(Federation)])
def test_no_field_can_be_overwritten_and_none_is_by_training(
    name: str, trained: tuple[Federation, dict[str, Any]]
) -> None:
    world, before = trained
    with pytest.raises(FrozenInstanceError):
        setattr(world, name, before[name])
    assert getattr(world, name) is before[name]


def test_replacing_a_setting_gives_the_federation_made_with_it() -> None:
    """Also where data are held out: they are held out of what was given, once."""
    made = federation(**HOLDING, seed=1)
    replaced = replace(federation(**HOLDING, seed=0), seed=1)
    assert replaced.sizes.tolist() == made.sizes.tolist()
    assert [h.tolist() for h in replaced.training_data.held] == [h.tolist() for h in made.training_data.held]
    assert identical(after(replaced, 3), after(made, 3))
    again = replace(made, seed=0)
    assert identical(after(again, 3), after(federation(**HOLDING, seed=0), 3))


def test_a_replaced_federation_has_an_executor_of_its_own() -> None:
    with federation() as one, replace(one, seed=7) as other:
        assert one.executor is not other.executor


def test_the_model_is_copied_so_later_changes_of_it_change_nothing() -> None:
    model = mlp()
    world = federation(model=model)
    expected = after(federation(), 3).w
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(after(world, 3).w, expected)


def test_evaluating_twice_changes_nothing() -> None:
    """Not the state, not the training after it, and not what an adaptive broadcast decides."""
    with noisy(broadcast=ALONE) as world:
        state = after(world, 3)
        kept = record(state)
        one, two = world.evaluate(state), world.evaluate(state)
        assert one == two and identical(state, kept)
        assert state.choice is not None and state.choice.better == 0
        assert learned(world, state) is not state and best(world, state).keys() == {"model", "wima", "ema"}
        assert identical(state, kept), "what is learned is in the state that `learn` gives back"


def test_the_best_model_is_the_first_of_equally_good_ones() -> None:
    with federation(evaluation=Evaluation(best_on="test")) as world:
        state = after(world, 2)
        first = best(world, state)
        later = best_after(first, world, replace(state, round=9), world.evaluate(state))
        assert later["model"].round == 2


@pytest.mark.parametrize("settings", [{"kind": "sequental"}, {"kind": "vectorized"}, {"memory_format": "nchw"}])
def test_an_engine_that_there_is_not_is_refused(settings: dict[str, Any]) -> None:
    (name, value), *_ = settings.items()
    with pytest.raises(ValueError, match=rf"^LocalEngine.{name} = '{value}': must be '"):
        LocalEngine(**settings)


@pytest.mark.parametrize("value", ["two", 1.5])
def test_numbers_of_an_engine_are_integers_or_auto(value: Any) -> None:
    for name in ("workers", "block", "threads"):
        with pytest.raises(ValueError, match=rf"^LocalEngine.{name} = .*: must be an integer or 'auto'$"):
            LocalEngine(**{name: value})


def test_a_round_is_so_many_steps_or_so_many_epochs() -> None:
    line = r"^LocalTraining.steps = 3: can't be combined with epochs, or with a schedule of epochs"
    with pytest.raises(ValueError, match=line):
        LocalTraining(epochs=5, steps=3)
    with pytest.raises(ValueError, match=line):
        LocalTraining(steps=3, schedule=Mild(start=2, scheme="epochs"))
    LocalTraining(steps=3, schedule=Exponential(0.9))


def test_only_accepted_clients_have_a_new_version_of_their_state() -> None:
    """A client whose upload is refused goes on from the state that it had."""
    world = federation(method=Scaffold())
    state = after(world, 1)
    with world:
        replies = [answer for answer in world.executor.work(world.ask(state)) if isinstance(answer, Reply)]
    limit = float(torch.cat([reply.norms for reply in replies]).median())
    strict = replace(world, aggregation=WeightedMean(limit=limit))
    with strict:
        before = {name: rows.clone() for name, rows in state.client_state.items()}
        last = state.last.clone()
        moved, outcome = strict.round(state)
    accepted = [i for i in outcome.clients.tolist() if i not in outcome.refused]
    assert outcome.refused and accepted, "the limit lies between the norms"
    for i in range(len(last)):
        assert moved.last[i] == (2 if i in accepted else last[i])
        if i in outcome.refused:
            assert all(torch.equal(moved.client_state[name][i], before[name][i]) for name in before)
