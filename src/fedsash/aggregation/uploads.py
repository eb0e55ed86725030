"""The uploads of a round: a guard, and what the aggregation rule makes of those that it accepts."""

from __future__ import annotations

from contextlib import closing

import numpy as np
from torch import Tensor

from ..basics.arrays import Ints, Vectors, check_like, joined
from ..exchange import Answer, Answers, PartialSum, Reply, Request, RoundReport
from ..methods import Method
from ..settings.errors import RunError
from .collector import Collector
from .rules import Aggregation
from .sums import Sums, equal_weights


class Uploads:
    """The uploads of the clients `ids` `[s]`, which have `sizes` `[s]` samples, summed up as they come.

    The `collector` knows who has answered, the `sums` are over the accepted clients, in the round's order and in
    `pieces`. So their bytes depend only on the round. The uploads of a probe are summed as they are (`plain`), without
    the rule's `derive`.

    An executor on many machines answers with one `PartialSum` for each piece. It is made where the clients are, by
    empty uploads of the same round that take the replies of this piece alone. An executor that answers with replies
    gives the same bytes at the same P.
    """

    def __init__(
        self, rule: Aggregation, method: Method, ids: Ints, sizes: Ints, pieces: int = 1, *, plain: bool = False
    ) -> None:
        weights = sizes / sizes.sum() if method.weighting == "samples" else equal_weights(len(ids))
        self.collector = Collector(ids)
        self.sums = Sums(weights, method.uniform + rule.uniform, pieces)
        self._rule = rule
        self._plain = plain
        self._keeps_updates = rule.keeps_updates and not plain
        self._updates: list[Tensor] = []

    @classmethod
    def of(cls, request: Request, rule: Aggregation, method: Method, sizes: Ints, pieces: int = 1) -> Uploads:
        """No uploads yet of the clients of a request, given all clients' `sizes` `[N]`."""
        plain = request.job == "probe"
        return cls(rule.at(request.aggregation), method, request.ids, sizes[request.ids], pieces, plain=plain)

    def take(self, answer: Answer) -> None:
        """Add an answer. Raises `RuntimeError` if a place is answered twice, or if uploads are out of order."""
        self.collector.hear(answer)
        if isinstance(answer, Reply):
            self._add(answer)
        elif isinstance(answer, PartialSum):
            self._merge(answer)

    def take_all(self, answers: Answers) -> None:
        """Add all answers to a request; raises `RuntimeError` if a place is not answered."""
        with closing(answers):
            for answer in answers:
                self.take(answer)
        self.collector.check_complete()

    def mean(self) -> Vectors:
        """The weighted means over the accepted clients; empty if there are none."""
        return self.sums.mean(self.collector.accepted)

    def update(self, mean: Vectors) -> Tensor:
        """The round's update `[D]`, which the aggregation rule makes of the means."""
        return check_like(self._rule, "update", self._rule.update(mean, self._updates), mean["delta"])

    def partial_sum(self) -> PartialSum:
        """The sums of one piece as a message; raises `RunError` if the rule needs every single upload."""
        if self._keeps_updates:
            raise RunError(f"{self._rule}: it needs every single update, which a partial sum does not hold")
        collector = self.collector
        return PartialSum(
            accepted=np.array(collector.accepted, dtype=np.int64),
            sums=self.sums.totals(),
            client_state=joined([rows for _, rows in collector.client_state if isinstance(rows, dict)]),
            samples=collector.samples,
            refused=np.array(collector.refused, dtype=np.int64),
            missing=collector.missing,
        )

    def report(self, round: int, probed: Uploads | None, minimum: int) -> RoundReport:
        """The report of round `round`, counted from 1, with the clients of a preceding probe (`probed`).

        If fewer than `minimum` uploads can be used, it says why the round is skipped.
        """
        collectors = [self.collector]
        if probed is not None:
            collectors.insert(0, probed.collector)
        clients = collectors[0].ids
        refused: list[int] = []
        missing: dict[int, str] = {}
        for collector in collectors:
            refused += collector.ids[collector.refused].tolist()
            missing |= {int(collector.ids[place]): why for place, why in collector.missing.items()}
        skipped = self._skipped(minimum, nobody=len(missing) == len(clients))
        samples = self.collector.samples
        return RoundReport(
            round=round, clients=clients, samples=samples, refused=refused, missing=missing, skipped=skipped
        )

    def _skipped(self, minimum: int, nobody: bool) -> str:
        """Why the uploads do not move the model; empty if they do."""
        usable = len(self.collector.accepted)
        least = max(minimum, self._rule.least)
        if self._rule.least == 0 or usable >= least:
            return ""
        if usable:
            return f"only {usable} uploads can be used, of at least {least}"
        if nobody:
            return "no client answered"
        return f"every upload was not finite, or longer than {self._rule.limit:g}"

    def _add(self, reply: Reply) -> None:
        self.collector.samples += int(reply.effort.samples.sum())
        usable = self._rule.accepts(reply.norms)
        if len(usable) < len(reply.places):
            self.collector.refused += np.delete(reply.places, usable).tolist()
            reply = reply.only(usable)
        if not usable:
            return
        self.collector.accept(reply.places, reply.client_state, reply.handles)
        if self._keeps_updates:
            self._updates += reply.upload["delta"]
        vectors = reply.upload if self._plain else self._rule.derive(reply.upload, reply.effort)
        self.sums.add(vectors, reply.places)

    def _merge(self, part: PartialSum) -> None:
        places = part.places
        if not len(places):
            return
        self.sums.merge(part.sums, places)
        self.collector.samples += part.samples
        self.collector.refused += part.refused.tolist()
        self.collector.missing |= part.missing
        self.collector.accept(part.accepted, part.client_state, part.handles)
