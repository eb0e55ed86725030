"""Callbacks: what else happens at the moments of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..client.messages import RoundReport
from ..client.store import run_and_session
from ..evaluation import Curves, History, Score
from ..server.federation import Federation
from ..server.state import State
from ..settings.setting import Setting
from ..vector.shown import Shown
from .models import RunModels
from .result import Result
from .tally import Tally


@dataclass(eq=False, repr=False)
class LiveRun(RunModels, Shown):
    """A run while it is trained: what callbacks see of it, and how they stop it.

    `state` is that of the last finished round. The next round changes its tensors in place: copy what you keep, and
    change nothing. `tally` has the run's times and counts, and its best models. `history` holds all
    records so far. `rounds` is the number of rounds asked for, `folder` the run's folder, or None. `config` has
    the settings of the experiment file, and is empty for a federation that was made in Python. `resumed` says whether
    the run began in an earlier session. `stopped` is why a callback has stopped it (see `stop`), and empty until then.

    The models are made when they are asked for: `models` lists their names, `model("wima")` gives a new module,
    `vectors()["wima"]` the vector `[D]`, and `state_dict("wima")` what the plain module loads.
    """

    federation: Federation
    state: State
    tally: Tally
    rounds: int
    folder: Path | None
    config: Mapping[str, Any]
    history: History
    resumed: bool
    stopped: str = ""

    def facts(self) -> dict[str, object]:
        """The facts that `repr` shows."""
        return {"round": self.round, "rounds": self.rounds, "models": self.models, "folder": self.folder}

    @property
    def round(self) -> int:
        """The number of finished rounds."""
        return self.state.round

    @property
    def id(self) -> str:
        """The run's own id, which all of its sessions share."""
        _, name = self.state.clients.lineage[-1]
        run, _ = run_and_session(name)
        return run

    def curves(self, split: str = "") -> Curves:
        """The values of the metric that decides by model and round, on a split: by default that on which
        models are compared."""
        return self.history.curves(self.federation.goal.criterion, split)

    def stop(self, why: str) -> None:
        """End the run after this round. It counts as finished, and its summary says `why` it `ended_early`.

        It can be resumed: it then goes on, unless a callback stops it again.
        """
        self.stopped = self.stopped or why


class Callback(Setting):
    """What else happens at the moments of a run. A callback is a class that extends this one.

    It overrides the moments that it wants. A round's order is: training, `evaluation` if one is due, saving the state
    if that is due, `round`. An experiment file names a callback that is a dataclass, whose fields are its settings.

    A session is the part of a run that one process trains. A callback may keep what lives as long as a session, such as
    an open file, in attributes. What it must know of earlier sessions is in `run.history`, `run.tally` and
    `run.state`. So a resumed run is the run that was never stopped.

    An exception of a callback ends the session. The state of the last round is saved, and the run can be resumed. Then
    the callback is not called again for the moment in which it raised.
    """

    def fits(self, federation: Federation) -> None:
        """Raise `SettingError` if it can't work with this federation. Called before anything is trained or written."""

    def begin(self, run: LiveRun) -> None:
        """A session begins, before its first round."""

    def round(self, run: LiveRun, report: RoundReport) -> None:
        """A round is finished. The `report` says who took part and what went wrong."""

    def evaluation(self, run: LiveRun, scores: list[Score]) -> None:
        """All models have been evaluated: `scores` has an entry for each model and split."""

    def end(self, run: LiveRun, result: Result | None) -> None:
        """A session that began ends: with its result, whose files are written, or None after an exception."""
