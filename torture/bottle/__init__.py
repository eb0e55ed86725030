"""A federation in a bottle: the server, its nodes and their disks in one process, under simulated time, from a seed.

The code is that of a real federation: it meets the machine only in `fedsash.system.host`, whose clock, disk, process
and thread are simulated here, and Flower's grid. As a kind of the campaign, each case is a batch of seeds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ..frame import Bench, Case, Finding

SIZES = {"full": 400, "short": 4}
BATCH = 25
"""The seeds of one case of the campaign."""


def cases(bench: Bench, size: int) -> Iterator[Case]:
    """Batches of seeds, each in a process."""
    for number in range(size):
        first = 1_000_000 * bench.seed + BATCH * number
        yield Case(f"seeds {first} to {first + BATCH - 1}", partial(_case, bench, first))


def _case(bench: Bench, first: int, place: Path) -> Iterator[Finding]:
    running = bench.start(place, str(first), str(BATCH), entry="torture.bottle.seeds:batch")
    ended = running.wait(limit=600.0)
    yield from ended.findings(0)
    for line in ended.out.splitlines():
        outcome = json.loads(line)
        for violation in outcome["violations"]:
            again = f"python -m torture bottle --seed {outcome['seed']}"
            yield Finding("wrong", f"seed {outcome['seed']}: {violation}", again)
