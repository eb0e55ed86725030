"""Runs of one process whose steps are one graph share one compilation, and only those."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, _inductor, nn
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from fedsash import LocalTraining
from fedsash.engines import LocalEngine
from fedsash.methods import FedProx
from fedsash.vector import private_torch
from support.by_default import full
from support.switching import Switching
from support.worlds import after, federation, mlp

ENGINE = LocalEngine("vectorised", 1, 4, True, "contiguous", 1)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that were compiled; they run as they are, which takes no compiler."""
    graphs: list[Any] = []

    def as_it_is(graph: Any, inputs: list[Tensor]) -> Any:
        graphs.append(graph)
        return graph

    monkeypatch.setattr(_inductor, "compile", as_it_is)
    monkeypatch.setattr(private_torch, "_compiled", OrderedDict())
    return graphs


def trained(**settings: Any) -> Tensor:
    """The model after two rounds, which are those of uncompiled steps."""
    w = after(federation(engine=ENGINE, **settings), 2).w
    plain = after(federation(engine=replace(ENGINE, compile=False), **settings), 2).w
    torch.testing.assert_close(w, plain, rtol=0, atol=1e-12)
    return w


def test_a_method_whose_vectors_change_has_steps_for_each_of_their_forms(compilations: list[Any]) -> None:
    trained(method=Switching())
    assert len(compilations) == 2


@pytest.mark.parametrize(
    "other",
    [
        full(lambda: {"seed": 5}),
        lambda: {"local": LocalTraining(lr=0.03, batch=4, epochs=2)},
        full(lambda: {"model": mlp(seed=3)}),
    ],
    ids=["another seed", "another rate", "another initial model"],
)
def test_a_run_with_the_same_graph_compiles_nothing(other: Callable[[], Any], compilations: list[Any]) -> None:
    usual = {"local": LocalTraining(lr=0.1, batch=4, epochs=2)}
    first = trained(**usual)
    count = len(compilations)
    assert not torch.equal(trained(**(usual | other())), first)
    assert count == len(compilations) == 1


def test_a_number_of_the_method_is_part_of_the_graph(compilations: list[Any]) -> None:
    for mu in (0.1, 0.2, 0.1):
        after(federation(engine=ENGINE, method=FedProx(mu)), 1)
    assert len(compilations) == 2


class Scaled(nn.Module):
    """Its factor is no parameter: a constant of the graph."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 3).double()
        self.factor = torch.full((3,), factor, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) * self.factor
        return out


@pytest.mark.full
def test_a_constant_is_part_of_the_graph(compilations: list[Any]) -> None:
    for factor in (1.0, 2.0, 1.0):
        trained(model=Scaled(factor))
    assert len(compilations) == 2


def counting(count: Tensor) -> Callable[[Tensor], None]:
    """A function that adds the number of its calls, which it keeps in `count`."""

    def counted(x: Tensor) -> None:
        x.add_(count.add_(1))

    return counted


def test_code_that_changes_a_constant_is_not_shared(compilations: list[Any]) -> None:
    """Each function counts its own calls."""
    counts = [torch.zeros(1), torch.zeros(1)]
    for count in counts:
        run = private_torch.compiled(counting(count), [torch.zeros(1)])
        run(torch.zeros(1))
    assert len(compilations) == 2 and torch.equal(*counts)


def test_other_threads_and_shapes_are_other_code(compilations: list[Any]) -> None:
    def doubled(x: Tensor) -> None:
        x.mul_(2)

    for size in (3, 4, 3):
        private_torch.compiled(doubled, [torch.ones(size)])
    assert len(compilations) == 2
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        private_torch.compiled(doubled, [torch.ones(3)])
    finally:
        torch.set_num_threads(threads)
    assert len(compilations) == 3


def test_no_more_functions_are_kept_than_so_many(compilations: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_torch, "COMPILED_KEPT", 2)
    for size in (1, 2, 1, 3, 1, 2):  # the third size takes the place of the second
        private_torch.compiled(lambda x: x.mul_(2), [torch.ones(size)])
    assert len(compilations) == 4


def test_code_is_kept_where_the_user_says_else_in_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor names a folder for temporary files in the environment when it is imported."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    for chosen, kept in ((None, "ours"), (default_cache_dir(), "ours"), ("theirs", "theirs")):
        if chosen is not None:
            monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", chosen)
        private_torch.keep_compiled_in("ours")
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == kept
