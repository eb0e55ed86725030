"""Federations and results as Python objects: copies, pickles, other processes; models that can't be copied."""

from __future__ import annotations

import copy
import pickle
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from fedsash.averages import Window
from fedsash.data.federated import FederatedData
from fedsash.engines import LocalEngine
from fedsash.runs import run
from fedsash.server.federation import Federation
from fedsash.settings.errors import ModelError, RunError, SettingError

RNG = np.random.default_rng(0)
X = RNG.random((80, 6)).astype(np.float32)
Y = (X[:, 0] * 3).astype(np.int64)


def world(model: nn.Module | None = None, clients: int = 4, engine: LocalEngine | None = None) -> Federation:
    torch.manual_seed(0)
    data = FederatedData.from_arrays(X, Y, clients=np.array_split(np.arange(80), clients), test=(X, Y))
    engine = engine or LocalEngine("sequential", workers=1)
    return Federation(model or nn.Linear(6, 3), data, averages={"w2": Window(2)}, engine=engine)


def after_two_rounds(federation: Federation) -> torch.Tensor:
    state = federation.start()
    for _ in range(2):
        state, _ = federation.round(state)
    return torch.stack(list(federation.models(state).values()))


def test_copies_and_pickles_of_a_federation_train_to_the_same_models() -> None:
    federation = world()
    models = after_two_rounds(federation)
    for copied in (copy.copy(federation), copy.deepcopy(federation), pickle.loads(pickle.dumps(federation))):
        assert torch.equal(after_two_rounds(copied), models)
        assert copied.fingerprint == federation.fingerprint


def test_a_copy_begins_from_the_model_of_the_federation_and_not_from_the_users() -> None:
    model = nn.Linear(6, 3)
    federation = world(model)
    with torch.no_grad():
        model.weight.zero_()
    assert torch.equal(after_two_rounds(copy.deepcopy(federation)), after_two_rounds(federation))


def test_a_result_can_be_pickled(tmp_path: Path) -> None:
    result = run(world(), rounds=2, out=tmp_path / "run", progress=False)
    there = pickle.loads(pickle.dumps(result))
    assert there["w2"] == result["w2"]
    assert torch.equal(there.model("w2").weight, result.model("w2").weight)


def trained(workers: str | int) -> torch.Tensor | str:
    try:
        return after_two_rounds(world(engine=LocalEngine("sequential", workers=workers)))  # type: ignore[arg-type]
    except SettingError as error:
        return str(error)


@pytest.mark.full
def test_a_process_of_a_pool_trains_in_one_process() -> None:
    with get_context("fork").Pool(1) as pool:
        chosen, asked = pool.map(trained, ["auto", 2])
    assert isinstance(chosen, torch.Tensor)
    assert torch.equal(chosen, after_two_rounds(world()))
    assert asked == "LocalEngine.workers = 2: must be 1 in a process of a pool, which can't start others"


@pytest.mark.parametrize("clients", [2, 8])
def test_a_state_of_another_number_of_clients_is_refused(clients: int) -> None:
    with pytest.raises(RunError, match=f"the state is of {clients} clients, and this federation has 4"):
        world().round(world(clients=clients).start())


def weight_norm() -> nn.Module:
    model = nn.utils.weight_norm(nn.Linear(6, 3))
    model(torch.ones(2, 6))
    return model


def pruned() -> nn.Module:
    model = nn.Linear(6, 3)
    prune.l1_unstructured(model, "weight", 0.5)
    model(torch.ones(2, 6))
    return model


def holding_a_file() -> nn.Module:
    model = nn.Linear(6, 3)
    model.file = Path(__file__).open()  # noqa: SIM115
    return model


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("build", [weight_norm, pruned, holding_a_file])
def test_a_model_that_cannot_be_copied_is_refused_in_a_line(build: object) -> None:
    assert callable(build)
    with pytest.raises(ModelError, match=r"the model can't be copied .*hold no open files in it"):
        world(build())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torchscript_is_refused_in_a_line() -> None:
    with pytest.raises(ModelError, match="the model is TorchScript"):
        world(torch.jit.trace(nn.Linear(6, 3), torch.ones(2, 6)))
    with pytest.raises(ModelError, match=r"^1 is TorchScript"):
        world(nn.Sequential(nn.Linear(6, 3), torch.jit.script(nn.Linear(3, 3))))
    world(nn.Sequential(torch.jit.script(nn.Tanh()), nn.Linear(6, 3)))
