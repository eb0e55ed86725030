"""A run's folder: its files, who writes them and when."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, TypeVar

from ..evaluation import Chronicle, History
from ..server.federation import Federation
from ..server.state import State
from ..settings.errors import RunError, SettingError, check, one_line, some
from ..system import files
from ..system.host import make_folders
from ..system.lock import locked
from ..system.paths import check_folder, is_utf8, plain_file
from ..vector.saved import cut, saved_rounds
from . import checkpoints, own_code
from .client_results import CLIENTS
from .cures import restore
from .drawn import draw_clients, draw_timeline
from .driver import Driver
from .model_files import INDEX, SHAPE, lost_models, remove_other_models, write_models, write_shape
from .partition import record
from .pictures.paper import can_draw, draw
from .records import Records
from .result import Result
from .running_sums import RunningSums
from .settings import Checkpoint
from .summaries import GOAL, goal_content, goal_of
from .tally import Tally

T = TypeVar("T")

SESSIONS = "sessions.json"
"""How often a run has been gone on with whose clients keep their state themselves."""

WRITTEN = (
    *("config.toml", own_code.NAME, "engine.json", GOAL, "partition.json", SHAPE, CLIENTS),
    *(SESSIONS, "summary.json", INDEX, "models", "curves.png", "clients.png"),
    *("timeline.json", "timeline.png", "link.png", "progress.png"),
)
"""The files and folders that a run writes beside `metrics.jsonl`, its states and its running sums."""


class RunFolder:
    """The folder of a run.

    | file | written | holds |
    |---|---|---|
    | `goal.json` | first at the beginning of each session | the metric that decides, see `goal_content` |
    | `config.toml` | at the beginning of each session | the complete experiment, as far as it is known (`built_by`) |
    | `own_code.json` | with it, if it names code of one's own | which code it may name again, see `own_code` |
    | `engine.json` | at the beginning | the engine as resolved, see `with_engine`; empty for clients on nodes |
    | `partition.json` | at the beginning | the clients' labels |
    | `model.json` | with it, if the experiment names the model | which inputs and outputs it has, see `write_shape` |
    | `metrics.jsonl` | row by row; it says that there is a run | see `Records` |
    | `sessions.json` | when a run over nodes goes on | how many sessions it has had; of clients that keep their state |
    | `clients.json` | with the state after an evaluation | each client's own results in it, see `client_results` |
    | `state/` | while the run trains | see `checkpoints` |
    | `trajectory/` | while the run trains | see `running_sums` |
    | `summary.json`, `models/`, `curves.png`, `clients.png` | at the end of each session | results |
    | `files.json` | with `models/` | the sizes and checksums of the models, see `model_files` |
    | `lock` | while a session works in the folder | who that is, see `lock` |
    | `timeline.json` and its pictures | at the end of each session on a network | events and times |

    Each JSON table has a checksum of itself (see `files.table`), and each state has those of its files and of the rows
    before it. The experiment is a plain file.
    """

    def __init__(self, path: Path | str) -> None:
        check(path != "", "out", path, 'must name a folder; "." is the current one')
        self.path = Path(path)
        self.states = self.path / "state"
        self.records = Records(self.path)

    @property
    def begun(self) -> bool:
        """Whether the folder has a run."""
        return self.records.begun

    def held(self) -> AbstractContextManager[None]:
        """A lock of the folder, so that no other session works in it. Raises `InUseError`, which names its process."""
        return locked(self.path)

    def check_path(self) -> None:
        """Raise `OSError` if there can't be a folder with files of ours, and `RunError` if its name is no UTF-8.

        The library that reads states and models opens no such path.
        """
        check_folder(self.path)
        if not is_utf8(str(self.path)):
            raise RunError(f"{self.path}: the name of a run's folder must be in UTF-8: choose another one")

    def check_new(self) -> None:
        """Raise `RunError` if it holds a run, states of a training with Flower's `Averaged`, or files that a run would
        replace and has not written.

        The first file of a run is `goal.json`: beside it lies what a run has written that was killed as it began.
        """
        if self.begun:
            how = f"go on with it (fedsash resume {shlex.quote(str(self.path))}, in Python fedsash.resume)"
            raise RunError(f"{self.path} holds a run already: {how}, or choose another folder")
        if saved_rounds(self.path):
            raise RunError(f"{self.path} holds the states of another training: choose another folder")
        others = self._written()
        if others and not files.is_ours(self.path / GOAL):
            raise RunError(f"{self.path} holds {some(others)}, which a run would replace: choose another folder")

    def check_begun(self) -> None:
        """Raise `RunError` if it holds no run."""
        if not self.begun:
            raise RunError(f"{self.path} holds no run to resume")

    def check_here(self) -> None:
        """Raise `RunError` if its clients are on nodes."""
        file = self.path / "engine.json"
        if file.exists() and not files.table(file) and not (self.path / "partition.json").exists():
            raise RunError(f"{self.path} holds a run over nodes: go on with the fedsash flower serve that began it")

    def new_session(self, last: int) -> int:
        """The number of a new session, above `last` and above those of all sessions before, which it counts.

        Raises `RunError` if the file of the number is damaged.
        """
        file = self.path / SESSIONS
        with suppress(FileNotFoundError):
            last = max(last, int(files.table(file, sealed=True)["sessions"]))
        files.write_table(file, {"sessions": last + 1})
        return last + 1

    def check_whole(self) -> None:
        """Raise `RunError` if a file is lost or damaged from which pages and tables of a finished run are made."""
        goal_of(self.path)
        if not self.config():
            raise RunError(f"{self.path / 'config.toml'} is missing")
        self.records.checked()
        if lost := lost_models(self.path):
            raise RunError(f"{self.path} has lost {some(lost)}")

    def clear(self) -> None:
        """Remove files that a killed process was writing. The folder must be locked."""
        for folder in (self.path, self.path / "models"):
            files.clear(folder)

    def settled(self, driver: Driver) -> Driver:
        """The driver with the engine with which the run began, for all settings that its own engine leaves open."""
        return with_engine(self.path, driver.settled)

    def config(self) -> dict[str, Any]:
        """The content of `config.toml`, the experiment of the last session; empty if there was none."""
        file = self.path / "config.toml"
        if not file.exists():
            return {}
        try:
            return tomllib.loads(plain_file(file).read_bytes().decode())
        except ValueError as error:
            raise RunError(f"{file} is damaged: {one_line(error)}") from error

    def settings(self) -> tuple[Checkpoint, RunningSums]:
        """The checkpoint and the running sums of the last session; the usual ones if there was none."""
        file = self.path / "config.toml"
        table = self.config()
        try:
            settings = dict(table.get("checkpoint", {}))
            settings["keep"] = tuple(settings.get("keep", ()))  # TOML has lists only
            return Checkpoint(**settings), RunningSums(**table.get("trajectory", {}))
        except (TypeError, ValueError) as error:
            raise RunError(f"{file} is damaged: {one_line(error)}") from error

    def save(
        self, driver: Driver, state: State, tally: Tally, keep: tuple[int, ...], clients: Mapping[str, Any]
    ) -> int:
        """Save a state after the rows that its `tally` counts, and after the last results of `clients`, if there are
        any.

        Returns the round of the oldest saved state.
        """
        if self.records.path.exists():
            self.records.flush()
        if clients:
            files.write_table(self.path / CLIENTS, clients)
        sizes = driver.federation.sizes
        whole = driver.saved(state)
        checkpoints.save(whole, self.states, keep, tally=tally, fingerprint=driver.fingerprint, sizes=sizes)
        return saved_rounds(self.states)[0]

    def claim(self, federation: Federation) -> None:
        """Write the first file of a run, `goal.json`: it says whose folder this is."""
        make_folders(self.path)
        files.write_table(self.path / GOAL, goal_content(federation.goal.criterion, federation.evaluation))

    def write_beginning(
        self, federation: Federation, forked: bool, config: Mapping[str, Any], started: bool, history: History
    ) -> None:
        """Write the files of the run's beginning: `goal.json` first (see `claim`), and the metrics last, since their
        file says that there is a run to resume.

        The engine is known once training has `started`. A run that has nothing left to train keeps its engine.json.
        """
        self.claim(federation)
        engine = federation.described()
        if started or not (self.path / "engine.json").exists():
            files.write_table(self.path / "engine.json", engine)
        if federation.clients.data is not None:
            files.write_table(self.path / "partition.json", record(federation.clients.data))
            if "model" in config:
                write_shape(self.path, federation.clients.data)
        content = dict(config)
        if "built_by" not in config:
            resolved = {key: value for key, value in engine.items() if value is not None}  # TOML has no word for None
            content["engine"] = config.get("engine", {}) | resolved
        write_config(self.path, content)
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
        if can_draw():
            if timeline is not None:
                draw_timeline(folder, timeline, result.history, curves)
            if curves:
                draw(result.plot(), folder / "curves.png")
            draw_clients(folder, criterion)
        vectors = result.vectors()
        write_models(folder, ((name, result.federation.export(w)) for name, w in vectors.items()))
        remove_other_models(folder, vectors.keys())
        if timeline is not None:
            files.write_table(folder / "timeline.json", timeline)
        files.write_table(folder / "summary.json", result.summary)

    def _written(self) -> list[str]:
        """The files that have names of a run's files, or lie in a folder that has."""
        written = []
        for name in WRITTEN:
            path = self.path / name
            candidates = path.rglob("*") if path.is_dir() else [path]
            for file in candidates:
                if file.is_symlink() or (file.exists() and not file.is_dir()):
                    written.append(file.relative_to(self.path).as_posix())
        return sorted(written)


def with_engine(folder: Path, settled: Callable[[Mapping[str, Any]], T]) -> T:
    """The result of `settled` for the engine with which the run in `folder` began.

    Raises `RunError` if it is lost or damaged: no session may choose another one, which rounds in another way.
    """
    file = folder / "engine.json"
    try:
        return settled(files.table(file, sealed=True))
    except FileNotFoundError:
        raise RunError(f"{file} is missing: {restore(folder)}") from None
    except SettingError as error:
        raise RunError(f"{file} is damaged: {error}") from error


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write `config.toml`, and with it a permit for the code of one's own that it names."""
    files.replace_file(folder / "config.toml", _toml(config).encode())
    for name, content in own_code.permit(folder, config).items():
        files.replace_file(folder / name, content)


def _toml(config: Mapping[str, Any]) -> str:
    """The config as TOML: by tomli_w with its tables below each other, or a line for each key where it is missing."""
    try:
        from tomli_w import dumps
    except ImportError:
        return "".join(f"{pair}\n" for pair in _toml_pairs(config))
    return dumps(config)


def _toml_pairs(table: Mapping[str, Any]) -> list[str]:
    pairs = []
    for key, value in table.items():
        name = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_value(key)
        pairs.append(f"{name} = {_toml_value(value)}")
    return pairs


def _toml_value(value: Any) -> str:
    """A text, a number, true or false, which TOML writes as JSON does, or a list or an inline table of them."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_toml_pairs(value))} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # a control character, too
