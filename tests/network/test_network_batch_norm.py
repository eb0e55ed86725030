"""BatchNorm on a simulated network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fedsash import resume, run
from fedsash.client import LocalTraining
from fedsash.methods.sampling import Uniform
from fedsash.network import Asynchronous, FedAsync, FedBuff, Link, Network, SimulatedClients
from fedsash.network.messages import model_bytes
from fedsash.vector.sharing import Sharing
from support.by_default import full
from support.norms import batch_norm_model, with_norm
from support.worlds import after, data

NETWORK = Network(Link(1e4, 0.01), clients=SimulatedClients(seconds=1.0, spread=1.0))


@pytest.mark.parametrize("scheduler", [FedAsync(), FedBuff(2)])
def test_the_statistics_of_uploads_reach_the_model(scheduler: Any) -> None:
    world = with_norm(sampling=Uniform())
    w = after(Asynchronous(world, NETWORK, scheduler), 4).w  # type: ignore[arg-type]
    mean, variance, count = w[-17:-9], w[-9:-1], w[-1]
    assert not torch.equal(mean, torch.zeros_like(mean)) and bool((variance > 0).all()) and count > 0


def test_with_fedbuff_statistics_are_the_mean_of_the_uploads_whatever_moves_the_model() -> None:
    """So no variance falls below 0, as a sum of differences from several old models does."""
    local = LocalTraining(lr=0.1, batch=5, epochs=2)
    clients = SimulatedClients(seconds=1.0, spread=0.5)
    world = with_norm(sampling=Uniform(fraction=1.0), data=data((20,) * 20), local=local, averages={})
    driver = Asynchronous(world, Network(Link(1e6, 0.01), clients=clients), FedBuff())
    with world:
        state = world.start()
        for _ in range(25):
            state, _ = driver.round(state)
            assert bool((world.layout.views(state.w)["1.running_var"] > 0).all())
    first = [after(Asynchronous(world, NETWORK, FedBuff(2, lr=lr, a=a)), 1).w for lr, a in ((1, 0), (0.1, 2))]
    trained = world.layout.trained
    assert torch.equal(first[0][trained:], first[1][trained:])
    assert not torch.equal(first[0][:trained], first[1][:trained])


@pytest.mark.parametrize("buffers", ["local", "local_norm"])
def test_statistics_that_stay_with_clients_need_rounds(buffers: Any) -> None:
    with pytest.raises(
        ValueError, match=f"buffers = '{buffers}': needs synchronous rounds, in which clients keep state"
    ):
        Asynchronous(with_norm(sampling=Uniform(2), buffers=buffers), NETWORK, FedBuff(2))


def test_the_statistics_count_in_the_length_of_an_upload() -> None:
    norm = 8 * (2 * 8 + 2 * 8 + 1)
    plain, model = batch_norm_model(affine=False, track_running_stats=False), batch_norm_model()
    lengths = {buffers: model_bytes(Sharing.of(model, buffers)) for buffers in ("average", "local", "local_norm")}
    assert lengths["average"] == model_bytes(Sharing.of(plain)) + norm
    assert lengths["local"] == lengths["average"] - 8 * 17 and lengths["local_norm"] == model_bytes(Sharing.of(plain))


@pytest.mark.parametrize("rounds", [full(1), 5])
def test_with_fedbuff_a_resumed_run_has_the_same_statistics(rounds: int, tmp_path: Path) -> None:
    """Its buffer then holds statistics of models that were trained before the stop."""

    def driver() -> Asynchronous:
        return Asynchronous(with_norm(sampling=Uniform(fraction=1.0)), NETWORK, FedBuff(4))

    whole = run(driver(), 8, progress=False).state.w
    run(driver(), rounds, out=tmp_path / "a", progress=False)
    assert torch.equal(resume(driver(), 8, tmp_path / "a", progress=False).state.w, whole)
