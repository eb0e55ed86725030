"""How far a reader of a round has to go: the functions that it passes through, and their files."""

from __future__ import annotations

import pytest

from fedsash import Window
from fedsash.client import LocalTraining
from fedsash.methods import FedAvg, Method, Scaffold
from fedsash.methods.sampling import Uniform
from support.passed_through import passed_through
from support.worlds import federation


@pytest.mark.parametrize(
    ("method", "averages", "most_functions", "most_files"),
    [(FedAvg(), {}, 95, 29), (Scaffold(), {"w5": Window(5)}, 138, 36)],
    ids=["fedavg", "scaffold with a window"],
)
def test_a_second_round_passes_through_few_functions(
    method: Method, averages: dict[str, Window], most_functions: int, most_files: int
) -> None:
    """The aim is 90 functions in 20 files for FedAvg."""
    local = LocalTraining(lr=0.1, batch=4, epochs=2)
    with federation(method=method, averages=averages, local=local, sampling=Uniform(3)) as world:
        state, _ = world.round(world.start())
        functions, files = passed_through(lambda: world.round(state))
    assert len(functions) <= most_functions, sorted(functions)
    assert len(files) <= most_files, sorted(files)
