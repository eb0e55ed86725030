"""A run's folder: its files, who writes them and when."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from ..basics import files
from ..basics.lock import held
from ..basics.saved import cut, saved_rounds
from ..evaluation import Chronicle, History
from ..federation import Federation
from ..settings.errors import RunError, SettingError, check, one_line, some
from ..state import State
from . import checkpoints, own_code
from .client_results import CLIENTS
from .drawn import draw_clients, draw_timeline
from .driver import Driver
from .partition import record
from .pictures.paper import draw
from .records import Records
from .result import Result
from .running_sums import RunningSums
from .settings import Checkpoint
from .summaries import GOAL, goal_content
from .tally import Tally

T = TypeVar("T")

WRITTEN = (
    *("config.toml", own_code.NAME, "engine.json", GOAL, "partition.json", CLIENTS, "summary.json", "models"),
    *("curves.png", "clients.png", "timeline.json", "timeline.png", "link.png", "progress.png"),
)
"""The files and folders that a run writes beside `metrics.jsonl`, its states and its running sums."""


class RunFolder:
    """The folder of a run.

    | file | written | holds |
    |---|---|---|
    | `config.toml` | at the beginning of each session | the complete experiment, as far as it is known (`built_by`) |
    | `own_code.json` | with it, if it names code of one's own | which code it may name again, see `own_code` |
    | `engine.json` | at the beginning | the engine as resolved, see `with_engine`; empty for clients on nodes |
    | `goal.json` | at the beginning of each session | the metric that decides, see `goal_content` |
    | `partition.json` | at the beginning | the clients' labels |
    | `metrics.jsonl` | row by row; it says that there is a run | see `Records` |
    | `clients.json` | with the state after an evaluation | each client's own results in it, see `client_results` |
    | `state/` | while the run trains | see `checkpoints` |
    | `trajectory/` | while the run trains | see `running_sums` |
    | `summary.json`, `models/`, `curves.png`, `clients.png` | at the end of each session | results |
    | `files.json` | with each of these files, and with each state | their sizes and checksums, see `files` |
    | `lock` | while a session works in the folder | who that is, see `lock` |
    | `timeline.json` and its pictures | at the end of each session on a network | events and times |
    """

    def __init__(self, path: Path | str) -> None:
        check(path != "", "out", path, 'must name a folder; "." is the current one')
        self.path = Path(path)
        self.states = self.path / "state"
        self.records = Records(self.path)

    @property
    def begun(self) -> bool:
        """Whether it holds a run."""
        return files.there(self.records.path)

    def held(self) -> AbstractContextManager[None]:
        """Hold the folder, so that no other session works in it. Raises `InUseError`, which says who holds it."""
        return held(self.path)

    def check_new(self) -> None:
        """Raise `RunError` if it holds a run, states of a training with Flower's `Averaged`, or files that a run would
        replace and has not written; those of a run that was killed as it began are replaced."""
        if self.begun:
            how = f"go on with it (fedsash resume {shlex.quote(str(self.path))}, in Python fedsash.resume)"
            raise RunError(f"{self.path} holds a run already: {how}, or choose another folder")
        if saved_rounds(self.path):
            raise RunError(f"{self.path} holds the states of another training: choose another folder")
        if others := files.foreign(self.path, WRITTEN):
            raise RunError(f"{self.path} holds {some(others)}, which a run would replace: choose another folder")

    def check_begun(self) -> None:
        """Raise `RunError` if it holds no run."""
        if not self.begun:
            raise RunError(f"{self.path} holds no run to resume")

    def check_here(self) -> None:
        """Raise `RunError` if its clients are on nodes."""
        file = self.path / "engine.json"
        if files.there(file) and not files.table(file) and not files.there(self.path / "partition.json"):
            raise RunError(f"{self.path} holds a run over nodes: go on with the fedsash flower serve that began it")

    def clear(self) -> None:
        """Remove what a killed process has left of files that it was writing. The folder must be held."""
        for folder in (self.path, self.path / "models"):
            files.clear(folder)

    def settled(self, driver: Driver) -> Driver:
        """The driver with the engine with which the run began, for all settings that its own engine leaves open."""
        return with_engine(self.path, driver.settled) if files.there(self.path / "engine.json") else driver

    def config(self) -> dict[str, Any]:
        """What is known of the experiment of the last session; empty if there was none."""
        file = self.path / "config.toml"
        try:
            return tomllib.loads(files.read(file).decode()) if files.there(file) else {}
        except ValueError as error:
            raise RunError(f"{file} is damaged: {one_line(error)}") from error

    def settings(self) -> tuple[Checkpoint, RunningSums]:
        """The checkpoint and the running sums of the last session; the usual ones if there was none."""
        file = self.path / "config.toml"
        table = self.config()
        try:
            given = table.get("checkpoint", {})
            checkpoint = Checkpoint(**given | {"keep": tuple(given.get("keep", ()))})
            return checkpoint, RunningSums(**table.get("trajectory", {}))
        except (TypeError, ValueError) as error:
            raise RunError(f"{file} is damaged: {one_line(error)}") from error

    def save(
        self, driver: Driver, state: State, tally: Tally, keep: tuple[int, ...], clients: Mapping[str, Any]
    ) -> int:
        """Save a state after the rows that its `tally` counts, and after the last results of `clients`, if there are
        any.

        Returns the round of the oldest saved state.
        """
        if self.begun:
            self.records.flush()
        if clients:
            files.write(self.path, [(CLIENTS, files.json_of(clients))])
        sizes = driver.federation.sizes
        whole = driver.saved(state)
        checkpoints.save(whole, self.states, keep, tally=tally, fingerprint=driver.fingerprint, sizes=sizes)
        return saved_rounds(self.states)[0]

    def write_beginning(
        self, federation: Federation, forked: bool, config: Mapping[str, Any], started: bool, history: History
    ) -> None:
        """Write the files of the run's beginning. The metrics come last: their file says that there is a run to resume.

        The engine is known once training has `started`. A run that has nothing left to train keeps its engine.json.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        engine = federation.described()
        contents = dict[str, bytes]()
        if started or not (self.path / "engine.json").exists():
            contents["engine.json"] = files.json_of(engine)
        contents[GOAL] = files.json_of(goal_content(federation.goal.criterion, federation.evaluation))
        if federation.clients.data is not None:
            contents["partition.json"] = files.json_of(record(federation.clients.data))
        known = {key: value for key, value in engine.items() if value is not None}  # TOML has no word for None
        began = {} if "built_by" in config else {"engine": config.get("engine", {}) | known}
        contents |= config_files(self.path, dict(config) | began)
        files.write(self.path, contents.items())
        if not self.begun:
            if not forked:
                cut(self.states, -1)  # files of a run that was killed before it wrote its metrics
            self.records.create(history)

    def write_end(self, result: Result, chronicle: Chronicle | None) -> None:
        """Write the results. The federation must still be at work, since the run's chronicle ends with it.

        The summary comes last: it says to a sweep that nothing is left to do.
        """
        folder = self.path
        criterion = result.federation.goal.criterion
        timeline = None if chronicle is None else chronicle.timeline()
        curves = result.history.curves(criterion)
        if timeline is not None:
            draw_timeline(folder, timeline, result.history, curves)
        if curves:
            draw(result.plot(), folder / "curves.png")
        draw_clients(folder, criterion)
        (folder / "models").mkdir(exist_ok=True)
        files.write(folder, _results(result, timeline))


def with_engine(folder: Path, settled: Callable[[Mapping[str, Any]], T]) -> T:
    """What `settled` makes of the engine with which the run in `folder` began. Raises `RunError` if it is damaged."""
    file = folder / "engine.json"
    try:
        return settled(files.table(file))
    except SettingError as error:
        raise RunError(f"{file} is damaged: {error}") from error


def config_files(folder: Path, config: Mapping[str, Any]) -> dict[str, bytes]:
    """`config.toml`, and with it a permit for the code of one's own that it names."""
    import tomli_w

    return {"config.toml": tomli_w.dumps(config).encode()} | own_code.permit(folder, config)


def _results(result: Result, timeline: Mapping[str, Any] | None) -> Iterator[tuple[str, bytes]]:
    """The files of a run's end."""
    for name, w in result.vectors().items():
        yield f"models/{name}.safetensors", result.federation.export(w)
    if timeline is not None:
        yield "timeline.json", files.json_of(timeline)
    yield "summary.json", files.json_of(result.summary)
