"""`average_map`: every window of models is their plain mean, and what is interrupted goes on with equal results."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save, save_file
from torch import Tensor, nn

import fedsash as fs
from fedsash.averages import sum_files
from fedsash.averages.afterwards import RunningSum
from fedsash.averages.average_map import AverageMap
from fedsash.settings.errors import ModelError, RunError, SettingError
from support.children import status_of_child
from support.places import DOCS

State = dict[str, Tensor]


def unsaid(line: str) -> None:
    """Print nothing."""


def net(dtype: torch.dtype = torch.float64) -> nn.Module:
    """A linear layer and BatchNorm, of 2 * 3 + 2 + 4 * 2 numbers and a number of batches."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(dtype)


def states(n: int, dtype: torch.dtype = torch.float64) -> list[State]:
    """n state dictionaries of `net`: random numbers, and i as the number of batches."""
    draws = torch.Generator().manual_seed(7)
    dictionaries = []
    for i in range(1, n + 1):
        state = {}
        for name, tensor in net(dtype).state_dict().items():
            if tensor.is_floating_point():
                state[name] = torch.randn(tensor.shape, generator=draws, dtype=torch.float64).to(dtype)
            else:
                state[name] = torch.tensor(i)
        dictionaries.append(state)
    return dictionaries


def files(folder: Path, dictionaries: list[State]) -> Path:
    """The folder, with a file for each model, at steps 100, 200, ..."""
    folder.mkdir()
    for i, state in enumerate(dictionaries, 1):
        save_file(state, folder / f"model-{100 * i}.safetensors")
    return folder


class Seen:
    """An evaluation that keeps the module's tensors; its value is the sum of the first weight's entries."""

    def __init__(self) -> None:
        self.models: list[State] = []

    def __call__(self, module: nn.Module) -> float:
        self.models.append({name: tensor.clone() for name, tensor in module.state_dict().items()})
        return float(next(module.parameters()).detach().double().sum())


def exact_mean(rows: list[Tensor]) -> Tensor:
    """The mean by fractions, rounded to float64."""
    columns = zip(*(row.double().flatten().tolist() for row in rows), strict=True)
    means = [float(sum(map(Fraction, column), Fraction()) / len(rows)) for column in columns]
    return torch.tensor(means, dtype=torch.float64).view(rows[0].shape)


def check_mean(found: State, window: list[State]) -> None:
    """Each tensor is the mean of the window's, rounded once; the number of batches is the newest."""
    for name, tensor in found.items():
        if tensor.is_floating_point():
            assert torch.equal(tensor, exact_mean([state[name] for state in window]).to(tensor.dtype)), name
        else:
            assert torch.equal(tensor, window[-1][name])


def test_every_window_of_files_is_the_mean_of_its_models_by_fractions(tmp_path: Path) -> None:
    models = states(4)
    seen = Seen()
    found = fs.average_map(files(tmp_path / "models", models), seen, net(), say=unsaid)
    assert found.ends == [1, 2, 3, 4] and found.sizes == [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]
    windows = [models[end - size : end] for end in range(1, 5) for size in range(1, end + 1)]
    for model, window in zip(seen.models, windows, strict=True):
        check_mean(model, window)
    assert [*chain(*found.values)] == [float(model["0.weight"].sum()) for model in seen.models]
    assert found.models == [str(tmp_path / "models" / f"model-{100 * i}.safetensors") for i in range(1, 5)]


@pytest.mark.parametrize("source", [list, iter], ids=["a list", "an iterator"])
def test_state_dictionaries_give_the_same_map_as_their_files(
    tmp_path: Path, source: Callable[[list[State]], Any]
) -> None:
    models = states(3)
    of_files = fs.average_map(files(tmp_path / "models", models), Seen(), net(), say=unsaid)
    found = fs.average_map(source(models), Seen(), net(), say=unsaid)
    assert found.values == of_files.values
    assert found.models == [f"state dictionary {i}" for i in (1, 2, 3)]


def test_every_gives_the_windows_between_its_multiples() -> None:
    models = states(5)
    seen = Seen()
    found = fs.average_map(models, seen, net(), every=2, say=unsaid)
    assert found.ends == [2, 4] and found.sizes == [[2], [2, 4]]
    for model, window in zip(seen.models, (models[:2], models[2:4], models[:4]), strict=True):
        check_mean(model, window)


@settings(max_examples=30)
@given(
    st.lists(
        st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=1),
        min_size=1,
        max_size=4,
    )
)
def test_every_window_of_any_numbers_is_within_a_rounding_of_the_fractions(rows: list[list[float]]) -> None:
    module = nn.Linear(1, 1, bias=False).double()
    models = [{"weight": torch.tensor([row], dtype=torch.float64)} for row in rows]
    seen = Seen()
    fs.average_map(models, seen, module, say=unsaid)
    found = iter(seen.models)
    for end in range(1, len(rows) + 1):
        for size in range(1, end + 1):
            window = models[end - size : end]
            exact = sum((Fraction(float(state["weight"])) for state in window), Fraction()) / size
            largest = max(abs(row[0]) for row in rows[:end])
            error = abs(Fraction(float(next(found)["weight"])) - exact)
            assert (
                error
                <= abs(exact) * Fraction(2) ** -52 + Fraction(largest) * Fraction(2) ** -100 + Fraction(2) ** -1074
            )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_window_of_any_type_is_what_a_merge_of_its_files_writes(tmp_path: Path, dtype: torch.dtype) -> None:
    folder = files(tmp_path / "models", states(4, dtype))
    seen = Seen()
    found = fs.average_map(folder, seen, net(torch.float32), mode="max", say=unsaid)
    assert found.best is not None
    fs.merge_checkpoints(found.best.models, tmp_path / "best.safetensors")
    place = [(end, size) for end in range(1, 5) for size in range(1, end + 1)].index((found.best.end, found.best.size))
    for name, tensor in load_file(tmp_path / "best.safetensors").items():
        assert torch.equal(seen.models[place][name], tensor.to(seen.models[place][name].dtype))


def test_a_mean_of_bfloat16_is_rounded_once() -> None:
    """The mean 1 + 2^-8 + 2^-40 lies above the middle of two numbers, and would lie on it in float32."""
    models = [{"weight": torch.tensor([[x]], dtype=torch.bfloat16)} for x in (2.0, 2.0, 2.0**-6, 2.0**-38)]
    seen = Seen()
    fs.average_map(models, seen, nn.Linear(1, 1, bias=False), say=unsaid)
    assert float(seen.models[-1]["weight"]) == 1 + 2**-7


def test_the_module_is_left_as_it_was_also_after_an_error() -> None:
    module = net()
    module[1].eval()  # type: ignore[index]
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}

    def evaluate(model: nn.Module) -> float:
        model.train()
        model(torch.ones(4, 3, dtype=torch.float64))  # moves the statistics
        model.eval()
        if len(calls) == 2:
            raise ValueError("broken")
        calls.append(1)
        return 0.0

    calls: list[int] = []
    with pytest.raises(ValueError, match="broken"):
        fs.average_map(states(3), evaluate, module, say=unsaid)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert module.training and module[0].training and not module[1].training  # type: ignore[index]


def test_it_first_says_how_many_evaluations_and_bytes_it_needs(tmp_path: Path) -> None:
    lines: list[str] = []
    folder = files(tmp_path / "models", states(4))
    fs.average_map(
        folder, lambda module: lines.append("evaluated") or 0.0, net(), out=tmp_path / "map", say=lines.append
    )
    numbers = 2 * 3 + 2 + 4 * 2
    needed = f"4 models: 10 evaluations, of which 0 are done, and {4 * 16 * numbers:,} bytes in {tmp_path / 'map'}"
    assert lines[:2] == [needed, "evaluated"] and len(lines) == 11


def test_a_disk_without_room_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(OSError, match=r"take 1,280 bytes on the disk, but .* has only 1,000 free"):
        fs.average_map(states(5), Seen(), net(), out=tmp_path / "map", say=unsaid)
    assert not list((tmp_path / "map").rglob("*.safetensors"))


def named(module: nn.Module) -> float:
    """The sum of the first weight's entries."""
    return float(next(module.parameters()).detach().double().sum())


def killing(after: int) -> Callable[[nn.Module], float]:
    """`named`, which kills its process at the call number `after`, from 0."""
    calls: list[int] = []

    def evaluate(module: nn.Module) -> float:
        if len(calls) == after:
            os.kill(os.getpid(), 9)
        calls.append(1)
        return named(module)

    evaluate.__qualname__ = named.__qualname__
    return evaluate


@pytest.mark.parametrize("kind", ["files", "state dictionaries"])
def test_what_was_killed_goes_on_to_the_same_bytes(tmp_path: Path, kind: str) -> None:
    models = states(4)
    source: Any = files(tmp_path / "models", models) if kind == "files" else models
    folder = tmp_path / "killed"
    assert status_of_child(lambda: fs.average_map(source, killing(3), net(), out=folder, say=unsaid)) == -9
    assert len(json.loads((tmp_path / "killed" / "values.json").read_bytes())["values"]) == 3
    calls: list[float] = []

    def evaluate(module: nn.Module) -> float:
        calls.append(named(module))
        return calls[-1]

    evaluate.__qualname__ = named.__qualname__
    fs.average_map(source, evaluate, net(), out=tmp_path / "killed", say=unsaid)
    fs.average_map(source, named, net(), out=tmp_path / "whole", say=unsaid)
    assert len(calls) == 7
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert names == ["average_map.json", "values.json"] == sorted(path.name for path in (tmp_path / "killed").iterdir())
    for name in names:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_damaged_sum_of_a_map_is_named_with_what_can_be_done(tmp_path: Path) -> None:
    def stopped(module: nn.Module) -> float:
        raise KeyboardInterrupt

    folder = files(tmp_path / "models", states(3))
    with pytest.raises(KeyboardInterrupt):
        fs.average_map(folder, stopped, net(), out=tmp_path / "map", say=unsaid)
    (tmp_path / "map" / "sums" / "00000003.safetensors").write_bytes(b"")
    with pytest.raises(RunError, match=r"3\.safetensors is missing or damaged: name another folder$"):
        fs.average_map(folder, stopped, net(), out=tmp_path / "map", say=unsaid)


@pytest.mark.parametrize("every", [1.5, True, 0, None])
def test_every_must_be_a_whole_number_above_0(every: Any) -> None:
    with pytest.raises(SettingError, match=f"every = {every}: must be"):
        fs.average_map(states(2), named, net(), every=every)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="models does not exist"):
        fs.average_map(tmp_path / "models", named, net())


def test_a_reading_that_was_killed_goes_on_after_the_last_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = files(tmp_path / "models", states(4))
    pid = os.fork()
    if pid == 0:
        write = sum_files.write

        def killed(place: Path, number: int, running: Any) -> None:
            if number == 3:
                os.kill(os.getpid(), 9)
            write(place, number, running)

        monkeypatch.setattr(sum_files, "write", killed)
        fs.average_map(folder, named, net(), out=tmp_path / "map", say=unsaid)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
    first = tmp_path / "map" / "sums" / "00000001.safetensors"
    second = tmp_path / "map" / "sums" / "00000002.safetensors"
    assert first.exists() and second.exists()
    before = second.stat().st_mtime_ns
    times: list[int] = []

    def evaluate(module: nn.Module) -> float:
        times.append(second.stat().st_mtime_ns)
        return named(module)

    evaluate.__qualname__ = named.__qualname__
    found = fs.average_map(folder, evaluate, net(), out=tmp_path / "map", say=unsaid)
    assert set(times) == {before}, "written once"
    assert found == fs.average_map(folder, named, net(), say=unsaid)


def test_a_finished_map_is_given_again_without_an_evaluation(tmp_path: Path) -> None:
    folder = files(tmp_path / "models", states(3))
    found = fs.average_map(folder, named, net(), out=tmp_path / "map", say=unsaid)
    lines: list[str] = []
    again = fs.average_map(folder, named, net(), out=tmp_path / "map", say=lines.append)
    assert again == found
    assert lines == [f"3 models: 6 evaluations, of which 6 are done, and 0 bytes in {tmp_path / 'map'}"]


def test_the_folder_of_another_map_is_refused(tmp_path: Path) -> None:
    models = states(3)
    folder = files(tmp_path / "models", models)
    out = tmp_path / "map"
    fs.average_map(folder, named, net(), out=out, say=unsaid)
    with pytest.raises(RunError, match=r"is of another map: mode is min there and max here: name another folder"):
        fs.average_map(folder, named, net(), mode="max", out=out, say=unsaid)
    with pytest.raises(RunError, match="evaluate is named there and Seen here"):
        fs.average_map(folder, Seen(), net(), out=out, say=unsaid)
    with pytest.raises(RunError, match="every is 1 there and 2 here"):
        fs.average_map(folder, named, net(), every=2, out=out, say=unsaid)
    save_file({name: -tensor for name, tensor in models[2].items()}, folder / "model-300.safetensors")
    os.utime(folder / "model-300.safetensors", (1, 1))
    with pytest.raises(RunError, match="is of another map: models is"):
        fs.average_map(folder, named, net(), out=out, say=unsaid)
    fs.average_map(models, named, net(), out=tmp_path / "states", say=unsaid)
    with pytest.raises(RunError, match="has values of other models: name another folder"):
        fs.average_map(models[::-1], named, net(), out=tmp_path / "states", say=unsaid)
    (out / "values.json").unlink()
    (out / "sums").mkdir()
    with pytest.raises(RunError, match=r"sums is there, and values.json is not: name another folder"):
        fs.average_map(folder, named, net(), out=out, say=unsaid)


def test_a_file_of_a_sum_has_the_bytes_that_safetensors_writes(tmp_path: Path) -> None:
    high = torch.randn(5, dtype=torch.float64)
    running = RunningSum(high, high * 2**-60, 12)
    sum_files.write(tmp_path, 3, running)
    tensors = {"high": running.high, "low": running.low, "count": torch.tensor(12)}
    metadata = {"checksum": str(sum_files.checksum(running, 3))}
    assert sum_files.place(tmp_path, 3).read_bytes() == save(tensors, metadata)
    assert torch.equal(sum_files.read(tmp_path, 3).high, high) and sum_files.count(tmp_path, 3) == 12


def test_ctrl_c_leaves_the_values_so_far_and_the_module(tmp_path: Path) -> None:
    module = net()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}

    def evaluate(model: nn.Module) -> float:
        if len(calls) == 4:
            raise KeyboardInterrupt
        calls.append(1)
        return named(model)

    calls: list[int] = []
    evaluate.__qualname__ = named.__qualname__
    with pytest.raises(KeyboardInterrupt):
        fs.average_map(states(3), evaluate, module, out=tmp_path / "map", say=unsaid)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    lines: list[str] = []
    found = fs.average_map(states(3), named, module, out=tmp_path / "map", say=lines.append)
    assert "of which 4 are done" in lines[0]
    assert found == fs.average_map(states(3), named, module, say=unsaid)


def values_of(*values: float) -> Callable[[nn.Module], float]:
    """An evaluation with these values, one after another."""
    left: Iterator[float] = iter(values)
    return lambda module: next(left)


def test_a_value_that_is_not_finite_is_never_the_best_and_is_told() -> None:
    lines: list[str] = []
    nan = float("nan")
    found = fs.average_map(states(2), values_of(nan, float("inf"), 3.0), net(), mode="max", say=lines.append)
    assert found.not_finite == 2
    assert found.best is not None and (found.best.end, found.best.size, found.best.value) == (2, 2, 3.0)
    assert found.best_at(1) is None
    assert lines[-1] == "2 of 3 values are not finite: they count as NaN, and never as the best"
    assert fs.average_map(states(1), values_of(nan), net(), say=unsaid).best is None


def test_the_best_window_is_the_lowest_or_highest_and_of_equal_ones_the_first() -> None:
    lowest = fs.average_map(states(2), values_of(2.0, 1.0, 1.0), net(), say=unsaid).best
    assert lowest is not None and (lowest.end, lowest.size) == (2, 1)
    assert lowest.models == ["state dictionary 2"]
    highest = fs.average_map(states(2), values_of(1.0, 2.0, 2.0), net(), mode="max", say=unsaid).best
    assert highest is not None and (highest.end, highest.size) == (2, 1)


def test_a_map_is_written_and_read_and_shown(tmp_path: Path) -> None:
    found = fs.average_map(states(2), values_of(2.0, float("nan"), 0.25), net(), say=unsaid)
    found.to_json(tmp_path / "map.json")
    read = AverageMap.load(tmp_path / "map.json")
    assert str(read.values) == str(found.values) and read.best == found.best and read.sizes == found.sizes
    assert found.table().splitlines() == [
        "ends with           windows  best W  its value",
        "state dictionary 1        1       1          2",
        "state dictionary 2        2       2       0.25",
    ]
    assert "windows=3" in repr(found)
    (tmp_path / "map.json").write_text("{}")
    with pytest.raises(RunError, match=r"map.json is damaged"):
        AverageMap.load(tmp_path / "map.json")


def test_a_map_is_drawn_with_a_gap_where_there_is_no_window(tmp_path: Path) -> None:
    found = fs.average_map(states(3), values_of(6.0, 5.0, 4.0, 3.0, 2.0, 1.0), net(), say=unsaid)
    figure = found.plot()
    (mesh,) = figure.axes[0].collections
    array: Any = mesh.get_array()
    assert array.reshape(3, 3).tolist() == [[6.0, 5.0, 3.0], [None, 4.0, 2.0], [None, None, 1.0]]
    figure.savefig(tmp_path / "map.png")
    fs.average_map(states(1), values_of(1.0), net(), say=unsaid).plot().savefig(tmp_path / "one.png")


def test_a_trackers_sums_give_its_windows(tmp_path: Path) -> None:
    module = net()
    tracker = fs.Tracker(fs.EMA(0.9), module, trajectory_every=2)
    for state in states(6):
        module.load_state_dict(state)
        tracker.update()
    seen = Seen()
    found = fs.average_map(tracker, seen, module, every=2, out=tmp_path / "map", say=unsaid)
    assert found.ends == [2, 4, 6] and found.sizes == [[2], [2, 4], [2, 4, 6]]
    for model, window in zip(seen.models, [(2, 2), (4, 2), (4, 4), (6, 2), (6, 4), (6, 6)], strict=True):
        end, size = window
        for name, tensor in tracker.window(size, at=end).items():
            assert torch.equal(model[name], tensor.to(model[name].dtype)) or "num_batches" in name
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, states(6)[-1][name])
    assert fs.average_map(tracker, seen, module, every=2, out=tmp_path / "map", say=unsaid) == found
    assert len(seen.models) == 6
    assert fs.average_map(tracker, seen, module, every=4, say=unsaid).ends == [4]


def test_a_tracker_without_sums_or_of_another_module_is_refused() -> None:
    module = net()
    tracker = fs.Tracker(fs.EMA(0.9), module)
    with pytest.raises(RunError, match="no running sum after a multiple of 1 updates: trajectory_every = 10"):
        fs.average_map(tracker, named, module, say=unsaid)
    with pytest.raises(SettingError, match="must be the Tracker's module"):
        fs.average_map(tracker, named, net(), say=unsaid)


class Sharded(nn.Linear):
    """A layer that says of itself, as FSDP2's do, that it can be sharded again."""

    def reshard(self) -> None:
        """Do nothing."""


class Masked(nn.Module):
    """A module with a mask as a buffer, and with tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2, bias=False).double()
        self.second = nn.Linear(2, 2, bias=False).double()
        self.second.weight = self.first.weight
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))


def test_a_mask_is_the_newest_and_a_tied_tensor_is_summed_once() -> None:
    models = []
    for i in (1, 3):
        state = Masked().state_dict()
        models.append({"first.weight": state["first.weight"] * i, "second.weight": state["first.weight"] * i})
        models[-1]["mask"] = torch.tensor([float(i), -torch.inf])
    lines: list[str] = []
    seen = Seen()
    fs.average_map(models, seen, Masked(), say=lines.append)
    assert "and 128 bytes" in lines[0], "two sums of four numbers"
    mean = exact_mean([state["first.weight"] for state in models])
    assert torch.equal(seen.models[-1]["second.weight"], mean) and torch.equal(seen.models[-1]["first.weight"], mean)
    assert seen.models[-1]["mask"].tolist() == [3.0, -torch.inf]


class Tied(nn.Module):
    """An embedding whose weights are those of the last layer, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(3, 2)
        self.head = nn.Linear(2, 3, bias=False)
        self.head.weight = self.embedding.weight


@pytest.mark.parametrize("written", ["embedding.weight", "head.weight"])
def test_a_tied_tensor_may_be_written_under_one_of_its_names(written: str, tmp_path: Path) -> None:
    """As Transformers writes it."""
    weights = [torch.randn(3, 2) for _ in range(3)]
    for step, weight in enumerate(weights, 1):
        save_file({written: weight}, tmp_path / f"model-{step}.safetensors")
    map = fs.average_map(tmp_path, lambda module: float(module.head.weight.sum()), Tied(), say=unsaid)
    assert map.values[-1][-1] == pytest.approx(float(torch.stack(weights).mean(0).sum()), rel=1e-6)


def test_state_dictionaries_that_are_the_module_s_own_tensors_are_refused() -> None:
    """A list of them has one model, the last, however many there are."""
    module = net()
    with pytest.raises(ModelError, match=r"state dictionary 2 is the same tensors as 1, .*: keep copies, such as"):
        fs.average_map([module.state_dict() for _ in range(3)], lambda module: 0.0, module, say=unsaid)


def test_a_loop_may_give_the_same_tensors_again_with_other_numbers() -> None:
    """As a loop does that loads each model into one module."""
    module = net()

    def loop() -> Iterator[State]:
        for state in states(3):
            module.load_state_dict(state)
            yield module.state_dict()

    seen = Seen()
    fs.average_map(loop(), seen, net(), say=unsaid)
    for model, window in zip(seen.models, [(0, 1), (1, 2), (0, 2), (2, 3), (1, 3), (0, 3)], strict=True):
        check_mean(model, states(3)[slice(*window)])


def test_a_module_with_a_compiled_part_takes_the_names_without_it() -> None:
    module = net()
    module[0] = torch.compile(module[0])  # type: ignore[index]
    found = fs.average_map(states(2), named, module, say=unsaid)
    assert found == fs.average_map(states(2), named, net(), say=unsaid)


def test_names_with_prefixes_are_matched_and_it_is_said_once(tmp_path: Path) -> None:
    models = [{f"module.{name}": tensor for name, tensor in state.items()} for state in states(2)]
    lines: list[str] = []
    found = fs.average_map(models, named, net(), say=lines.append)
    assert found == fs.average_map(states(2), named, net(), say=unsaid)
    assert sum("matched without" in line for line in lines) == 1


def refused(models: Any, **settings: Any) -> str:
    """The line of the error."""
    with pytest.raises((ModelError, SettingError, RunError)) as error:
        fs.average_map(models, settings.pop("evaluate", named), settings.pop("module", net()), say=unsaid, **settings)
    return str(error.value)


def test_what_does_not_fit_is_refused_in_a_line(tmp_path: Path) -> None:
    good = states(2)
    assert refused(good, mode="best") == "mode = 'best': must be 'min' or 'max'"
    assert refused(good, every=0) == "every = 0: must be at least 1"
    assert refused(good, every=3) == "every = 3: must be at most 2, the number of models"
    assert refused(iter(good), every=3) == "every = 3: must be at most 2, the number of models"
    assert refused([]) == "the source has no models"
    assert refused(iter([])) == "the source has no models"
    assert refused(3).startswith("source = 3: must be a folder, a list of paths")
    assert refused(good[0]).startswith("source = ")
    assert refused([net()]) == "state dictionary 1 is a Sequential, and must be a state dictionary"
    assert refused(good, evaluate=lambda module: "low").startswith("evaluate = 'low': it must return a number")
    assert refused(good, evaluate=lambda module: torch.ones(2)).endswith("it must return a number, such as a loss")
    assert refused(good, evaluate=3).startswith("evaluate = 3: must be a function")
    assert refused(good, module=3).startswith("module = 3: must be an nn.Module")
    assert refused(good, module=nn.Linear(3, 2)).startswith("state dictionary 1 lacks")
    assert "is on the device meta" in refused(good, module=net().to("meta"))
    assert refused(good, module=Sharded(3, 2)).startswith("the module is sharded")
    spoilt = [good[0], good[1] | {"0.bias": torch.tensor([0.0, torch.nan], dtype=torch.float64)}]
    assert refused(spoilt) == "state dictionary 2: 0.bias is not finite: leave this model out"
    wrong = [good[0], good[1] | {"0.bias": torch.zeros(3, dtype=torch.float64)}]
    assert refused(wrong) == "state dictionary 2: 0.bias has the shape [3], and [2] in the module"
    narrow = [good[0], good[1] | {"0.bias": torch.zeros(2)}]
    assert refused(narrow) == "state dictionary 2: 0.bias is torch.float32, and torch.float64 in the model before"
    whole = [good[0] | {"0.bias": torch.zeros(2, dtype=torch.int64)}]
    assert refused(whole) == "state dictionary 1: 0.bias is torch.int64, and torch.float64 in the module"
    assert "has no checkpoint" in refused(tmp_path)
    folder = files(tmp_path / "quantised", good)
    (folder / "config.json").write_text('{"quantization_config": {}}')
    assert "the mean of quantised weights means nothing" in refused(folder)


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / "how-to" / "choose-window.md").read_text()
    example = text.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    files(tmp_path / "outputs", states(4))
    names: dict[str, Any] = {"model": net(), "validation_loss": named}
    exec(compile(example, "choose-window.md", "exec"), names)
    assert names["found"].best.models == names["best"].models
    assert (tmp_path / "best.safetensors").exists()
