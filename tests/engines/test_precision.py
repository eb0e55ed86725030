"""Local training in bfloat16: what it rounds, and what it leaves as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedsash.averages import Window
from fedsash.data.federated import FederatedData
from fedsash.engines import LocalEngine
from fedsash.evaluation import Evaluation
from fedsash.methods import FedAvg, FedFA, FedProx, Method, Mime, Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.models import build
from fedsash.runs import resume, run
from fedsash.server.federation import Federation
from fedsash.settings.errors import RunError, SettingError
from fedsash.tasks import NextCharacter
from fedsash.testing.worlds import SEQUENTIAL, VECTORISED, WORKERS, after, small_federation, small_model
from support.by_default import rotated, some

LOW: dict[str, LocalEngine] = {
    "sequential": replace(SEQUENTIAL, precision="bfloat16"),
    "vectorised": replace(VECTORISED, precision="bfloat16"),
    "workers": replace(WORKERS, precision="bfloat16"),
}
COMPILED = replace(LOW["vectorised"], compile=True)


def world(engine: LocalEngine, **settings: Any) -> Federation:
    return small_federation(**{"model": small_model(dtype=torch.float32), "engine": engine} | settings)


def update(engine: LocalEngine, method: Method, rounds: int = 1) -> Tensor:
    """What some rounds have made of the model."""
    with world(engine, method=method) as federation:
        return after(federation, rounds).w - federation.start().w


def apart(one: Tensor, other: Tensor) -> float:
    """How far vectors are apart, in shares of their length."""
    return float((one - other).norm() / other.norm())


class Linear(nn.Module):
    """A model whose output has a structure."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        logits = self.map(x)
        return {"logits": logits, "extra": [logits]}


METHODS = {"fedavg": FedAvg(), "fedprox": FedProx(0.1), "scaffold": Scaffold(option="I"), "mime": Mime()}


@pytest.mark.parametrize("engine, method", rotated(LOW, METHODS))
def test_the_update_is_that_of_full_precision_up_to_the_rounding_of_bfloat16(engine: str, method: str) -> None:
    """A number of 8 significant bits is off by at most 1/256 of itself."""
    gap = apart(update(LOW[engine], METHODS[method]), update(SEQUENTIAL, METHODS[method]))
    assert 1e-5 < gap < 4 / 256


def test_workers_give_the_bytes_of_one_process() -> None:
    assert torch.equal(update(LOW["workers"], Scaffold(), 3), update(LOW["sequential"], Scaffold(), 3))


@pytest.mark.slow
def test_compiled_steps_compute_in_bfloat16_too() -> None:
    full = update(SEQUENTIAL, FedAvg())
    assert 1e-5 < apart(update(COMPILED, FedAvg()), full) < 4 / 256


def test_an_objective_on_the_features_and_outputs_of_any_structure_are_computed_in_full() -> None:
    fedfa = FedFA()
    assert apart(update(LOW["sequential"], fedfa), update(SEQUENTIAL, fedfa)) < 4 / 256
    with small_federation(model=Linear().float(), engine=LOW["sequential"]) as federation:
        assert torch.isfinite(after(federation, 1).w).all()


@pytest.mark.parametrize("engine", some(LOW, "vectorised"))
def test_models_sums_averages_and_client_state_keep_their_type(engine: str) -> None:
    with world(LOW[engine], method=Scaffold(), averages={"w": Window(2)}) as federation:
        state = after(federation, 2)
        kept = [state.w, *federation.models(state).values(), *state.server_state.values(), *state.client_state.values()]
    assert {value.dtype for value in kept if value.is_floating_point()} <= {torch.float32, torch.float64}


def test_an_evaluation_is_in_full_precision() -> None:
    """The same model has the same metrics, whatever the precision of training."""
    worlds = [world(engine, evaluation=Evaluation(held_out=0.2)) for engine in (SEQUENTIAL, LOW["sequential"])]
    state = after(worlds[0], 1)
    first, second = (federation.evaluate(state) for federation in worlds)
    assert first == second


def test_another_type_of_model_is_refused_in_a_sentence() -> None:
    with pytest.raises(SettingError, match=r"needs a model of float32, and this one is of torch\.float64"):
        after(small_federation(engine=LOW["sequential"]), 1)
    with pytest.raises(SettingError, match="precision"):
        LocalEngine(precision="half")  # type: ignore[arg-type]


def test_a_run_is_resumed_with_its_precision_only(tmp_path: Path) -> None:
    whole = run(world(LOW["sequential"]), 4, progress=False).state.w
    run(world(LOW["sequential"]), 2, out=tmp_path / "a", progress=False)
    with pytest.raises(RunError, match=r"engine\.precision"):
        resume(world(SEQUENTIAL), 4, tmp_path / "a", progress=False)
    again = resume(world(LOW["sequential"]), 4, tmp_path / "a", progress=False)
    assert torch.equal(again.state.w, whole)


def test_auto_keeps_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsash.engines.timings.ENOUGH", 0.01)  # what is measured need not be exact
    engine = LocalEngine()
    with small_federation(model=small_model(dtype=torch.float32), engine=engine) as federation:
        federation.prepare(1)
        assert federation.described()["precision"] == "full"


@pytest.mark.parametrize("engine", some(["sequential", "vectorised"], "vectorised"))
def test_the_recurrent_network_trains_in_bfloat16(engine: str) -> None:
    model = build("shakespeare_lstm", {"width": 8}, shape=(10,), classes=5, seed=0)
    x = torch.randint(5, (12, 10), generator=torch.Generator().manual_seed(0))
    data = FederatedData.from_arrays(x, x, [range(4), range(4, 12)], task=NextCharacter(), classes=5)

    def moved(engine: LocalEngine) -> Tensor:
        with world(engine, model=model, data=data, sampling=Uniform(2)) as federation:
            return after(federation, 1).w - federation.start().w

    assert 1e-6 < apart(moved(LOW[engine]), moved(SEQUENTIAL)) < 4 / 256
