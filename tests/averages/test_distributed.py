"""States of trackers of sharded modules: gathered, in DCP, and with another number of processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.multiprocessing.spawn import start_processes

from fedsash.averages import BEMA, EMA, SWA, Average, PowerEMA, Tracker, Window
from fedsash.averages.distributed import DistributedState, WholeState, gathered
from fedsash.settings.errors import ModelError, RunError
from support.loops import equal, make_model

pytest.importorskip("torch.distributed.fsdp")


class Net(nn.Sequential):
    """A model whose last layer has fewer rows than there are processes."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1))


def averages() -> dict[str, Average]:
    return {
        "short": Window(2),
        "long": Window(4, kept_as="bfloat16"),
        "head": Window(3, part="3"),
        "ema": EMA(0.9),
        "swa": SWA(2),
        "power": PowerEMA(),
        "bema": BEMA(0.9),
    }


def walk(model: nn.Module, tracker: Tracker, begin: int, end: int) -> None:
    """Give the parameters values that depend on the step alone, and observe them."""
    for step in range(begin, end):
        for i, parameter in enumerate(model.parameters()):
            with torch.no_grad():
                parameter.copy_(torch.full_like(parameter, 0.1 * (i + 1) * (step + 1)) + 0.01 * parameter)
        tracker.update()


def shard(model: nn.Module, processes: int) -> None:
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (processes,)))


def tracked(processes: int = 0) -> tuple[nn.Module, Tracker]:
    """A model and its tracker; sharded among so many processes, whole if there are none."""
    model = Net()
    if processes:
        shard(model, processes)
    return model, Tracker(averages(), model, trajectory_every=2)


def in_processes(count: int, work: Callable[..., None], folder: Path) -> None:
    start_processes(_one_of, (count, str(folder), work), nprocs=count)  # type: ignore[no-untyped-call]


def _one_of(rank: int, count: int, folder: str, work: Callable[..., None]) -> None:
    group = f"file://{folder}/{work.__name__}-{count}"
    torch.distributed.init_process_group("gloo", init_method=group, rank=rank, world_size=count)
    work(rank, count, Path(folder))
    torch.distributed.barrier()
    os._exit(0)  # on a busy machine Gloo's threads may abort a process that ends in the usual way


def save(rank: int, count: int, folder: Path) -> None:
    model, tracker = tracked(count)
    walk(model, tracker, 0, 5)
    whole = WholeState(tracker).state_dict()
    if rank == 0:
        torch.save(whole, folder / "whole.pt")
    else:
        assert whole == {}
    final = gathered(tracker.averaged_state_dict("ema"))
    if rank == 0:
        torch.save(final, folder / "final.pt")
    saved = {"model": model.state_dict(), "tracker": DistributedState(tracker)}
    dcp.save(saved, checkpoint_id=folder / "dcp")
    walk(model, tracker, 5, 9)
    whole = WholeState(tracker).state_dict()
    if rank == 0:
        torch.save(whole, folder / "expected.pt")


def go_on(rank: int, count: int, folder: Path) -> None:
    """Go on from both kinds of state, in another number of processes."""
    for kind in ("whole", "dcp"):
        model, tracker = tracked(count)
        state = {"model": model.state_dict()}
        dcp.load(state, checkpoint_id=folder / "dcp")
        model.load_state_dict(state["model"])
        if kind == "dcp":
            dcp.load({"tracker": DistributedState(tracker, folder / "dcp")}, checkpoint_id=folder / "dcp")
        else:
            WholeState(tracker).load_state_dict(torch.load(folder / "whole.pt"))
        walk(model, tracker, 5, 9)
        found = WholeState(tracker).state_dict()
        if rank == 0:
            assert equal(found, torch.load(folder / "expected.pt"))


@pytest.mark.full
@pytest.mark.parametrize("before, after", [(2, 3), (3, 2)])
def test_a_sharded_state_goes_on_to_the_byte_in_another_number_of_processes(
    before: int, after: int, tmp_path: Path
) -> None:
    model, tracker = tracked()
    walk(model, tracker, 0, 5)
    in_processes(before, save, tmp_path)
    assert equal(torch.load(tmp_path / "whole.pt"), tracker.state_dict())
    assert equal(torch.load(tmp_path / "final.pt"), tracker.averaged_state_dict("ema"))
    walk(model, tracker, 5, 9)
    assert equal(torch.load(tmp_path / "expected.pt"), tracker.state_dict())
    in_processes(after, go_on, tmp_path)
    other, found = tracked()
    state = {"model": other.state_dict()}
    dcp.load({**state, "tracker": DistributedState(found, tmp_path / "dcp")}, checkpoint_id=tmp_path / "dcp")
    other.load_state_dict(state["model"])
    walk(other, found, 5, 9)
    assert equal(found.state_dict(), tracker.state_dict())


@pytest.mark.usefixtures("one_process")
def test_a_whole_state_is_that_of_a_tracker_of_the_whole_module() -> None:
    (plain, expected), (sharded, tracker) = tracked(), tracked(1)
    walk(plain, expected, 0, 5)
    walk(sharded, tracker, 0, 5)
    whole = WholeState(tracker).state_dict()
    assert equal(whole, expected.state_dict())
    (_, into_plain), (_, into_shards) = tracked(), tracked(1)
    into_plain.load_state_dict(whole)
    WholeState(into_shards).load_state_dict(whole)
    assert equal(into_plain.state_dict(), whole) and equal(WholeState(into_shards).state_dict(), whole)
    for name in averages():
        assert equal(into_shards.value(name), expected.value(name))


def test_a_state_of_a_whole_module_goes_through_dcp(tmp_path: Path) -> None:
    model, tracker = tracked()
    walk(model, tracker, 0, 5)
    dcp.save({"kept": DistributedState(tracker)}, checkpoint_id=tmp_path, no_dist=True)
    _, found = tracked()
    dcp.load({"kept": DistributedState(found, tmp_path, "kept")}, checkpoint_id=tmp_path, no_dist=True)
    assert equal(found.state_dict(), tracker.state_dict())
    with pytest.raises(RunError, match=r"has no tracker under the name 'tracker'$"):
        DistributedState(found, tmp_path).state_dict()
    other = DistributedState(Tracker(EMA(0.9), nn.Linear(4, 5)), tmp_path, "kept")
    with pytest.raises(RunError, match=r"its averages have 0\.weight, which this module lacks$"):
        other.state_dict()


@pytest.mark.usefixtures("one_process")
def test_a_whole_state_of_other_shapes_is_refused_and_changes_nothing() -> None:
    saved = Tracker(EMA(0.9), nn.Sequential(nn.Linear(4, 6))).state_dict()
    model = nn.Sequential(nn.Linear(4, 5))
    shard(model, 1)
    tracker = Tracker(EMA(0.9), model)
    with pytest.raises(RunError, match=r"0\.weight is \[6, 4\] there and \[5, 4\] here"):
        WholeState(tracker).load_state_dict(saved)
    with pytest.raises(RunError, match="this is not the whole state of a tracker"):
        whole = WholeState(tracker).state_dict()
        WholeState(tracker).load_state_dict({name: whole[name] for name in ("about", "round")})
    assert tracker.round == 0


def leave_out(rank: int, count: int, folder: Path) -> None:
    """One process alone has a value in its shard that is not finite."""
    model, tracker = tracked(count)
    walk(model, tracker, 0, 2)
    before = WholeState(tracker).state_dict()
    with torch.no_grad():
        if rank == 1:
            next(model.parameters()).to_local()[-1] = torch.nan
    tracker.update()
    assert [tracker.count(name) for name in ("short", "ema")] == [2, 2]
    after = WholeState(tracker).state_dict()
    head = ("0/head/", "0/past/")  # an average of a part that is finite, and its models
    for name in before.keys() - {"round", "about"}:
        assert torch.equal(after[name], before[name]) or name.startswith(head)


@pytest.mark.full
def test_a_model_that_is_not_finite_in_one_process_is_left_out_in_all(tmp_path: Path) -> None:
    in_processes(2, leave_out, tmp_path)


def test_a_module_of_zero_3_is_refused_in_one_line() -> None:
    """A stand-in; the module of DeepSpeed itself is refused in `test_trainers_sharded`."""
    model = make_model()
    model[0].weight.ds_id = 0
    with pytest.raises(ModelError, match=r"^DeepSpeed's ZeRO-3 keeps 0\.weight as an empty tensor .*FSDP2\)$"):
        Tracker(EMA(0.9), model)
