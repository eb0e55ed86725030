"""What happened at the nodes of a run in real time: a list that can be saved, read and replayed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...settings.errors import RunError, one_line

FILE = "timeline.json"
KEY = "arrivals"
"""The file of a run's folder that has the list, and its name there and in saved states."""

AWAY = "away"
BACK = "back"
"""What a client does between its trips."""

REFUSED = "refused"
"""Why an upload that arrived is not used: the guard refuses it."""


class Arrival(NamedTuple):
    """The end of a client's trip `number` from the model `version`, `time` seconds after the run's beginning.

    `why` is empty if an upload arrived that can be used, `"refused"` if the guard refused it, and otherwise says why
    none arrived. With the number -1 the client's node has left (`"away"`) or is there again (`"back"`).
    """

    time: float
    client: int
    number: int
    version: int
    why: str

    @property
    def came(self) -> bool:
        """Whether an upload arrived."""
        return self.why in ("", REFUSED)


def packed(arrivals: Iterable[Arrival]) -> Tensor:
    """A list of arrivals as bytes, for a saved state."""
    return torch.from_numpy(np.frombuffer(json.dumps(list(arrivals)).encode(), dtype=np.uint8).copy())


def unpacked(content: Tensor) -> list[Arrival]:
    """The list that `packed` made into these bytes."""
    return _arrivals(json.loads(content.cpu().numpy().tobytes()))


def read(folder: Path) -> list[Arrival]:
    """The list of the run in a folder. Raises `RunError` if there is none."""
    file = folder / FILE
    try:
        return _arrivals(json.loads(file.read_text())[KEY])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file} has no list of arrivals: {one_line(error)}") from error


def _arrivals(rows: list[Any]) -> list[Arrival]:
    made = [Arrival(float(time), int(i), int(number), int(version), str(why)) for time, i, number, version, why in rows]
    if not all(isfinite(one.time) for one in made):
        raise ValueError("a time is not finite")
    return made
