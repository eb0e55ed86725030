"""The map of averages: every window of a training's models, by its size and its newest model, with its value."""

from __future__ import annotations

import hashlib
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsFloat

import torch
from torch import Tensor, nn

from ..settings.errors import ModelError, RunError, SettingError, check, check_choice, check_count, library
from ..system.files import table, write_table
from ..system.lock import locked
from ..vector import exact_sums
from ..vector.exact_means import rounded_once
from ..vector.pieces import Pieces
from ..vector.shown import Shown, text_table
from ..vector.storage import check_room
from ..vector.wrapped import plain, sharded, unwrapped
from . import sum_files
from .afterwards import RunningSum, Triangle, by_size, window_starts
from .checkpoints.formats import Checkpoint
from .checkpoints.states import AveragedTensors, Say, States
from .lent import check_fits, checksums, lent, modes_kept
from .progress import ProgressLines
from .tracker import Tracker

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Mode = Literal["min", "max"]

RESULT = "average_map.json"
VALUES = "values.json"
SUMS = "sums"

OTHER_FOLDER = ": name another folder"
"""What can be done where a folder is of another map, or damaged."""


@dataclass(frozen=True)
class WindowValue:
    """A window and its `value`: the `size` models up to the one numbered `end`, which is in it.

    Models count from 1; of a Tracker `end` is the update after which the newest one was taken. `models` are their
    names, from the oldest to the newest; a Tracker's have none.
    """

    end: int
    size: int
    value: float
    models: list[str]


@dataclass(frozen=True, repr=False)
class AverageMap(Shown):
    """The `values` `[ends][windows]` of windows of models, whose `sizes` `[ends][windows]` are numbers of models.

    `ends` are the numbers of the windows' newest models, from 1; of a Tracker they are updates. A value that was not
    finite is NaN. `mode` says whether the lowest (`"min"`) or the highest value is best. `models` has the names of all
    models, such as their paths; a Tracker's have none.
    """

    mode: Mode
    ends: list[int]
    sizes: list[list[int]]
    values: list[list[float]]
    models: list[str]

    @classmethod
    def load(cls, path: str | Path) -> AverageMap:
        """The map in a file that `to_json` wrote. Raises `RunError` if it is damaged, and `OSError`."""
        content = table(Path(path), sealed=True)
        try:
            values = [[nan if value is None else float(value) for value in row] for row in content.pop("values")]
            return cls(values=values, **content)
        except (KeyError, TypeError) as error:
            raise RunError(f"{path} holds no map of averages: {error}") from None

    def to_json(self, path: str | Path) -> None:
        """Write the map into a file, completely or not at all; NaN becomes `null`."""
        write_table(path, asdict(self))

    @property
    def best(self) -> WindowValue | None:
        """The best window: of equal ones the one that ends first, then the smallest. None if all values are NaN."""
        return _best(list(self._windows()), self.mode)

    def best_at(self, end: int) -> WindowValue | None:
        """The best of the windows that end with this model; None if all their values are NaN."""
        check(end in self.ends, "end", end, f"must be one of {self.ends}")
        return _best([window for window in self._windows() if window.end == end], self.mode)

    @property
    def not_finite(self) -> int:
        """The number of windows whose value is NaN."""
        return sum(math.isnan(window.value) for window in self._windows())

    def table(self) -> str:
        """A line for each end: its model, the number of windows, the best of them and its value."""
        heads = ["ends with", "windows", "best W", "its value"]
        rows = []
        for end, sizes in zip(self.ends, self.sizes, strict=True):
            best = self.best_at(end)
            name = self.models[end - 1] if self.models else str(end)
            if best is None:
                rows.append([name, str(len(sizes)), "-", "-"])
            else:
                rows.append([name, str(len(sizes)), str(best.size), f"{best.value:.6g}"])
        return "\n".join(text_table(heads, rows))

    def plot(self) -> Figure:
        """The map as a picture: the values by end and size, with a mark on the best window.

        `plot().savefig("map.png")` writes it. Raises `LibraryError` without matplotlib.
        """
        with library("matplotlib", "pictures", "fedsash[lab]"):
            from matplotlib.figure import Figure
        sizes, grid = by_size(self.sizes, self.values)
        heights = [[nan if value is None else value for value in row] for row in grid]
        figure = Figure(layout="constrained")
        axes = figure.subplots()
        image = axes.pcolormesh(self.ends, sizes, heights, shading="nearest")
        figure.colorbar(image)
        axes.set_xlabel("the newest model's number")
        axes.set_ylabel("W, the number of models")
        if self.best is not None:
            axes.plot([self.best.end], [self.best.size], "r*", markersize=12)
        return figure

    def facts(self) -> Mapping[str, object]:
        """The facts that `repr` shows."""
        windows = sum(map(len, self.sizes))
        return {"mode": self.mode, "ends": self.ends, "windows": windows, "best": self.best}

    def _windows(self) -> Iterator[WindowValue]:
        for end, sizes, values in zip(self.ends, self.sizes, self.values, strict=True):
            for size, value in zip(sizes, values, strict=True):
                models = self.models[end - size : end] if self.models else []
                yield WindowValue(end, size, value, models)


def _best(windows: list[WindowValue], mode: Mode) -> WindowValue | None:
    """The first of the best windows, without those whose value is NaN."""
    known = [window for window in windows if not math.isnan(window.value)]
    if not known:
        return None
    if mode == "min":
        return min(known, key=lambda window: window.value)
    return max(known, key=lambda window: window.value)


def average_map(
    source: str | Path | Sequence[str | Path] | Iterable[Mapping[str, Tensor]] | Tracker,
    evaluate: Callable[[nn.Module], SupportsFloat],
    module: nn.Module,
    every: int = 1,
    mode: Mode = "min",
    *,
    out: str | Path | None = None,
    key: str = "",
    say: Say = print,
) -> AverageMap:
    """Evaluate every window of models, of all sizes and ends, from one reading of the models.

    `source` is a folder of checkpoints or a list of paths, in the order of `merge_checkpoints` (`key` chooses one of
    several state dictionaries in a file), an iterable of state dictionaries, from the oldest on, or a Tracker with
    `trajectory_every`. `module` has each mean in turn, and `evaluate(module)` gives its value; afterwards the module is
    as it was, bitwise, and so are its modes. Windows begin and end after a multiple of `every` models (of a Tracker,
    updates): m of these give m (m + 1) / 2 windows.

    With S_n = w_1 + ... + w_n, the mean of the models m + 1 to n is

        (S_n - S_m) / (n - m)

    Each S_n lies on the disk as a pair of float64 numbers for each number of the model, 16 bytes, with an error below
    n^2 2^-106 times the largest sum so far. A mean is rounded to float64 and once more to the type of the models, as
    which it then stands in the module, of whatever type that is. So it is what `merge_checkpoints` writes, except where
    the exact mean lies within 2^-52 of itself of the middle between two numbers of that type: there it may be the other
    one. A mean in bfloat16 has 8 significant bits and in float16 11: windows that differ by less are equal there.
    Tensors without floating-point numbers, and buffers that are not finite in the first model, are those of the
    window's newest model. BatchNorm's statistics are averaged; `evaluate` may re-estimate them, which is undone.

    It first says how many evaluations and bytes it needs; `say` takes its lines. With a folder `out`, it keeps sums and
    values there, and the same call goes on where one was interrupted, with equal results if `evaluate` gives the same
    value for the same model. At the end `out` has `average_map.json`, and the sums are removed. Another `evaluate`
    needs another folder. Without `out`, all lies in the folder for temporary files (`TMPDIR`) until the call ends. A
    value that is not finite counts as NaN, and never as the best.

    Raises `SettingError` for wrong arguments, also if `evaluate` gives no number; `ModelError` for a model that is not
    finite or does not fit the module; `RunError` if `out` is of another map; `OSError` if the disk has no room.
    """
    check_choice("mode", mode, "min", "max")
    check(every is not None, "every", every, "must be a whole number")
    check_count("every", every)
    check(isinstance(module, nn.Module), "module", module, "must be an nn.Module")
    check(callable(evaluate), "evaluate", evaluate, "must be a function of the module")
    sums: _Sums
    if isinstance(source, Tracker):
        sums = _SumsOfTracker(source, module, every)
    else:
        sums = _SumsOnDisk(States.of(source, key, say), module, every)
    plan = {"mode": mode, "every": every, "evaluate": _name_of(evaluate), **sums.plan}
    with _folder(out) as folder, modes_kept(module):
        values = _Values(folder / VALUES, plan)
        sums.fill(folder / SUMS, values, say)
        triangle = Triangle.of(sums.counts)
        progress = ProgressLines(say)
        for end, size in list(triangle)[len(values.list) :]:
            with sums.lent(sums.mean(size, end)):
                value = _number(evaluate(module))
            values.append(value)
            progress.show(f"{len(values.list)} of {len(triangle)} windows")
        result = AverageMap(mode, triangle.ends, triangle.sizes, values.rows(triangle), sums.names)
        result.to_json(folder / RESULT)
        shutil.rmtree(folder / SUMS, ignore_errors=True)
    if result.not_finite:
        say(f"{result.not_finite} of {len(triangle)} values are not finite: they count as NaN, and never as the best")
    return result


class _Sums(Protocol):
    """Running sums of models, and the windows between them."""

    plan: dict[str, Any]
    """What tells the models apart from others."""
    names: list[str]
    counts: dict[int, int]
    """The number of models in each sum, by the number of its newest model; none at 0."""

    def fill(self, folder: Path, values: _Values, say: Say) -> None:
        """Make the sums that are not in the folder yet; say first what the map needs."""

    def mean(self, size: int, end: int) -> dict[str, Tensor]:
        """The mean of the `size` models up to `end`, by the names of the module's tensors."""

    def lent(self, mean: Mapping[str, Tensor]) -> AbstractContextManager[object]:
        """A context in which the module has a mean."""


class _SumsOnDisk:
    """The sums of models in files or in state dictionaries."""

    def __init__(self, states: States, module: nn.Module, every: int) -> None:
        self.states = states
        self.every = every
        self.module = unwrapped(module)
        if sharded(self.module):
            raise ModelError("the module is sharded, and the models are whole: take a module that is whole")
        self.tensors = AveragedTensors(self.module, self._live())
        self.plan: dict[str, Any] = {"models": states.files, "tensors": self.tensors.shapes}
        self.names: list[str] = []
        self.counts = {0: 0}
        self._others: dict[int, dict[str, Tensor]] = {}
        """By end, the newest model's tensors that are not averaged."""
        self._newest: tuple[int, RunningSum] | None = None
        """The sum that was read last as the end of a window, and its end."""

    def fill(self, folder: Path, values: _Values, say: Say) -> None:
        """Read the models once, and write the sum after every `every`-th.

        Of models in files, whose paths, sizes and times are those of the plan, it goes on after the last sum. State
        dictionaries are all read again: their sums must be those of the values so far.
        """
        self.folder = folder
        finished = self._finished(values)
        last = self._last_sum(finished)
        running: RunningSum | None = None
        digest = hashlib.sha256()
        progress = ProgressLines(say)
        for number, checkpoint in enumerate(self.states.checkpoints, 1):
            tensor_of = self.tensors.model(checkpoint, say)
            self.names.append(str(checkpoint.path))
            is_end = number % self.every == 0
            if running is None:
                self._announce(last, values, say)
                running = RunningSum.empty(self.tensors.size)
            if number == last and not finished:
                running = self._read(last)
            if number > last:
                self._add(running, checkpoint, tensor_of)
            if is_end:
                self.counts[number] = number
                self._others[number] = self.tensors.others(tensor_of)
            if is_end and self.states.files is None:
                digest.update(f"{sum_files.checksum(running, number)} {checksums(self._others[number])}".encode())
            if is_end and number > last and not finished:
                self._check_room(1)
                sum_files.write(folder, number, running)
            progress.show(f"{number} models are read")
        self._check_every(len(self.names))
        if self.states.files is None:
            values.bind(digest.hexdigest())
        if self.states.count is None:
            say(_evaluations(len(self.names), self.every, values))

    def _finished(self, values: _Values) -> bool:
        """Whether all windows have their values. Nobody knows it of models that are not counted yet."""
        count = self.states.count
        if count is None:
            return False
        self._check_every(count)
        return len(values.list) == _windows(count // self.every)

    def _last_sum(self, finished: bool) -> int:
        """The number of the last model that need not be read; 0 if all must be."""
        if self.states.files is None:
            return 0
        if finished:
            return len(self.states.files)
        return max(sum_files.kept(self.folder), default=0)

    def _add(self, running: RunningSum, checkpoint: Checkpoint, tensor_of: Callable[[str], Tensor]) -> None:
        """Add a model to the running sum, in place."""
        for flat, start, stop in self.tensors.pieces(checkpoint, tensor_of):
            part = running.cut(start, stop)
            exact_sums.add(part.high, part.low, plus=[Pieces.of(flat)])
        running.count += 1

    def mean(self, size: int, end: int) -> dict[str, Tensor]:
        if self._newest is None or self._newest[0] != end:
            self._newest = end, self._read(end)
        newest = self._newest[1]
        begin = window_starts(self.counts, end)[size]
        before = RunningSum.empty(self.tensors.size)
        if begin:
            before = self._read(begin)
        mean = dict(self._others[end])
        for name, (start, stop) in self.tensors.places.items():
            w = newest.cut(start, stop).mean_since(before.cut(start, stop), newest.high[start:stop])
            mean[name] = rounded_once(w, self.tensors.types[name]).view(self.tensors.shapes[name])
        return mean

    def _read(self, number: int) -> RunningSum:
        return sum_files.read(self.folder, number, OTHER_FOLDER)

    def lent(self, mean: Mapping[str, Tensor]) -> AbstractContextManager[object]:
        return lent(self.module, self._live, mean)

    def _live(self) -> dict[str, Tensor]:
        """The module's tensors as they are now, by their names in a state dictionary."""
        parameters = self.module.named_parameters(remove_duplicate=False)
        return plain(dict(chain(parameters, self.module.named_buffers(remove_duplicate=False))))

    def _announce(self, last: int, values: _Values, say: Say) -> None:
        """Say what is needed, and raise `OSError` if the disk has no room for it."""
        count = self.states.count
        bytes_of_sum = 16 * self.tensors.size
        if count is None:
            say(f"each {self.every} models need {bytes_of_sum:,} bytes in {self.folder.parent}")
            return
        to_write = (count - last) // self.every
        needed = f"{to_write * bytes_of_sum:,} bytes in {self.folder.parent}"
        say(f"{_evaluations(count, self.every, values)}, and {needed}")
        self._check_room(to_write)

    def _check_room(self, sums: int) -> None:
        check_room(sums, torch.empty(1, dtype=torch.float64).expand(2 * self.tensors.size), self.folder)

    def _check_every(self, count: int) -> None:
        if not count:
            raise RunError("the source has no models")
        check(self.every <= count, "every", self.every, f"must be at most {count}, the number of models")


class _SumsOfTracker:
    """The sums that a Tracker keeps; they need no file."""

    def __init__(self, tracker: Tracker, module: nn.Module, every: int) -> None:
        same = unwrapped(module) is tracker.module
        check(same, "module", module, "must be the Tracker's module")
        self.tracker = tracker
        self.counts = {end: count for end, count in tracker.sums.items() if end % every == 0}
        ends = [end for end, count in self.counts.items() if count]
        if not ends:
            raise RunError(f"the Tracker has no running sum after a multiple of {every} updates: trajectory_every = 10")
        self.plan: dict[str, Any] = {"ends": ends}
        self.names: list[str] = []

    def fill(self, folder: Path, values: _Values, say: Say) -> None:
        state = self.tracker.state_dict()
        tensors = {name: tensor for name, tensor in state.items() if "/sums/" in name}
        values.bind(hashlib.sha256(str(checksums(tensors)).encode()).hexdigest())
        total = len(Triangle.of(self.counts))
        say(f"{total} evaluations, of which {len(values.list)} are done, and 0 bytes: the Tracker has the sums")

    def mean(self, size: int, end: int) -> dict[str, Tensor]:
        return self.tracker.window(size, end)

    def lent(self, mean: Mapping[str, Tensor]) -> AbstractContextManager[object]:
        return self.tracker.applied(mean)


class _Values:
    """The values so far in a file: window by window, in the order of the triangle.

    Raises `RunError` if the file is of other models or settings, or damaged.
    """

    def __init__(self, file: Path, plan: Mapping[str, Any]) -> None:
        self.file = file
        self.plan = plan
        self.list: list[float] = []
        self.digest = ""
        if file.exists():
            content = table(file, sealed=True)
            check_fits(f"{file.parent} is of another map", plan, content["plan"], OTHER_FOLDER)
            self.digest = content["digest"]
            self.list = [nan if value is None else value for value in content["values"]]
        elif (file.parent / SUMS).exists():
            raise RunError(f"{file.parent / SUMS} is there, and {file.name} is not{OTHER_FOLDER}")
        else:
            self._write()

    def bind(self, digest: str) -> None:
        """Note of which sums they are. Raises `RunError` if those so far are of others."""
        if self.list and digest != self.digest:
            raise RunError(f"{self.file.parent} has values of other models{OTHER_FOLDER}")
        self.digest = digest

    def append(self, value: float) -> None:
        """Keep the value of the next window, in the file, too."""
        self.list.append(value)
        self._write()

    def rows(self, triangle: Triangle) -> list[list[float]]:
        """The values by end."""
        rows = []
        start = 0
        for sizes in triangle.sizes:
            rows.append(self.list[start : start + len(sizes)])
            start += len(sizes)
        return rows

    def _write(self) -> None:
        write_table(self.file, {"plan": self.plan, "digest": self.digest, "values": self.list})


@contextmanager
def _folder(out: str | Path | None) -> Iterator[Path]:
    """The folder for sums and values, locked; without a name, one that goes at the end."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="fedsash-") as folder:
            yield Path(folder)
    else:
        with locked(Path(out)):
            yield Path(out)


def _evaluations(models: int, every: int, values: _Values) -> str:
    """How much is to be evaluated, in words."""
    return f"{models} models: {_windows(models // every)} evaluations, of which {len(values.list)} are done"


def _windows(ends: int) -> int:
    """How many windows so many ends have."""
    return ends * (ends + 1) // 2


def _name_of(evaluate: Callable[..., object]) -> str:
    return str(getattr(evaluate, "__qualname__", type(evaluate).__qualname__))


def _number(value: object) -> float:
    """What `evaluate` returned as a number; NaN if it is not finite."""
    if isinstance(value, Tensor):
        value = value.detach()
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        raise SettingError.at("evaluate", value, "it must return a number, such as a loss") from None
    if not math.isfinite(number):
        return nan
    return number
