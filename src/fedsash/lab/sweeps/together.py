"""Training a stack of legs in one process: jointly where that is faster, each with a session and a folder of its own.

Which legs are joined is measured once, and kept in a file beside the sweep's runs. So a sweep that is started again
goes on as it began. Whatever is not joined is handed back to the sweep, which trains it alone.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...basics.lock import InUseError
from ...data.source import Source
from ...executors import LocalEngine
from ...executors.auto import STACKED_BYTES
from ...executors.joint import Shape
from ...federation import Federation
from ...joint_rounds import JointRounds, kind
from ...settings.errors import FedsashError, RunError, one_line
from ...state import Made, State
from .. import files
from ..runs.interrupts import Stop, stop_flag
from ..runs.session import Course, Session
from .assigned import Assigned, tell
from .trial import Trial, most_clients


class Seat:
    """A leg, its session, and the `state` from which it asks for the next round; None if it has ended."""

    def __init__(self, leg: Assigned, session: Session, course: Course) -> None:
        self.leg, self.session, self.course = leg, session, course
        self.state: State | None = None

    def go(self, step: Callable[[], State]) -> None:
        """Let the session go on by a step. If it ends, its end is told."""
        self.state = None
        try:
            self.state = step()
        except StopIteration as ended:
            self.leg.ended(ended.value)
        except Exception as error:
            failed(self.leg, error)

    def take(self, made: Made | Exception) -> None:
        """Give the session the round that it has asked for, or the exception that the round has raised."""
        self.go(partial(self.course.throw, made) if isinstance(made, Exception) else partial(self.course.send, made))

    def hand_back(self) -> None:
        """Close the session, and let the sweep train the leg alone."""
        self.state = None
        self.course.close()
        hand_back(self.leg)

    @property
    def federation(self) -> Federation:
        """What makes its rounds, if it does so alone."""
        federation = self.session.federation
        assert isinstance(federation, Federation)
        return federation


def train(legs: Sequence[Assigned], stack: Sequence[str], out: Path) -> None:
    """Train the legs of a `stack` that are left, and tell their ends. `out` is the sweep's folder."""
    key = json.dumps([legs[0].until, *stack])  # what pays depends on the number of rounds
    record = out / "stacks" / f"{sha256(key.encode()).hexdigest()[:12]}.json"
    known = _known(record)
    joins = {name for group in known if group.shape is not None for name in group.legs}
    for leg in legs:
        if known and leg.name not in joins:
            hand_back(leg)
    with stop_flag(_silent) as stop, ExitStack() as closed:
        seats = _seats([leg for leg in legs if leg.name in joins or not known], stop, closed)
        groups = known or _chosen(list(seats.values()))
        if groups and not known:
            record.parent.mkdir(exist_ok=True)
            files.write_table(record, {"groups": [asdict(group) for group in groups]})
        joined = [_Joined(group, seats) for group in groups if group.shape is not None and _seated(group, seats)]
        for group in groups:
            for seat in _seated(group, seats) if group.shape is None else ():
                seat.hand_back()
        while any([group.round() for group in joined]):
            pass


@dataclass(frozen=True)
class Group:
    """Legs by their names, and the shape of their joint steps, or None if each is trained alone."""

    legs: tuple[str, ...]
    shape: Shape | None


class _Joined:
    """The seats of a group, whose rounds are made jointly."""

    def __init__(self, group: Group, seats: Mapping[str, Seat]) -> None:
        assert group.shape is not None
        self._seats = _seated(group, seats)
        places = [group.legs.index(seat.leg.name) for seat in self._seats]
        self._rounds = JointRounds([seat.federation for seat in self._seats], group.shape, places)

    def round(self) -> bool:
        """Make the next round of all seats that ask for one. Returns whether there are any."""
        states = {i: seat.state for i, seat in enumerate(self._seats) if seat.state is not None}
        if states:
            for i, made in self._rounds.made(states):
                self._seats[i].take(made)
        return bool(states)


def failed(leg: Assigned, error: Exception) -> None:
    """Tell why a leg has ended. One that another sweep trains at the moment is handed back, and will wait for it."""
    if isinstance(error, BrokenPipeError):
        raise error
    if isinstance(error, InUseError):
        hand_back(leg)
    elif isinstance(error, FedsashError | OSError):
        leg.failed(one_line(error))
    else:
        traceback.print_exception(error)
        leg.failed(f"{type(error).__name__}: {one_line(error)}")


def hand_back(leg: Assigned) -> None:
    """Let the sweep train the leg alone."""
    tell(leg=leg.name, alone=True)


def _seats(legs: Sequence[Assigned], stop: Stop, closed: ExitStack) -> dict[str, Seat]:
    """The seats of all legs that begin or go on, by name. They share the samples and the engine of the first."""
    seats: dict[str, Seat] = {}
    source: Source | None = None
    began: Mapping[str, Any] = {}
    for leg in sorted(legs, key=lambda leg: not leg.begun):  # the engine of a leg that has begun is known
        try:
            source = source or leg.experiment.source()
            seat = _seat(leg, source, began, stop)
        except Exception as error:
            failed(leg, error)
            continue
        closed.enter_context(closing(seat.course))
        seat.go(partial(next, seat.course))
        if seat.state is not None:
            seats[leg.name], began = seat, began or seat.federation.described()
    return {leg.name: seats[leg.name] for leg in legs if leg.name in seats}


def _seat(leg: Assigned, source: Source, began: Mapping[str, Any], stop: Stop) -> Seat:
    experiment = leg.experiment
    engine = experiment.engine
    data = experiment.divided(source)
    federation = experiment.around(experiment.model.build(data, experiment.seed), data)
    if began and isinstance(engine, LocalEngine):
        federation = federation.settled(began)
    given = leg.settings(federation)
    session = Session(
        federation,
        experiment.rounds,
        leg.folder,
        shown=False,
        stopping=lambda say: nullcontext(stop),
        **{name: value for name, value in given.items() if name != "progress"},
    )
    return Seat(leg, session, session.resumed() if leg.begun else session.begun(leg.fork))


def _known(record: Path) -> list[Group]:
    """The groups of the record, if there is one that can be read."""
    with suppress(FileNotFoundError, RunError, KeyError, TypeError):
        found = files.table(record)["groups"]
        return [Group(tuple(own["legs"]), own["shape"] and Shape(**own["shape"])) for own in found]
    return []


def _chosen(seats: Sequence[Seat]) -> list[Group]:
    """The seats in groups whose steps can be joined, as far as that pays."""
    kinds: dict[str, list[Seat]] = {}
    for seat in seats:
        kinds.setdefault(kind(seat.federation), []).append(seat)
    return [group for name, own in kinds.items() for part in _cut(own, joins=bool(name)) for group in _tried(part)]


def _cut(seats: list[Seat], joins: bool) -> Iterator[list[Seat]]:
    """The seats in parts whose models fit into memory when they are stacked."""
    federation = seats[0].federation
    clients = max(most_clients(seat.federation) for seat in seats)
    a_run = clients * federation.layout.size * federation.layout.dtype.itemsize
    most = max(STACKED_BYTES // a_run, 1) if joins else 1
    yield from (seats[i : i + most] for i in range(0, len(seats), most))


def _tried(seats: list[Seat]) -> Iterator[Group]:
    """The group of some seats, or several if their steps can't be joined but for equal numbers of the method."""
    names = tuple(seat.leg.name for seat in seats)
    states = [seat.state for seat in seats if seat.state is not None]
    if len(seats) == 1:
        yield Group(names, None)
        return
    trial = Trial([seat.federation for seat in seats], states)
    first = seats[0].leg
    rounds = max(first.until - state.round for state in states)
    compiles = first.table["engine"].get("compile") == "auto" and not trial.trainers[0].data.transform.own
    choice = trial.choose(rounds, compiles)
    if choice.failed and trial.shape.varied:
        alike: dict[str, list[Seat]] = {}
        for seat in seats:
            alike.setdefault(repr(seat.federation.method), []).append(seat)
        for own in alike.values():
            yield from _tried(own)
        return
    tell(note=choice.why)
    yield Group(names, choice.shape)


def _seated(group: Group, seats: Mapping[str, Seat]) -> list[Seat]:
    return [seats[name] for name in group.legs if name in seats]


def _silent(line: str) -> None:
    """The sweep says that it stops."""
