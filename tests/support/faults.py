"""The simulation of those whose uploads were accepted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsash.server.federation import Federation
from fedsash.server.state import State


def run_of(world: Federation, accepted: Callable[[int, int], bool], rounds: int, minimum: int = 1) -> State:
    """The state after so many rounds in which only those train of whom `accepted(round, client)` holds.

    A round of fewer than `minimum` is skipped. A probe is answered by all.
    """
    with world:
        state = world.start()
        for t in range(rounds):
            probed, request = None, world.ask(state)
            if request.job == "probe":
                probed = world.collect(request)
                request = world.ask(state, probed=probed)
            used = [place for place, client in enumerate(request.ids.tolist()) if accepted(t, client)]
            if len(used) < minimum:
                used = []
            request = request.only(np.array(used, dtype=np.int64))
            state, _ = world.server_round.step(state, request, world.collect(request), probed)
    return state
