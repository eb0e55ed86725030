"""What a window of a run holds: the weight of every round and of every client in its mean (WiMA, eq. 6)."""

from __future__ import annotations

from typing import Any

from ...basics.errors import RunError
from ..analysis.window import client_weights, distances, participation, round_weights
from .opened import Opened, write


def window(run: Opened, average: str, name: str, round: int | None = None, command: str = "") -> dict[str, Any]:
    """The weights in the window `average` after the saved `round` (None: the newest), and how wide it is; as written.

    `weights` are those of the rounds' updates, `clients` those of all updates of each client, `distances` those of the
    window's models from their mean.
    """
    newest = max(run.rounds, default=0) if round is None else round
    past = run.state(newest).past
    if average not in past:
        raise RunError(f"{run.folder} has no window {average!r}; it has {', '.join(past) or 'none'}")
    c = round_weights(past[average])
    held, away = distances(past[average])
    by_client = client_weights(past[average], participation(run.federation, len(c))).sum(0)
    analysis = {
        "kind": "window",
        "title": f"{run.folder.name}: what is in {average} after round {newest}",
        "command": command,
        "average": average,
        "round": newest,
        "rounds": list(range(1, len(c) + 1)),
        "weights": c,
        "clients": by_client,
        "distance_rounds": held,
        "distances": away,
    }
    return write(run.folder, name, analysis)
