"""What a client does on a network: it gets a model, trains, and uploads its result."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .learning import Start


@dataclass(slots=True)
class Trip:
    """One trip of a client: it downloads a model, trains, and uploads the result.

    The trip began at `began`, the training ended at `trained`, the trip at `ended` (seconds). `number` counts the
    client's trips. `failures` attempts to upload failed. `why` gives the reason if no upload arrived. `waited` is the
    time from `trained` to the arrival, minus the time that the upload takes alone on the link.
    """

    client: int
    number: int
    start: Start
    began: float
    trained: float = math.inf
    ended: float = math.inf
    failures: int = 0
    arrived: bool = False
    waited: float = 0.0
    why: str = ""

    @property
    def delay(self) -> float:
        """The time from the end of the training to the end of the trip, in seconds."""
        return self.ended - self.trained
