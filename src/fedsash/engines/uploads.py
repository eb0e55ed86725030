"""The uploads of a round: who is accepted, their weighted sums, and what the aggregation rule makes of these."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ..client.messages import Collector, PartialSum, Reply, Request, RoundReport
from ..methods import Method
from ..methods.rules import Aggregation
from ..settings.errors import RunError, SettingError
from ..settings.hooks import is_of_library
from ..vector.arrays import Floats, Ints, Objects, Vectors, check_rows, equal_parts, joined
from ..vector.randomness import Watch
from ..vector.spaces import ClientState, MeanUpload


class Uploads:
    """The uploads of a request's clients, summed up as they come; `sizes` `[N]` are all clients' numbers of samples.

    The `collector` knows who has answered, the `sums` are over the accepted clients, in the round's order and in
    `pieces`. So their bytes depend only on the round. The uploads of a probe are summed as they are, without the rule's
    `derive`, inside of `no_draws`. `updates` are the single deltas `[D]`, if the rule keeps them.

    An executor on many machines answers with one `PartialSum` for each piece. It is made where the clients are, by
    empty uploads of the same round that take the replies of this piece alone. An executor that answers with replies
    gives the same bytes at the same P.
    """

    def __init__(
        self,
        request: Request,
        rule: Aggregation,
        method: Method,
        sizes: Ints,
        pieces: int = 1,
        no_draws: Watch = nullcontext,
    ) -> None:
        if method.weighting == "samples":
            of_round = sizes[request.ids]
            weights = of_round / of_round.sum()
        else:
            weights = equal_weights(len(request.ids))
        self.collector = Collector(request.ids)
        self.sums = Sums(weights, method.uniform + rule.uniform, pieces)
        self.updates: list[Tensor] = []
        self.rule = rule
        self._method = method
        self._names: dict[str, set[str]] = {}  # of each hook's vectors, as the first clients have them
        self._no_draws = no_draws
        self._memory = request.aggregation
        trains = request.job != "probe"
        self._hook = "probe"
        if trains:
            self._hook = "upload"
        self._derives = trains and type(rule).derive is not Aggregation.derive
        self._keeps_updates = trains and rule.keeps_updates

    def take(self, answer: Reply | PartialSum) -> None:
        """Add an answer: what its clients have uploaded, and who they are."""
        collector = self.collector
        if isinstance(answer, PartialSum):
            self._merge(answer)
            return

        # The guard: an upload that is not finite, or too long, is refused.
        collector.samples += int(answer.effort.samples.sum())
        usable = self.rule.accepts(answer.norms)
        if len(usable) < len(answer.places):
            collector.refused += np.delete(answer.places, usable).tolist()
            answer = answer.only(usable)
        if not usable:
            return

        self._check_names(self._method, self._hook, answer.upload)

        # The others count: the rule says what of them is summed, and a private one clips them first.
        collector.accepted += answer.places.tolist()
        client_state: ClientState | Objects = answer.client_state
        if answer.handles is not None:
            client_state = answer.handles
        if len(client_state):
            collector.client_state.append((answer.places, client_state))
        if self._keeps_updates:
            self.updates += answer.upload["delta"]
        vectors: Vectors = answer.upload
        if self._derives:
            with self._no_draws():
                vectors = self.rule.derive(vectors, answer.effort, self._memory)
            check_rows(self.rule, "derive", vectors, len(answer.places))
            self._check_names(self.rule, "derive", vectors)
        self.sums.add(vectors, answer.places)

    def _check_names(self, owner: object, hook: str, vectors: Vectors) -> None:
        """Raise `SettingError` if a hook of `owner` gives clients other vectors than those before them.

        A mean is over all of a round.
        """
        names = self._names.setdefault(hook, set(vectors))
        if vectors.keys() == names:
            return
        requirement = f"must have the same names for all clients of a round, as {sorted(names)} of those before"
        raise SettingError.at(f"{type(owner).__name__}.{hook}", sorted(vectors), requirement)

    def mean(self) -> MeanUpload:
        """The weighted means over the accepted clients; empty if there are none."""
        return MeanUpload(self.sums.mean(self.collector.accepted))

    def partial_sum(self) -> PartialSum:
        """The sums of one piece as a message; raises `RunError` if the rule needs every single upload."""
        if self._keeps_updates:
            raise RunError(f"{self.rule}: it needs every single update, which a partial sum does not hold")
        collector = self.collector
        client_state = joined([rows for _, rows in collector.client_state if isinstance(rows, dict)])
        return PartialSum(
            accepted=np.array(collector.accepted, dtype=np.int64),
            sums=self.sums.totals(),
            client_state=ClientState(client_state),
            samples=collector.samples,
            refused=np.array(collector.refused, dtype=np.int64),
            missing=collector.missing,
        )

    def _merge(self, part: PartialSum) -> None:
        """Add the sums of one piece, which were made where its clients are."""
        places = part.places
        if not len(places):
            return
        collector = self.collector
        if part.sums:
            if self._derives and not is_of_library(self.rule):
                self._check_names(self.rule, "derive", part.sums)
            else:
                self._check_names(self._method, self._hook, part.sums)
        self.sums.merge(part.sums, places)
        collector.samples += part.samples
        collector.accepted += part.accepted.tolist()
        collector.refused += part.refused.tolist()
        collector.missing |= part.missing
        client_state: ClientState | Objects = part.client_state
        if part.handles is not None:
            client_state = part.handles
        if len(client_state):
            collector.client_state.append((part.accepted, client_state))

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
            for place, why in collector.missing.items():
                missing[int(collector.ids[place])] = why
        usable = len(self.collector.accepted)
        least = max(minimum, self.rule.least)
        skipped = ""
        if self.rule.least > 0 and usable < least:
            skipped = f"every upload was not finite, or longer than {self.rule.limit:g}"
            if usable:
                skipped = f"only {usable} uploads can be used, of at least {least}"
            elif len(missing) == len(clients):
                skipped = "no client answered"
        return RoundReport(
            round=round,
            clients=clients,
            samples=self.collector.samples,
            refused=refused,
            missing=missing,
            skipped=skipped,
        )


class Sums:
    """The sums over clients of `weights` `[s]` times their vectors, by name; names in `uniform` have equal weights.

    Clients are added in the round's order. Memory is O(model) for any number of clients.

    With `pieces` P > 1 a round is cut into P fixed pieces of successive clients. Each piece is summed by itself, in
    order, and then added to the pieces before it. So the bytes depend on P, but not on where or when a piece is summed:
    `merge` takes a piece that was summed elsewhere.
    """

    def __init__(self, weights: Floats, uniform: Collection[str] = (), pieces: int = 1) -> None:
        self._weights = weights
        self._equal: dict[str, Floats] = {}
        if uniform:
            self._equal = dict.fromkeys(uniform, equal_weights(len(weights)))
        self._ends = equal_parts(len(weights), pieces)
        self._piece = 0
        self._current: Vectors = {}
        self._finished: Vectors = {}
        self._added = False

    def add(self, vectors: Vectors, places: Ints) -> None:
        """Add the vectors `[b, ...]` of the clients at these ascending places, which come after all those before."""
        if len(self._ends) == 1:
            self._add_rows(vectors, places)
            return
        pieces = np.searchsorted(self._ends, places, side="right")
        borders = np.flatnonzero(np.diff(pieces)) + 1
        for first, end in pairwise([0, *borders.tolist(), len(places)]):
            if pieces[first] != self._piece:
                self._finish()
                self._piece = int(pieces[first])
            self._add_rows({name: rows[first:end] for name, rows in vectors.items()}, places[first:end])
            if places[end - 1] == self._ends[self._piece] - 1:  # so that a mean needs no new memory
                self._finish()

    def merge(self, sums: Vectors, places: Ints) -> None:
        """Add the sums of a piece; `places` are those of all its clients, also of those that are not in its sums.

        Raises `RuntimeError` if the places are not those of a piece.
        """
        piece = int(np.searchsorted(self._ends, places[0], side="right"))
        first = 0
        if piece > 0:
            first = self._ends[piece - 1]
        if not np.array_equal(places, np.arange(first, self._ends[piece])):
            raise RuntimeError(
                f"a partial sum over the places {places.tolist()} is not one of the round's {len(self._ends)} pieces"
            )
        self._finish()
        self._current = dict(sums)
        self._finish()

    def totals(self) -> Vectors:
        """The sums over all clients so far; empty if there are none."""
        if not self._finished:
            return dict(self._current)
        last = {name: self._finished[name] + total for name, total in self._current.items()}
        return self._finished | last

    def mean(self, places: list[int]) -> Vectors:
        """The weighted means, if the sums are over the clients at these places: their weights are scaled up to 1."""
        totals = self.totals()
        if len(places) == len(self._weights):
            return totals
        means: Vectors = {}
        for name, total in totals.items():
            weights = self._equal.get(name, self._weights)[places]
            means[name] = total / float(torch.from_numpy(weights).sum())
        return means

    def _finish(self) -> None:
        """Add the sums of the present piece to those of the pieces before it."""
        if not self._finished:
            self._finished = self._current
        elif self._current:
            for name, total in self._current.items():
                before = self._finished[name]
                if self._added:  # in place, but not in an answer's memory: new memory is slow
                    before.add_(total)
                else:
                    self._finished[name] = before + total
            self._added = True
        self._current = {}

    def _add_rows(self, vectors: Vectors, places: Ints) -> None:
        for name, rows in vectors.items():
            weights = self._equal.get(name, self._weights)[places]
            before = self._current.get(name)
            if rows.shape[0] == 1:
                # Zero is added to the first one, too, without being written: so no sum is -0.0.
                total = before
                if total is None:
                    total = rows.new_zeros(())
                self._current[name] = torch.add(total, rows[0], alpha=float(weights[0]), out=before)
                continue
            flat = rows
            if rows.dim() != 2:
                flat = rows.reshape(rows.shape[0], -1)
            mixed = torch.from_numpy(weights).to(rows) @ flat
            if rows.dim() != 2:
                mixed = mixed.view(rows.shape[1:])
            if before is None:
                self._current[name] = mixed.add_(0.0)  # so no sum is -0.0
            else:
                self._current[name] = mixed.add_(before)


def equal_weights(count: int) -> Floats:
    """Equal weights `[count]` with the sum 1."""
    return np.full(count, 1 / max(count, 1))


def pieces_of(count: int, pieces: int) -> list[Ints]:
    """The places of each of the fixed pieces into which a round of `count` clients is cut."""
    return np.split(np.arange(count), equal_parts(count, pieces)[:-1])
