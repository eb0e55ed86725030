"""A tracker of modules that FSDP shards: each process averages its own shard."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.spawn import start_processes

from fedsash.averages import EMA, Tracker, Window
from fedsash.settings.errors import RunError
from support.loops import equal, make_model, steps


def whole(sharded: dict[str, Any]) -> dict[str, Tensor]:
    return {name: t.full_tensor().clone() for name, t in sharded.items()}


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_module_that_fsdp_has_sharded_is_averaged_shard_by_shard(device: str | None) -> None:
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    plain, sharded = make_model(), make_model()
    fsdp.fully_shard(sharded, mesh=mesh)
    one = Tracker(Window(3), plain, trajectory_every=2)
    other = Tracker(Window(3), sharded, trajectory_every=2, device=device)
    for model, tracker in ((plain, one), (sharded, other)):
        for value in (1.0, 2.5, 4.0, -1.0):
            for p in model.parameters():
                p.data.add_(value)
            tracker.update()
    own = whole(sharded.state_dict())
    found = whole(other.averaged_state_dict())
    assert equal(found, one.averaged_state_dict())
    assert equal(whole(other.averaged_state_dict(other.ema(0.5))), one.averaged_state_dict(one.ema(0.5)))
    assert equal(whole(sharded.state_dict()), own)
    with pytest.raises(ValueError, match=r"^PyTorch can't copy this module: load averaged_state_dict\(\)"):
        other.averaged_module()


@pytest.mark.usefixtures("one_process")
def test_a_sharded_module_that_was_just_evaluated_still_gives_its_shards() -> None:
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    sharded = make_model()
    fsdp.fully_shard(sharded, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
    tracker = Tracker(Window(3), sharded)
    sharded(torch.zeros(2, 4))  # without a backward pass FSDP2 keeps whole tensors
    tracker.update()
    sharded(torch.zeros(2, 4))
    assert equal(whole(tracker.averaged_state_dict()), whole(sharded.state_dict()))


@pytest.mark.usefixtures("one_process")
@pytest.mark.filterwarnings("ignore:FSDP is switching")
def test_a_module_of_fsdp1_is_refused() -> None:
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    wrapped = fsdp.FullyShardedDataParallel(make_model(), use_orig_params=True, device_id=torch.device("cpu"))
    with pytest.raises(ValueError, match=r"^FullyShardedDataParallel keeps whole tensors .* use fully_shard \(FSDP2\)"):
        Tracker(Window(3), wrapped)


def one_of_two(rank: int, group: str) -> None:
    """A process that trains a sharded module beside a whole one, and evaluates the averages of both after each step."""
    from torch.distributed.fsdp import fully_shard

    torch.distributed.init_process_group("gloo", init_method=f"file://{group}", rank=rank, world_size=2)
    alone, sharded = make_model(), make_model()
    fully_shard(sharded, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (2,)))
    for one, other in zip(*(steps(model, 4, Tracker(EMA(0.5), model)) for model in (alone, sharded)), strict=True):
        torch.testing.assert_close({name: t.full_tensor() for name, t in other.items()}, one)
    tracker = Tracker(EMA(0.5), sharded)
    steps(sharded, 1, tracker)
    file = Path(f"{group}-state")
    if rank == 0:
        torch.save(tracker.state_dict(), file)
    torch.distributed.barrier()
    if rank == 0:
        tracker.load_state_dict(torch.load(file))
    else:
        with pytest.raises(RunError, match=r"its shard is \(0,\) of \[2\] there and \(1,\) of \[2\] here"):
            tracker.load_state_dict(torch.load(file))
    torch.distributed.barrier()
    os._exit(0)  # on a busy machine Gloo's threads may abort a process that ends in the usual way


@pytest.mark.slow
def test_evaluating_the_average_of_a_sharded_module_does_not_change_its_training(tmp_path: Path) -> None:
    start_processes(one_of_two, (str(tmp_path / "group"),), nprocs=2)  # type: ignore[no-untyped-call]
