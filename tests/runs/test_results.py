"""What a run gives back: its numbers by model, its models as modules, and a few lines that show it."""

from __future__ import annotations

import mmap
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fedsash import Evaluation, Federation, Result, Window, run
from fedsash.errors import UnknownModelError
from fedsash.system.posix import forget_peak_memory, peak_memory
from support.observing import AVERAGES, interrupting, observed
from support.worlds import data, federation, mlp


class Buffered(nn.Sequential):
    """A module that carries a buffer beside its parameters."""

    def __init__(self) -> None:
        super().__init__(*mlp())
        self.register_buffer("scale", torch.tensor(2.0))


@pytest.fixture(scope="module")
def world() -> Federation:
    return observed(model=Buffered())


@pytest.fixture(scope="module")
def result(world: Federation, tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run(world, 6, out=tmp_path_factory.mktemp("run") / "a", progress=False)


@pytest.fixture(scope="module")
def stopped() -> Result:
    """A run that somebody has interrupted."""
    found = run(interrupting(observed, step=60), 6, progress=False)
    assert found.interrupted
    return found


def values(state: dict[str, Tensor]) -> dict[str, list[float]]:
    return {name: value.flatten().tolist() for name, value in state.items()}


def test_the_numbers_of_a_model_are_those_of_the_summary(result: Result, stopped: Result) -> None:
    for found in (result, stopped):
        assert {name: asdict(found[name]) for name in found.summary["models"]} == found.summary["models"]
    assert result["window"].last_mean == result.summary["models"]["window"]["last_mean"]
    best = result["window"].best
    assert best is not None and best.round == result.summary["models"]["window"]["best"]["round"]


def test_there_are_the_model_the_averages_and_the_best_of_each(result: Result, stopped: Result) -> None:
    plain = {"model", *AVERAGES}
    assert set(result.models) == plain | {f"{name}-best" for name in plain}
    assert result.folder is not None
    assert {f"{name}.safetensors" for name in result.models} == {p.name for p in (result.folder / "models").iterdir()}
    assert set(stopped.models) == plain | {f"{name}-best" for name in plain}


def test_a_model_is_what_the_run_has_written_parameters_and_buffers(result: Result) -> None:
    assert result.folder is not None
    for name in result.models:
        written = values(load_file(result.folder / "models" / f"{name}.safetensors"))
        assert values(result.state_dict(name)) == written and "scale" in written
        plain = Buffered()
        plain.load_state_dict(result.state_dict(name))


def test_a_model_is_the_callers_own(world: Federation, result: Result) -> None:
    module = result.model("window")
    assert isinstance(module, Buffered)
    before = values(world.module.state_dict()), values(result.state_dict("window"))
    with torch.no_grad():
        for value in [*module.parameters(), *module.buffers()]:
            value.zero_()
    assert (values(world.module.state_dict()), values(result.state_dict("window"))) == before
    assert all(p.requires_grad for p in module.parameters())


def test_an_interrupted_run_has_models_too(stopped: Result) -> None:
    vectors = stopped.federation.models(stopped.state)
    with federation() as other:
        for name, w in vectors.items():
            assert torch.equal(other.layout.flatten(stopped.model(name)), w)


def test_what_is_not_there_is_a_key_error_of_one_line_that_says_what_is(result: Result) -> None:
    asked: list[Any] = [result.__getitem__, result.model, result.state_dict]
    for ask in asked:
        with pytest.raises(KeyError) as error:
            ask("wima")
        assert isinstance(error.value, UnknownModelError)
        assert str(error.value).startswith("there is no model 'wima' in this run; there are: model, window, ")


def test_a_result_is_shown_in_a_few_lines_whatever_it_holds(result: Result, stopped: Result) -> None:
    many = run(
        federation(averages={f"w{size}": Window(size) for size in range(1, 31)}, evaluation=Evaluation(1, 1)),
        2,
        progress=False,
    )
    for found in (result, stopped, many):
        lines = repr(found).splitlines()
        assert len(lines) <= 12 and max(map(len, lines)) <= 120 and "tensor" not in repr(found)
    assert repr(result).startswith(f"Result: 6 rounds, in {result.folder}\n")
    assert repr(stopped).startswith(f"Result: interrupted after {stopped.state.round} rounds\n")
    assert "and 24 more" in repr(many)


def test_in_a_notebook_a_result_is_a_table_of_its_models(result: Result) -> None:
    page = result._repr_html_()
    rows = re.findall(r"<tr><th>([\w-]+)</th><td>([\d.]+ %)</td>", page)
    assert {name for name, _ in rows} == {"model", *AVERAGES}
    accuracy = result["window"].value
    assert accuracy is not None and dict(rows)["window"] == f"{100 * accuracy:.1f} %"


def test_a_run_without_a_test_set_says_so() -> None:
    found = run(federation(data=replace(data(), test=None)), 2, progress=False)
    line = "no evaluation: none is due yet, or there is no test set, and evaluation.held_out is 0"
    assert line in repr(found) and line in found._repr_html_()
    with pytest.raises(UnknownModelError, match="no evaluation: none is due yet, or there is no test set"):
        found["model"]
    assert isinstance(found.model("model"), nn.Module)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets a peak")
def test_the_memory_of_a_run_is_not_that_of_what_the_process_did_before(tmp_path: Path) -> None:
    forget_peak_memory()
    with mmap.mmap(-1, 120_000_000) as large:
        large.write(b"1" * 120_000_000)
        before = peak_memory()
    result = run(federation(), 1, out=tmp_path, progress=False)
    assert before is not None and result.summary["peak_memory_bytes"] < before - 60_000_000
