"""The effort of clients: how much they train in a round. It follows from the settings and their sizes."""

from __future__ import annotations

import numpy as np

from ..basics.arrays import Ints
from ..exchange import Effort
from ..methods import Method
from .settings import LocalTraining


def effort_of(
    local: LocalTraining, method: Method, sizes: Ints, amounts: Ints, *, alone: int, normalises: bool
) -> Effort:
    """The effort of clients with `sizes` `[C]` samples that train by these `amounts` `[C]`.

    `local` are the settings in the round. A personal part trains `alone` for so many passes before. With `normalises`
    it contains FedNova's normalisers.
    """
    steps = local.workload(sizes, amounts).steps
    normaliser = local.coefficients(steps, method) if normalises else None
    return Effort(local.whole_workload(sizes, alone, amounts).samples, steps, normaliser)


def no_effort(clients: int) -> Effort:
    """The effort of clients that do not train."""
    none = np.zeros(clients, dtype=np.int64)
    return Effort(none, none)
