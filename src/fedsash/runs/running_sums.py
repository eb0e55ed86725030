"""The running sums of a run's models, in its folder: `RUN/trajectory/<round>.safetensors`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..averages import Pieces
from ..averages.afterwards import SUM, RunningSum
from ..averages.sum_files import count, kept, place, read, write
from ..server.state import State
from ..settings.errors import RunError, check, some
from ..settings.limits import CountFromZero
from ..settings.setting import Setting
from ..system.files import clear, replace_file
from ..system.host import host, make_folders, sync_folder

FOLDER = "trajectory"
NAME = "trajectory.sum"
"""The name of the sum so far among a state's averages. A user's average can't have it: its name can't have a dot."""


@dataclass(frozen=True)
class RunningSums(Setting):
    """When the sum of all models so far is saved.

    Two such sums give any window between their rounds exactly, after the run (`fedsash average`). A file takes
    16 bytes per parameter.
    """

    every: CountFromZero = 0
    """every so many rounds; 0: never"""


NEVER = RunningSums()
"""No running sums."""


class SumRecorder:
    """Adds up the models of the run in `folder`, and saves the sums.

    The sum so far is part of the run's state, so a resumed run continues it. A skipped round makes no model: it changes
    neither the sum nor the number of models.
    """

    def __init__(self, settings: RunningSums, folder: Path | None) -> None:
        check(not settings.every or folder is not None, "trajectory.every", settings.every, "needs a folder, or be 0")
        self.every = settings.every
        self.folder = None if folder is None else folder / FOLDER

    def start(self, state: State) -> State:
        """The start of a run, with the sum of no models."""
        if self.every:
            state.averages[NAME] = SUM.init(state.w)
        return state

    def observe(self, state: State, moved: bool) -> None:
        """Add the model of the state after a round. `moved` says whether the round has made a model.

        The sum is saved before the state of the round, so a saved state has all sums up to its round.
        """
        if not self.every or self.folder is None:
            return
        seen = state.averages[NAME]
        if moved:
            SUM.take(seen, Pieces.of(state.w), state.round, {})
        if state.round % self.every == 0:
            write(self.folder, state.round, RunningSum.of(seen))

    def check_state(self, state: State) -> None:
        """Raise `RunError` if the state's own sum is empty and so can't go on from those in the folder.

        Where all rounds so far were skipped, those are sums of no model, too.
        """
        if self.folder is None or not self._empty(state):
            return
        rounds = [round for round in kept(self.folder) if round <= state.round and count(self.folder, round)]
        if rounds:
            raise RunError(
                f"{self.folder} has sums of the rounds {some(rounds)}, and the run has gone on without them: leave "
                "trajectory.every at 0, or move that folder away"
            )

    def cut(self, state: State | None = None) -> None:
        """Remove the sums after the state's round, and incomplete files. Without a state, remove all sums."""
        if self.folder is None:
            return
        clear(self.folder)
        last = -1 if state is None else state.round
        for round in kept(self.folder):
            if round > last:
                host.disk.unlink(place(self.folder, round))

    def check(self, source: Path, last: int) -> None:
        """Raise `RunError` if a sum that a fork after the round `last` takes over is damaged."""
        if not self.every:
            return
        for round in kept(source / FOLDER):
            if round <= last:
                read(source / FOLDER, round)

    def take(self, source: Path, state: State) -> None:
        """Copy the sums that a fork's source has saved up to the fork, if the state has their sum."""
        if not self.every or self.folder is None or self._empty(state):
            return
        make_folders(self.folder)
        for round in kept(source / FOLDER):
            if round <= state.round:
                _link(place(source / FOLDER, round), place(self.folder, round))
        sync_folder(self.folder)

    def _empty(self, state: State) -> bool:
        """Whether the run adds up its models, but has none in its sum yet."""
        return bool(self.every) and not int(state.averages[NAME]["seen"])


def _link(source: Path, target: Path) -> None:
    """Make a hard link, or a copy if the file system has no links."""
    try:
        host.disk.link(source, target)
    except OSError:
        replace_file(target, source.read_bytes())
