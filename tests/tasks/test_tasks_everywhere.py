"""Every task in every engine, and every metric on every split against an account in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from _pytest.mark import ParameterSet
from numpy.typing import NDArray

from fedsash.data.inputs import call
from fedsash.data.samples import Samples
from fedsash.engines import LocalEngine
from fedsash.evaluation import Score
from fedsash.server.federation import Federation
from fedsash.server.state import State
from fedsash.tasks import METRICS, TASKS, TorchMetric
from support.by_default import by_default, some
from support.tasks import PROBLEMS, median
from support.worlds import ENGINES, SEQUENTIAL, SIZES, VECTORISED, WORKERS, after, identical

COMPILED = LocalEngine("vectorised", 1, 3, True, "contiguous", 1)


def test_every_registered_task_and_metric_has_a_problem() -> None:
    assert {type(problem.task) for problem in PROBLEMS.values()} == set(TASKS.values())
    used = {type(m) for p in PROBLEMS.values() for m in (*p.task.metrics.values(), *p.metrics.values())}
    assert used == set(METRICS.values()) - {TorchMetric}


@pytest.mark.parametrize(
    "name", some(PROBLEMS, "multi_label", "segmentation", "next_character", "several inputs by place")
)
def test_engines_agree_on_the_model_and_on_the_metrics(name: str) -> None:
    problem = PROBLEMS[name]
    with problem.federation() as f:
        state = after(f, 3)
        found = f.evaluate(state)
    assert found[0].loss < f.evaluate(f.start())[0].loss
    with problem.federation(engine=VECTORISED) as f:
        stacked = after(f, 3)
        assert near(f.evaluate(state), found)
    torch.testing.assert_close(stacked.w, state.w, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", some(PROBLEMS, "several inputs by name"))
def test_worker_processes_agree_on_the_model_and_on_the_metrics(name: str) -> None:
    problem = PROBLEMS[name]
    with problem.federation() as f:
        state = after(f, 2)
        found = f.evaluate(state)
    with problem.federation(engine=WORKERS) as f:
        assert identical(state, after(f, 2))
        assert near(f.evaluate(state), found)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_compiled_steps_agree(name: str) -> None:
    compiled = after(PROBLEMS[name].federation(engine=COMPILED), 2).w
    torch.testing.assert_close(compiled, after(PROBLEMS[name].federation(), 2).w, rtol=0, atol=1e-12)


def near(one: list[Score], other: list[Score]) -> bool:
    """Whether the same models have the same metrics on the same splits, but for the order of sums."""
    return list(map(_in_words, one)) == list(map(_in_words, other))


def _in_words(score: Score) -> list[str]:
    """The model, the split and all metrics of a score, with eleven digits of each number."""
    words = [score.model, score.split]
    for name, value in score.row().items():
        words.append(name)
        values = [value]
        if isinstance(value, dict):
            values = list(value.values())
        elif isinstance(value, list):
            values = value
        for number in values:
            words.append(f"{number:.11g}" if isinstance(number, float) else str(number))
    return words


def accounted() -> list[ParameterSet]:
    """By default each problem in an engine, of which one has worker processes."""
    engine_of = {}
    for number, name in enumerate(PROBLEMS):
        engine_of[name] = "vectorised" if number % 2 else "sequential"
    engine_of["multi_label"] = "workers"
    pairs = [pytest.param(name, engine) for name in PROBLEMS for engine in ENGINES]
    return by_default(pairs, lambda name, engine: engine_of[name] == engine)


def outputs_of(f: Federation, state: State, samples: Samples) -> NDArray[Any]:
    """The outputs for samples, from the plain module."""
    module = f.module_of(state.w).eval()
    x = f.training_data.transform.inputs(samples.x[torch.arange(len(samples))], f.layout.dtype)
    with torch.no_grad():
        return f.goal.task.answer(call(module, x), samples.y).numpy()


@pytest.mark.parametrize("name, engine", accounted())
def test_every_metric_on_every_split_is_that_of_an_account_of_all_its_samples(name: str, engine: str) -> None:
    problem = PROBLEMS[name]
    accounts = {**problem.accounts, "median": median}
    with problem.federation(engine=ENGINES[engine]) as f:
        state = after(f, 2)
        scores = {score.split: score for score in f.evaluate(state) if score.model == "model"}
    data = f.training_data
    assert scores.keys() == {"test", "held_out", "clients"} and data.test is not None
    outputs = outputs_of(f, state, data.train)
    y = data.train.y.numpy()
    outputs_of_test = outputs_of(f, state, data.test)
    y_of_test = data.test.y.numpy()
    all_held = np.concatenate(data.held)
    expected: dict[str, dict[str, float]] = {"test": {}, "held_out": {}, "clients": {}}
    for metric, account in accounts.items():
        expected["test"][metric] = account(outputs_of_test, y_of_test)
        if len(all_held):
            expected["held_out"][metric] = account(outputs[all_held], y[all_held])
        expected["clients"][metric] = _mean([account(outputs[indices], y[indices]) for indices in data.clients])
    # A metric of all samples together is a mean over clients, weighted by their samples.
    held = [indices for indices in data.held if len(indices)]
    medians = [median(outputs[indices], y[indices]) for indices in held]
    expected["held_out"]["median"] = float(np.average(medians, weights=list(map(len, held))))
    for split, score in scores.items():
        assert score.values.keys() == accounts.keys()
        assert score.values == pytest.approx(expected[split], rel=1e-11, nan_ok=True), split


def _mean(values: list[float]) -> float:
    """The mean of the values that are defined; NaN if none is."""
    defined = [value for value in values if not np.isnan(value)]
    return float(np.mean(defined)) if defined else float("nan")


@pytest.mark.parametrize("name", ["classification", "regression of one number", "next_token"])
def test_the_worst_tenth_of_the_clients_is_worst_in_the_direction_of_the_metric(name: str) -> None:
    """Of six clients it is one."""
    problem = PROBLEMS[name]
    f = problem.federation(metrics={})
    state = f.start()
    (score,) = (score for score in f.evaluate(state) if score.split == "clients" and score.model == "model")
    data = f.training_data
    account = problem.accounts[f.goal.criterion.name]
    outputs = outputs_of(f, state, data.train)
    y = data.train.y.numpy()
    values = [account(outputs[indices], y[indices]) for indices in data.clients]
    assert len(values) == len(SIZES) and len(set(values)) > 1
    worst = max(values) if f.goal.criterion.better == "lower" else min(values)
    assert score.more["worst_tenth"] == pytest.approx(worst, rel=1e-12)


def test_a_client_for_whom_a_metric_is_not_defined_is_left_out_of_the_mean() -> None:
    """An area under a curve needs both labels, and a client may hold only one."""

    def gap(output: torch.Tensor, y: torch.Tensor) -> float:
        return float(output[y == 1].mean() - output[y == 0].mean())

    problem = PROBLEMS["binary"]
    with problem.federation(metrics={"gap": gap}, engine=WORKERS) as f:
        state = f.start()
        scores = {score.split: score for score in f.evaluate(state) if score.model == "model"}
    data = f.training_data
    outputs = torch.from_numpy(outputs_of(f, state, data.train))
    for split, clients in (("held_out", data.held), ("clients", data.clients)):
        values = []
        weights = []
        undefined = 0
        for indices in clients:
            value = gap(outputs[indices], data.train.y[indices]) if len(indices) else np.nan
            if not np.isnan(value):
                values.append(value)
                weights.append(len(indices) if split == "held_out" else 1)
            elif len(indices):
                undefined += 1
        assert undefined or split == "held_out"
        expected = np.average(values, weights=weights)
        assert scores[split]["gap"] == pytest.approx(expected, rel=1e-12), split


def test_a_metric_that_raises_in_a_run_names_the_clients() -> None:
    def picky(output: torch.Tensor, y: torch.Tensor) -> float:
        if len(y) < 2:
            raise ValueError("needs two samples")
        return 1.0

    f = PROBLEMS["regression"].federation(metrics={"picky": picky}, engine=SEQUENTIAL)
    with pytest.raises(ValueError, match="needs two samples") as error:
        f.evaluate(f.start())
    assert "while evaluating clients [0, 1, 2, 3, 4, 5] in round 1" in error.value.__notes__
