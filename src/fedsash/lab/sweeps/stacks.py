"""Which legs of a sweep may be trained jointly, in one process: those whose runs differ in what is not computed with.

The stacks depend on the plan and the number of processes alone. So a sweep that is started again has the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from ...basics.arrays import equal_parts
from ...executors import LocalEngine
from ..config import Experiment
from .plan import Leg

MOST = 16
"""The most legs in a stack. The states of all of them are in one process's memory, and more gain little."""

FREE = ("seed", "partition_seed", "partition", "aggregation", "server", "averages", "broadcast")
"""What may differ between the legs of a stack, with `OURS`: the server's part, and what is in the steps' inputs."""
OURS = ("evaluation", "metrics", "checkpoint", "trajectory")
"""What is recorded and saved of a run."""
RATES = ("lr", "schedule", "local_schedule")


def stacks(legs: Sequence[Leg], slots: int) -> Iterator[list[Leg]]:
    """The legs in stacks, as equal in size as possible, at least one for each of the slots. A leg may be alone."""
    families: dict[Any, list[Leg]] = {}
    for leg in legs:
        families.setdefault(_family(leg) or leg.folder, []).append(leg)
    for family in families.values():
        count = min(max(slots, -(-len(family) // MOST)), len(family))
        yield from (family[a:b] for a, b in pairwise([0, *equal_parts(len(family), count)]))


def _family(leg: Leg) -> str:
    """What the legs of a stack agree in; empty if the leg is trained alone."""
    experiment = leg.experiment
    engine = experiment.engine
    fits = type(experiment) is Experiment and isinstance(engine, LocalEngine) and engine.kind != "sequential"
    if not fits or experiment.alone or experiment.track.chosen():
        return ""
    table = experiment.table()
    fixed = {key: value for key, value in table.items() if key not in (*FREE, *OURS)}
    local = {key: value for key, value in table["local"].items() if key not in RATES}
    method = {key: value for key, value in table["method"].items() if not isinstance(value, float)}
    return json.dumps([leg.first, leg.last, fixed | {"local": local, "method": method}], sort_keys=True)
