"""The collector: who has answered a request, and the order of the answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

from ..basics.arrays import Ints, Objects, Vectors
from ..exchange import Answer, Answers, Missing, PartialSum, Reply


class Collector:
    """Who has answered a request to the clients `ids` `[s]`. Clients are named by their places in `ids`.

    - `accepted`: the places of the clients whose answer is used, in the order of the answers;
    - `refused`: the places of the clients whose upload the guard has refused;
    - `missing`: the places of the clients that did not answer, and why;
    - `client_state`: the new client state of accepted clients: their places `[b]`, and the rows `[b, ...]` or the
      handles `[b]`. It waits here for the end of the round, since a skipped round must not change it;
    - `samples`: how many samples the clients have trained on.
    """

    def __init__(self, ids: Ints) -> None:
        self.ids = ids
        self.accepted: list[int] = []
        self.refused: list[int] = []
        self.missing: dict[int, str] = {}
        self.client_state: list[tuple[Ints, Vectors | Objects]] = []
        self.samples = 0
        self._answered: set[int] = set()
        self._newest = -1

    @property
    def accepted_ids(self) -> Ints:
        """The numbers of the accepted clients."""
        return self.ids[self.accepted]

    def hear(self, answer: Answer) -> None:
        """Note who answers, and who is missing.

        Raises `RuntimeError` if a place is answered twice, or if uploads are not in the round's order: the bytes of
        their sum depend on it.
        """
        places = answer.places.tolist()
        missing = isinstance(answer, Missing)
        late = bool(places) and places[0] <= self._newest and not missing
        if late or not self._answered.isdisjoint(places):
            right = "every place is answered once, uploads in ascending order"
            raise RuntimeError(f"the executor answers for the places {places} again, or too late: {right}")
        self._answered.update(places)
        if isinstance(answer, Missing):
            self.missing |= dict.fromkeys(places, answer.why)
        elif places:
            self._newest = places[-1]

    def accept(self, places: Ints, client_state: Vectors, handles: Objects | None) -> None:
        """Note that the answers of these clients are used, and their new client state, or handles on it."""
        self.accepted += places.tolist()
        if client_state:
            self.client_state.append((places, client_state))
        if handles is not None:
            self.client_state.append((places, handles))

    def check_complete(self) -> None:
        """Raise `RuntimeError` if a place is not answered."""
        if len(self._answered) < len(self.ids):
            left = [client for place, client in enumerate(self.ids.tolist()) if place not in self._answered]
            raise RuntimeError(f"the executor has not answered for the clients {left}: every place must be answered")

    def replies(self, answers: Answers) -> list[Reply]:
        """All replies among the answers to a request, for who does not sum them up; all are accepted.

        Raises `RuntimeError` if a place is not answered once, or by a `PartialSum`.
        """
        replies: list[Reply] = []
        with closing(answers):
            for answer in answers:
                self.hear(answer)
                if isinstance(answer, PartialSum):
                    raise RuntimeError("the executor sums up answers that are needed one by one: it must send replies")
                if isinstance(answer, Reply):
                    self.accepted += answer.places.tolist()
                    replies.append(answer)
        self.check_complete()
        return replies


def in_order(answers: Iterable[Reply | Missing]) -> Iterator[Reply | Missing]:
    """Answers of single clients that come in any order: who is missing at once, replies in the round's order.

    A reply waits until all clients before it have answered or are missing.
    """
    early: dict[int, Reply | Missing] = {}
    following = 0
    for answer in answers:
        if isinstance(answer, Missing):
            yield answer
        early |= dict.fromkeys(answer.places.tolist(), answer)
        while following in early:
            ready = early.pop(following)
            if isinstance(ready, Reply):
                yield ready
            following += 1
