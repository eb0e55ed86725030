"""Whether runs are trained jointly, found out in their first round: what they take together, and one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch

from ...executors.auto import CLOSE, COMPILED, repays, step_seconds, timed
from ...executors.devices import threads
from ...executors.joint import Joint, Shape
from ...federation import Federation
from ...joint_rounds import begin, trainer_of
from ...local import Begun
from ...settings.errors import SettingError, one_line
from ...state import State


@dataclass(frozen=True)
class Choice:
    """The shape of the joint steps, or None if they do not pay; a line that says why; whether they `failed`."""

    shape: Shape | None
    why: str
    failed: bool = False


class Trial:
    """The next round of some runs, jointly and one after another. Their states do not change."""

    def __init__(self, federations: Sequence[Federation], states: Sequence[State]) -> None:
        self.trainers = [trainer_of(federation) for federation in federations]
        self.settings = federations[0].described()
        self.shape = Shape.of(self.trainers, max(map(most_clients, federations)))
        asked = [begin(own, state, self.shape.clients) for own, state in zip(federations, states, strict=True)]
        self.together = {i: one.begun for i, one in enumerate(asked) if one.begun is not None}
        self.alone = {i: self.trainers[i].begin(asked[i].request, self.trainers[i].pad_to) for i in self.together}

    def choose(self, rounds: int, compiles: bool) -> Choice:
        """The faster way, if both give the same numbers but for rounding.

        The joint steps are compiled if the runs' own steps are, or if `compiles` allows it and so many rounds repay it.
        """
        separately = separate(len(self.trainers))
        if len(self.together) < len(self.trainers):
            return Choice(None, f"{separately}: in the next round of one no client takes part")
        with threads(self.settings["threads"]):
            try:
                at_once = self._at_once(self.shape)
                self._one_by_one()
                at_once()
            except Exception as error:  # its class depends on the method
                return Choice(None, f"{separately}: joint steps failed, {one_line(error)}", failed=True)
            if not self._agree():
                return Choice(None, f"{separately}: joint steps give other numbers")
            return self._faster(at_once, rounds, compiles)

    def _faster(self, at_once: Callable[[], float], rounds: int, compiles: bool) -> Choice:
        shape, seconds = self.shape, self._seconds(at_once)
        if self.settings["compile"] or (compiles and repays(min(seconds) * (1 - 1 / COMPILED), rounds)):
            with suppress(RuntimeError, SettingError):  # PyTorch's compiler can't do everything
                compiled = shape.compiled(self.trainers)
                call = self._at_once(compiled)
                call()  # it is compiled now
                shape, seconds = compiled, self._seconds(call)
        return faster(shape, *seconds)

    def _seconds(self, at_once: Callable[[], float]) -> list[float]:
        """What the steps of a round take one after another, and at once."""
        return step_seconds([timed(call, self.settings["threads"]) for call in (self._one_by_one, at_once)])

    def _one_by_one(self) -> float:
        for trainer, begun in zip(self.trainers, self.alone.values(), strict=True):
            trainer.steps(begun.inputs)
        return _moved(self.alone)

    def _at_once(self, shape: Shape) -> Callable[[], float]:
        joint = Joint(self.trainers, shape, range(len(self.trainers)))

        def call() -> float:
            joint.take(self.together)
            return _moved(self.together)

        return call

    def _agree(self) -> bool:
        """Whether both ways have moved each run by the same, but for rounding; runs that diverge are not compared."""
        low = torch.bfloat16 if self.settings["precision"] == "bfloat16" else self.together[0].inputs.w.dtype
        tolerance = torch.finfo(low).eps ** 0.5
        for i, own in self.alone.items():
            way = own.run.delta[: own.count]
            other = self.together[i].run.delta[: own.count]
            near = float((way - other).norm()) <= tolerance * float(way.norm())  # not if the other one is NaN
            if bool(way.isfinite().all()) and not near:
                return False
        return True


def separate(runs: int) -> str:
    """What is said of runs that are not joined."""
    return f"{runs} runs are trained one after another"


def faster(shape: Shape, alone: float, joint: float) -> Choice:
    """The choice if the runs take so many seconds one after another, and jointly."""
    gain = alone / joint
    if gain < CLOSE:
        return Choice(None, f"{separate(shape.runs)}: together they would be {gain:.2f} times as fast")
    said = f"{shape.runs} runs are trained together: {gain:.1f} times as fast as one after another"
    return Choice(shape, said + (", compiled" if shape.unrolled else ""))


def most_clients(federation: Federation) -> int:
    """The most clients that take part in one of the first rounds."""
    return max(map(len, federation.sampling.first(federation.sizes, federation.seed)))


def _moved(begun: dict[int, Begun]) -> float:
    """A number of all models; to read it is to wait for the device."""
    return float(sum(one.inputs.w.sum() for one in begun.values()))
