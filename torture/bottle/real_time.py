"""Asynchronous schedulers over nodes in real time.

What must hold: a replay of the record gives the same bytes, and so do the papers' formulas, but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from fedsash.client.messages import RoundReport
from fedsash.flower import RealTime
from fedsash.flower.nodes import wire
from fedsash.flower.real_time.arrivals import read
from fedsash.network import Asynchronous, FedAsync, FedBuff, FedWindow
from fedsash.runs import Driver, Result, run

from . import steps
from .faults import Kind
from .reference import differences
from .rounds import Rounds
from .steps import Uploaded
from .vectors import Model, distant


class InRealTime(Rounds):
    """A run of an asynchronous scheduler."""

    def driver(self, grid: Any) -> Driver:
        return Asynchronous(self.over_nodes(grid, minimum=1), RealTime(self._limit), self.setup.scheduler)

    def differences(self, result: Result) -> Iterator[str]:
        replay = Asynchronous(self.simulation, RealTime(self._limit, replay=self.out), self.setup.scheduler)
        expected = run(replay, self.setup.rounds, progress=False).state
        for name in differences(result.state, expected):
            yield f"{name} is not that of a replay of the record"
        yield from self._unlike_formulas(result)
        yield from self._without_end()

    def unheard(self, report: RoundReport) -> Iterator[str]:
        """Clients that are silent, unless a limit or a window lets them wait; an evaluation may take longer, too."""
        limited = self.setup.asked < self.setup.clients or isinstance(self.setup.scheduler, FedWindow)
        if limited or self.setup.scored_by_clients:
            return
        for client in range(self.setup.clients):
            if self.told.is_silent(client, client % self.setup.nodes):
                yield f"nothing is heard of client {client} until step {report.round}, and its node is there"

    def faults_of(self, client: int, round: int) -> list[Kind]:
        """Of two answers that are read together, the first may make a step; then the second is told with the next."""
        before = super().faults_of(client, round - 1) if round > 1 else []
        return before + super().faults_of(client, round)

    @property
    def _limit(self) -> int | None:
        """How many clients train at a time at most; FedWindow's window says it itself."""
        if isinstance(self.setup.scheduler, FedWindow):
            return None
        return self.setup.asked

    def _unlike_formulas(self, result: Result) -> Iterator[str]:
        """Models that are not those of the scheduler's formula in NumPy: the last one, and those that clients received.

        In FedWindow also the versions of the models that clients received.
        """
        uploads = self._uploads()
        models = self._models(uploads)
        there = "that of the formula"
        yield from distant("the last model", result.state.w, models[self.setup.rounds], there)
        for upload in uploads:
            what = f"what client {upload.client} received as version {upload.version}"
            yield from distant(what, upload.start, models[upload.version], there)
        if isinstance(self.setup.scheduler, FedWindow):
            versions = [upload.version for upload in uploads]
            expected_versions = steps.versions_of_ring(uploads, self.setup.window)
            if versions != expected_versions:
                yield f"clients trained from the versions {versions} instead of {expected_versions}"

    def _models(self, uploads: list[Uploaded]) -> list[Model]:
        """The models after 0, 1, ... steps by the scheduler's formula."""
        first = nn.utils.parameters_to_vector(self.setup.module().parameters()).detach().numpy()
        match self.setup.scheduler:
            case FedAsync(alpha=alpha, a=a):
                return steps.fedasync(first, uploads, alpha, a)
            case FedBuff(size=size, a=a):
                return steps.fedbuff(first, uploads, size, a)
            case _:
                return steps.fedwindow(first, uploads, self.setup.window)

    def _uploads(self) -> list[Uploaded]:
        """The uploads that count by the record, as they travelled."""
        uploads = []
        for arrival in read(self.out):
            if arrival.number >= 0 and not arrival.why:
                request, answer = self.told.answered[arrival.client, arrival.number + 1]
                start = request.content[wire.MODEL]["w"].numpy()
                delta = answer.content[wire.UPLOAD]["delta"].numpy()[0]
                uploads.append(Uploaded(arrival.client, arrival.version, start, start + delta))
        return uploads

    def _without_end(self) -> Iterator[str]:
        """Trips that have no end in the record, though their client has ended a later one."""
        ended: dict[int, list[int]] = {}
        for arrival in read(self.out):
            if arrival.number >= 0:
                ended.setdefault(arrival.client, []).append(arrival.number)
        for client, numbers in ended.items():
            if sorted(numbers) != list(range(len(numbers))):
                yield f"of client {client} the trips {sorted(numbers)} have an end in the record"
