"""The running sums of a round's uploads: streaming, guarded, and in a fixed order."""

from __future__ import annotations

from contextlib import closing
from copy import copy
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ..basics.arrays import Floats, Ints, Objects, Vectors, check_like, equal_parts, joined
from ..exchange import Answer, Answers, Missing, PartialSum, Reply, Request, RoundReport
from ..methods import Method
from ..settings.errors import RunError
from . import Aggregation


class UploadSums:
    """The weighted sums of the uploads of a round's clients, whose numbers are `ids` `[s]`.

    `sizes` `[s]` are their numbers of samples.

    Clients are added in the round's order, not in the order in which they finish. So the bytes of a sum depend only on
    the round. Memory is O(model) for any number of clients; only new client state is kept until the round is over.

    With `pieces` P > 1 a round is cut into P fixed pieces of successive clients. Each piece is summed by itself, in
    order, and then added to the pieces before it. So the bytes depend on P, but not on where or when a piece is summed.
    An executor on many machines answers with one `PartialSum` for each piece; at most P of them wait for their turn. An
    executor that answers with replies gives the same bytes at the same P.
    """

    def __init__(
        self, rule: Aggregation, method: Method, ids: Ints, sizes: Ints, pieces: int = 1, *, plain: bool = False
    ) -> None:
        self.ids, self._rule, self._plain = ids, rule, plain
        self._uniform_names = method.uniform + rule.uniform
        self._uniform: Floats = np.full(len(ids), 1 / max(len(ids), 1))
        self._weights: Floats = sizes / sizes.sum() if method.weighting == "samples" else self._uniform
        self._ends = equal_parts(len(ids), pieces)
        self._begin()

    @classmethod
    def of(cls, request: Request, rule: Aggregation, method: Method, sizes: Ints, pieces: int = 1) -> UploadSums:
        """Empty sums for the answers to a request, given all clients' `sizes` `[N]`.

        The uploads of a probe are summed without the rule's `derive`.
        """
        plain = request.job == "probe"
        return cls(rule.at(request.aggregation), method, request.ids, sizes[request.ids], pieces, plain=plain)

    def _begin(self) -> None:
        self._piece, self._before, self._sums = 0, Vectors(), Vectors()
        self._added = False
        self._heard: set[int] = set()
        self._newest = -1
        self._accepted: list[int] = []
        self._single: list[Tensor] = []
        self.client_state: list[tuple[Ints, Vectors | Objects]] = []
        """The new client state of accepted clients: their places `[b]`, and the rows `[b, ...]` or handles `[b]`."""
        self.samples = 0
        """How many samples the clients have trained on."""
        self.refused: list[int] = []
        """The clients whose upload the guard has refused."""
        self.missing: dict[int, str] = {}
        """The clients that did not answer, and why."""

    def take(self, answer: Answer) -> None:
        """Add an answer. Raises `RuntimeError` if a place is answered twice, or if uploads are out of order."""
        if isinstance(answer, Missing):
            self._hear(answer.places)
            self.missing |= dict.fromkeys(self.ids[answer.places].tolist(), answer.why)
        elif isinstance(answer, PartialSum):
            self._merge(answer)
        else:
            self._hear(answer.places, ordered=True)
            self._add(answer)

    def filled(self, answers: Answers) -> UploadSums:
        """These sums after all answers; raises `RuntimeError` if a place is not answered."""
        with closing(answers):
            for answer in answers:
                self.take(answer)
        if len(self._heard) < len(self.ids):
            left = [client for place, client in enumerate(self.ids.tolist()) if place not in self._heard]
            raise RuntimeError(f"the executor has not answered for the clients {left}: every place must be answered")
        return self

    def mean(self) -> Vectors:
        """The weighted means over the accepted clients; empty if there are none."""
        self._fold()
        if self.accepted == len(self.ids):
            return dict(self._before)
        return {name: total / _sum(self._of(name)[self._accepted]) for name, total in self._before.items()}

    def update(self, mean: Vectors) -> Tensor:
        """The round's update `[D]`, which the aggregation rule makes of the means."""
        return check_like(self._rule, "update", self._rule.update(mean, self._single), mean["delta"])

    def report(self, round: int, probed: UploadSums | None, least: int) -> RoundReport:
        """The report of round `round`, counted from 1, with the clients of a preceding probe (`probed`).

        If fewer than `least` uploads can be used, it says why the round is skipped. A private rule moves without any.
        """
        refused, missing, ids = self.refused, self.missing, self.ids
        if probed is not None:
            refused, missing, ids = probed.refused + refused, probed.missing | missing, probed.ids
        skipped = ""
        if not self.accepted and not self._rule.private:
            unusable = f"every upload was not finite, or longer than {self._rule.limit:g}"
            skipped = "no client answered" if len(missing) == len(ids) else unusable
        elif self.accepted < least and not self._rule.private:
            skipped = f"only {self.accepted} uploads can be used, of at least {least}"
        return RoundReport(
            round=round, clients=ids, samples=self.samples, refused=refused, missing=missing, skipped=skipped
        )

    @property
    def accepted(self) -> int:
        """The number of clients in the mean."""
        return len(self._accepted)

    @property
    def places(self) -> Ints:
        """The places of the clients that are in the mean."""
        return np.array(self._accepted, dtype=np.int64)

    def places_of(self, piece: int) -> Ints:
        """The places of a piece, by its number from 0."""
        return np.arange([0, *self._ends][piece], self._ends[piece])

    def piece(self, number: int) -> tuple[Ints, UploadSums]:
        """The places of piece `number`, and empty sums for it, which are filled where its clients are.

        `partial_sum` then makes a message of them. Raises `RunError` if the rule needs every single upload.
        """
        if self._rule.keeps_updates and not self._plain:
            raise RunError(f"{self._rule}: it needs every single update, which a partial sum does not hold")
        piece = copy(self)
        piece._begin()
        return self.places_of(number), piece

    def partial_sum(self) -> PartialSum:
        """The sums of a piece as a message."""
        self._fold()
        places = {client: place for place, client in enumerate(self.ids.tolist())}
        refused = np.array([places[client] for client in self.refused], dtype=np.int64)
        missing = {places[client]: why for client, why in self.missing.items()}
        return PartialSum(
            accepted=self.places,
            sums=self._before,
            client_state=joined([own for _, own in self.client_state if isinstance(own, dict)]),
            samples=self.samples,
            refused=refused,
            missing=missing,
        )

    def _hear(self, places: Ints, ordered: bool = False) -> None:
        own = places.tolist()
        if not self._heard.isdisjoint(own) or (ordered and own and own[0] <= self._newest):
            right = "every place is answered once, uploads in ascending order"
            raise RuntimeError(f"the executor answers for the places {own} again, or too late: {right}")
        self._heard.update(own)
        if ordered and own:
            self._newest = own[-1]

    def _add(self, reply: Reply) -> None:
        places, good = reply.places, self._rule.accepts(reply.norms)
        upload, clients, effort = reply.upload, reply.client_state, reply.effort
        self.samples += int(effort.samples.sum())
        if len(good) < len(places):
            self.refused += np.delete(self.ids[places], good).tolist()
            upload = {name: value[good] for name, value in upload.items()}
            clients = {name: rows[good] for name, rows in clients.items()}
            places, effort = places[good], effort.only(good)
        if not good:
            return
        self._accepted += places.tolist()
        if clients:
            self.client_state.append((places, clients))
        if reply.handles is not None:
            self.client_state.append((places, reply.handles[good]))
        if self._rule.keeps_updates and not self._plain:
            self._single += upload["delta"]
        derived = upload if self._plain else self._rule.derive(upload, effort)
        for piece, rows in self._by_piece(places):
            if piece != self._piece:
                self._fold()
                self._piece = piece
            for name, value in derived.items():
                self._accumulate(name, value[rows], places[rows])

    def _by_piece(self, places: Ints) -> list[tuple[int, slice]]:
        """The pieces in which some ascending places lie, and the slice of these places that lies in each."""
        if len(self._ends) == 1:
            return [(0, slice(0, len(places)))]
        owner = np.searchsorted(self._ends, places, side="right")
        bounds = [0, *(np.flatnonzero(np.diff(owner)) + 1).tolist(), len(places)]
        return [(int(owner[a]), slice(a, b)) for a, b in pairwise(bounds)]

    def _merge(self, part: PartialSum) -> None:
        places = np.sort(np.concatenate([part.accepted, part.refused, [*part.missing]])).astype(np.int64)
        if not len(places):
            return
        piece = self._by_piece(places)[0][0]
        if not np.array_equal(places, self.places_of(piece)):
            raise RuntimeError(
                f"a partial sum over the places {places.tolist()} is not one of the round's {len(self._ends)} pieces"
            )
        self._hear(places, ordered=True)
        self.refused += self.ids[part.refused].tolist()
        self.missing |= {int(self.ids[place]): why for place, why in part.missing.items()}
        self.samples += part.samples
        self._accepted += part.accepted.tolist()
        if part.client_state:
            self.client_state.append((part.accepted, part.client_state))
        if part.handles is not None:
            self.client_state.append((part.accepted, part.handles))
        self._fold()
        self._sums, self._piece = dict(part.sums), piece

    def _fold(self) -> None:
        """Add the finished sums of a piece to those of the pieces before it."""
        if not self._before:
            self._before, self._sums = self._sums, {}
        for name, value in self._sums.items():  # in place, but not in the memory of an answer: new memory is slow
            before = self._before[name]
            self._before[name] = torch.add(before, value, out=before if self._added else None)
        self._added, self._sums = self._added or bool(self._sums), {}

    def _accumulate(self, name: str, value: Tensor, places: Ints) -> None:
        weights, before = self._of(name)[places], self._sums.get(name)
        if len(value) == 1:  # zero is added to the first one, too, without being written: so no sum is -0.0
            total = value.new_zeros(()) if before is None else before
            self._sums[name] = torch.add(total, value[0], alpha=float(weights[0]), out=before)
        else:
            mixed = (torch.from_numpy(weights).to(value) @ value.reshape(len(value), -1)).view(value.shape[1:])
            self._sums[name] = mixed.add_(0.0 if before is None else before)

    def _of(self, name: str) -> Floats:
        return self._uniform if name in self._uniform_names else self._weights


def _sum(values: Floats) -> float:
    return float(torch.from_numpy(values).sum())
