"""Two and three processes on one folder, at random moments: one works and the other is refused, or both are right."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from .folders import contents, different
from .frame import REFUSED, Bench, Case, Ended, Finding, Running
from .scenarios import QUIET, SCENARIOS, Undisturbed

SIZES = {"full": 120, "short": 9}
RUN = SCENARIOS["run"].words
SWEEP = SCENARIOS["sweep"].words
RESUME = ("resume", "out", QUIET)
REPORT = ("report", "out", "--out", "page.html")


def cases(bench: Bench, size: int) -> Iterator[Case]:
    """Each case is one way to share a folder, with delays of its own."""
    undisturbed = Undisturbed(bench)
    ways = list(WAYS)
    for number in range(size):
        way = ways[number % len(ways)]
        sharing = Sharing(bench, undisturbed, bench.random(number))
        yield Case(way, partial(_case, sharing, WAYS[way]))


def _case(sharing: Sharing, way: Callable[[Sharing, Path], Iterator[Finding]], place: Path) -> Iterator[Finding]:
    sharing.undisturbed.prepare("run", place)
    yield from way(sharing, place)


class Sharing:
    """The processes of one case."""

    def __init__(self, bench: Bench, undisturbed: Undisturbed, random: Random) -> None:
        self.bench = bench
        self.undisturbed = undisturbed
        self.random = random

    def start(self, place: Path, *commands: tuple[str, ...]) -> list[Running]:
        """Start commands, some at the same moment, the others at random ones after the first has begun to train."""
        started = [self.bench.start(place, *commands[0])]
        for command in commands[1:]:
            if self.random.random() < 0.7:
                while not any(place.glob("out/**/metrics.jsonl")) and not started[0].ended():
                    time.sleep(0.01)
                time.sleep(self.random.uniform(0, self.undisturbed.seconds("run") / 2))
            started.append(self.bench.start(place, *command))
        return started

    def ends(self, started: list[Running]) -> tuple[list[Ended], list[Finding]]:
        """Wait for all, and find what is wrong with the way in which they end."""
        ended = [running.wait() for running in started]
        findings: list[Finding] = []
        for end in ended:
            findings += end.findings(0, REFUSED)
        return ended, findings


def runs(sharing: Sharing, place: Path) -> Iterator[Finding]:
    """Runs with different seeds into one folder: one of them trains, and its folder is that of a run alone."""
    seeds = sharing.random.sample(("0", "1", "2"), sharing.random.choice((2, 3)))
    commands = [(*RUN, "--set", f"seed={seed}") for seed in seeds]
    ended, findings = sharing.ends(sharing.start(place, *commands))
    yield from findings
    trained = [seed for seed, end in zip(seeds, ended, strict=True) if end.code == 0]
    if len(trained) != 1:
        yield Finding("wrong", f"{len(trained)} of {len(seeds)} runs trained into one folder", _outputs(ended))
        return
    alone = place / "alone"
    sharing.undisturbed.prepare("run", alone)
    sharing.bench.right(alone, *RUN, "--set", f"seed={trained[0]}")
    yield from different(contents(alone / "out"), contents(place / "out"))


def resumes(sharing: Sharing, place: Path) -> Iterator[Finding]:
    """`resume` beside `run`, and two of them: those that come second are refused, and the run is right."""
    commands = [RUN, *[RESUME] * sharing.random.choice((1, 2))]
    ended, findings = sharing.ends(sharing.start(place, *commands))
    yield from findings
    if all(end.code for end in ended):
        yield Finding("wrong", "nobody trained", _outputs(ended))
    yield from sharing.undisturbed.differences("run", place)


def reports(sharing: Sharing, place: Path) -> Iterator[Finding]:
    """Those who only read do so beside a run, and do not disturb it."""
    commands = [RUN, REPORT, ("compare", "out"), ("average", "out", "--name", "a")]
    (run, *_), findings = sharing.ends(sharing.start(place, *commands))
    yield from findings
    yield from run.findings(0)
    for analysis in (place / "out" / "analyses").glob("*"):
        analysis.unlink()
    yield from sharing.undisturbed.differences("run", place)


def forks(sharing: Sharing, place: Path) -> Iterator[Finding]:
    """A fork beside the run from which it starts: it gets the whole state, or is told that there is none yet."""
    fork = (*RUN[:3], "forked", QUIET, "--fork", "out@4")
    ended, findings = sharing.ends(sharing.start(place, RUN, fork))
    yield from findings
    yield from sharing.undisturbed.differences("run", place)
    if ended[1].code == 0:
        expected = contents(sharing.undisturbed.folder("run") / "out" / "models")
        yield from different(expected, contents(place / "forked" / "models"))


def halves(sharing: Sharing, place: Path) -> Iterator[Finding]:
    """Two sweeps with a half each: all runs are trained, and the index holds them all."""
    halves = [(*SWEEP, "--only", f"ima={label}") for label in ("off", "on")]
    ended, findings = sharing.ends(sharing.start(place, *halves))
    yield from findings
    yield from _swept(sharing, place, ended)


def sweeps(sharing: Sharing, place: Path) -> Iterator[Finding]:
    """The same sweep twice."""
    ended, findings = sharing.ends(sharing.start(place, SWEEP, SWEEP))
    yield from findings
    yield from _swept(sharing, place, ended)


def _swept(sharing: Sharing, place: Path, ended: list[Ended]) -> Iterator[Finding]:
    """If one of two sweeps had to leave runs to the other, the same command again finds nothing missing."""
    if any(end.code for end in ended):
        again = sharing.bench.command(place, *SWEEP)
        yield from again.findings(0)
    expected = _results(sharing.undisturbed.folder("sweep") / "out")
    yield from different(expected, _results(place / "out"))


def _results(sweep: Path) -> dict[str, bytes]:
    """The runs' records and models. Their states also say which rounds they shared, and a half shares others."""
    files = contents(sweep)
    return {name: files[name] for name in files if name.startswith("runs/") and "/state/" not in name}


def killed(sharing: Sharing, place: Path) -> Iterator[Finding]:
    """A killed process holds nothing: the next one begins at once."""
    command = SCENARIOS[sharing.random.choice(("run", "workers"))].words
    (first,) = sharing.start(place, command)
    time.sleep(sharing.random.uniform(0.1, sharing.undisturbed.seconds("run")))
    first.process.send_signal(signal.SIGKILL)
    first.wait()
    if not (place / "out" / "metrics.jsonl").exists():
        yield from sharing.bench.command(place, *command).findings(0)
    else:
        yield from sharing.bench.command(place, *RESUME).findings(0)
    expected = contents(sharing.undisturbed.folder("run") / "out")
    files = contents(place / "out")
    for file in ("config.toml", "summary.json"):  # the number of workers is in them
        expected.pop(file)
        files.pop(file, None)
    yield from different(expected, files)


def _outputs(ended: list[Ended]) -> str:
    """What all commands have printed."""
    return "\n".join(end.output for end in ended)


WAYS = {way.__name__: way for way in (runs, resumes, reports, forks, halves, sweeps, killed)}
