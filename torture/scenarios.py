"""What is disturbed: commands of every sort, how each goes on after it was stopped, and what it writes undisturbed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import RLock

from . import experiments
from .folders import contents, different
from .frame import Bench, Finding

QUIET = "--no-progress"


@dataclass(frozen=True)
class Scenario:
    """A command, and the one that goes on: `resume`, or the same again if there is nothing to resume.

    A `stateless` one saves nothing to go on from: `resume` makes it again from its beginning.
    `needs` are scenarios whose folders it reads or continues; they lie beside its own, under their names.
    """

    name: str
    words: tuple[str, ...]
    resumes: bool = False
    stateless: bool = False
    needs: tuple[str, ...] = ()
    out: str = "out"

    @property
    def has_jobs(self) -> bool:
        """Whether it trains in processes of a sweep. They save their states if the sweep is killed."""
        return "--jobs" in self.words

    def next(self, folder: Path) -> tuple[str, ...]:
        """The command that begins, or goes on."""
        begun = self.resumes and (folder / self.out / "metrics.jsonl").exists()
        return ("resume", self.out, QUIET) if begun else self.words


ONE = 'engine={kind="sequential", workers=1, block=1, threads=1, compile=false, memory_format="contiguous"}'
TABLE = ("--set", ONE, "--scale", "tiny", "--only", "row=FMNIST #C=2", "--only", "method=FedAvg", "--jobs", "2", QUIET)
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("run", ("run", "run.toml", "--out", "out", QUIET), resumes=True),
        Scenario("workers", ("run", "workers.toml", "--out", "out", QUIET), resumes=True),
        Scenario("fork", ("run", "run.toml", "--fork", "run@4", "--out", "out", QUIET), resumes=True, needs=("run",)),
        Scenario("network", ("network", "network.toml", "--out", "out", QUIET), resumes=True),
        Scenario("timing", ("network", "timing.toml", "--out", "out", QUIET), resumes=True, stateless=True),
        Scenario("sweep", ("sweep", "sweep.toml", "--out", "out", "--jobs", "2", QUIET)),
        Scenario("reproduce", ("reproduce", "ima-table-1", "--out", "out", *TABLE)),
        Scenario("report", ("report", "run", "--out", "out/page.html", "--figures", "out"), needs=("run",)),
        Scenario("average", ("average", "run", "--name", "a"), needs=("run",), out="run"),
        Scenario(
            "landscape",
            ("landscape", "run", "--models", "model,w3,ema", "--points", "5", "--name", "l"),
            needs=("run",),
            out="run",
        ),
    )
}


class Undisturbed:
    """What each scenario writes if nobody disturbs it, and how long that takes. It is carried out once, when asked."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._seconds = dict[str, float]()
        self._lock = RLock()

    def folder(self, name: str) -> Path:
        """The folder with all that the scenario wrote."""
        place = self.bench.folder / f"whole-{name}"
        with self._lock:
            if not place.exists():
                self.prepare(name, place)
                began = time.monotonic()
                self.bench.right(place, *SCENARIOS[name].words)
                self._seconds[name] = time.monotonic() - began
        return place

    def seconds(self, name: str) -> float:
        """How long it takes undisturbed."""
        self.folder(name)
        return self._seconds[name]

    def prepare(self, name: str, place: Path) -> Path:
        """Make a folder in which the scenario can begin: the experiments, and the folders that it needs."""
        place.mkdir(exist_ok=True)
        experiments.write(place)
        for need in SCENARIOS[name].needs:
            shutil.copytree(self.folder(need) / "out", place / need)
        return place

    def differences(self, name: str, place: Path, only_common_states: bool = False) -> Iterable[Finding]:
        """In what the scenario's folder differs from the undisturbed one.

        Signals that save also save at other rounds: with `only_common_states` these states may be there or be gone.
        """
        out = SCENARIOS[name].out
        there = contents(self.folder(name) / out)
        here = contents(place / out)
        if only_common_states or SCENARIOS[name].has_jobs:
            there, here = _common(there, here)
        return different(there, here)


def _common(there: dict[str, bytes], here: dict[str, bytes]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Both without the states that one of them does not have, but for the last of each run."""
    states = [{_state(name) for name in files} for files in (there, here)]
    runs = {state.rpartition("/")[0] for state in states[0] if state}
    last = {max(state for state in states[0] if state.startswith(f"{run}/")) for run in runs}
    kept = (states[0] & states[1]) | last | {""}
    return tuple({name: files[name] for name in files if _state(name) in kept} for files in (there, here))  # type: ignore[return-value]


def _state(name: str) -> str:
    """The folder of the state to which a file belongs, or nothing."""
    parts = name.split("/")
    return "/".join(parts[: parts.index("state") + 2]) if "state" in parts[:-2] else ""
