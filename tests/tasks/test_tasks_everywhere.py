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


@pytest.mark.parametrize("name", PROBLEMS)
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


@pytest.mark.parametrize("name", some(PROBLEMS, "binary", "several inputs by name", "next_token"))
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
    rows = [[(m.model, m.split, name, *_numbers(value)) for name, value in m.row().items()] for m in one]
    others = [[(m.model, m.split, name, *_numbers(value)) for name, value in m.row().items()] for m in other]
    return str(rows) == str(others)


def _numbers(value: Any) -> list[str]:
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return [f"{v:.11g}" if isinstance(v, float) else str(v) for v in values]


def accounted() -> list[ParameterSet]:
    """By default each problem in an engine, of which one has worker processes."""
    own = {name: "vectorised" if i % 2 else "sequential" for i, name in enumerate(PROBLEMS)}
    own["multi_label"] = "workers"
    pairs = [pytest.param(name, engine) for name in PROBLEMS for engine in ENGINES]
    return by_default(pairs, lambda name, engine: own[name] == engine)


def said(f: Federation, state: State, samples: Samples) -> NDArray[Any]:
    """The outputs for samples, from the plain module."""
    module, task = f.module_of(state.w).eval(), f.goal.task
    x = f.training_data.transform.inputs(samples.x[torch.arange(len(samples))], f.layout.dtype)
    with torch.no_grad():
        return task.answer(call(module, x), samples.y).numpy()


@pytest.mark.parametrize("name, engine", accounted())
def test_every_metric_on_every_split_is_that_of_an_account_of_all_its_samples(name: str, engine: str) -> None:
    problem = PROBLEMS[name]
    accounts = {**problem.accounts, "median": median}
    with problem.federation(engine=ENGINES[engine]) as f:
        state = after(f, 2)
        found = {m.split: m for m in f.evaluate(state) if m.model == "model"}
    data = f.training_data
    assert found.keys() == {"test", "held_out", "clients"} and data.test is not None
    outputs, y = said(f, state, data.train), data.train.y.numpy()
    expected = {
        "test": {n: account(said(f, state, data.test), data.test.y.numpy()) for n, account in accounts.items()},
        "held_out": {n: account(outputs[every], y[every]) for n, account in accounts.items()}
        if len(every := np.concatenate(data.held))
        else {},
        "clients": {
            n: _mean([account(outputs[own], y[own]) for own in data.clients]) for n, account in accounts.items()
        },
    }
    held = [own for own in data.held if len(own)]
    weights = [len(own) for own in held]
    expected["held_out"]["median"] = float(np.average([median(outputs[own], y[own]) for own in held], weights=weights))
    for split, metrics in found.items():
        assert metrics.values.keys() == accounts.keys()
        assert metrics.values == pytest.approx(expected[split], rel=1e-11, nan_ok=True), split


def _mean(values: list[float]) -> float:
    defined = [value for value in values if not np.isnan(value)]
    return float(np.mean(defined)) if defined else float("nan")


@pytest.mark.parametrize("name", ["classification", "regression of one number", "next_token"])
def test_the_worst_tenth_of_the_clients_is_worst_in_the_direction_of_the_metric(name: str) -> None:
    """Of six clients it is one."""
    problem = PROBLEMS[name]
    f = problem.federation(metrics={})
    state = f.start()
    (found,) = (m for m in f.evaluate(state) if m.split == "clients" and m.model == "model")
    data, account = f.training_data, problem.accounts[f.goal.criterion.name]
    outputs, y = said(f, state, data.train), data.train.y.numpy()
    each = [account(outputs[own], y[own]) for own in data.clients]
    assert len(each) == len(SIZES) and len(set(each)) > 1
    worst = max(each) if f.goal.criterion.better == "lower" else min(each)
    assert found.more["worst_tenth"] == pytest.approx(worst, rel=1e-12)


def test_a_client_for_whom_a_metric_is_not_defined_is_left_out_of_the_mean() -> None:
    """An area under a curve needs both labels, and a client may hold only one."""

    def gap(output: torch.Tensor, y: torch.Tensor) -> float:
        return float(output[y == 1].mean() - output[y == 0].mean())

    problem = PROBLEMS["binary"]
    with problem.federation(metrics={"gap": gap}, engine=WORKERS) as f:
        state = f.start()
        found = {m.split: m for m in f.evaluate(state) if m.model == "model"}
    data, outputs = f.training_data, torch.from_numpy(said(f, state, f.training_data.train))
    for split, groups in (("held_out", data.held), ("clients", data.clients)):
        values = {i: gap(outputs[own], data.train.y[own]) for i, own in enumerate(groups) if len(own)}
        defined = [i for i, value in values.items() if not np.isnan(value)]
        weights = [len(groups[i]) if split == "held_out" else 1 for i in defined]
        assert len(defined) < len(values) or split == "held_out"
        expected = np.average([values[i] for i in defined], weights=weights)
        assert found[split]["gap"] == pytest.approx(expected, rel=1e-12), split


def test_a_metric_that_raises_in_a_run_names_the_clients() -> None:
    def picky(output: torch.Tensor, y: torch.Tensor) -> float:
        if len(y) < 2:
            raise ValueError("needs two samples")
        return 1.0

    f = PROBLEMS["regression"].federation(metrics={"picky": picky}, engine=SEQUENTIAL)
    with pytest.raises(ValueError, match="needs two samples") as error:
        f.evaluate(f.start())
    assert "while evaluating clients [0, 1, 2, 3, 4, 5] in round 1" in error.value.__notes__
