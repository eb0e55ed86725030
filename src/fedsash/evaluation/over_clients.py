"""A metric over all clients: the mean, the worst tenth, the spread, the worst client."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tasks.metrics import Better
from ..vector.arrays import Floats, Ints

OVER_CLIENTS = ("client_mean", "worst_tenth", "client_std", "worst_client")
"""The numbers over clients, each in the unit of the metric."""
COUNTED = ("scored", "without_samples", "undefined")
"""How many clients these numbers are of, and how many are left out."""


def over_clients(values: Floats, samples: Ints | Floats, better: Better) -> dict[str, Any]:
    """The mean, the worst tenth, the spread and so on of a metric's `values` `[C]` over C clients.

    `samples` `[C]` are the clients' numbers of samples. A value that is not defined is NaN; its client is left out. The
    n others count the same:

    - `client_mean`: their mean;
    - `worst_tenth`: the mean of the max(floor(n / 10), 1) worst ones;
    - `client_std`: the standard deviation, dividing by n;
    - `worst_client`: the worst one;
    - `scored`: n; `without_samples`: how many clients have no sample; `undefined`: how many have samples, on which the
      metric is not defined, such as R2 of one sample.

    Without any value the first four are NaN; the deviation is so, too, if a value is infinite.
    """
    defined = values[~np.isnan(values)]
    n = len(defined)
    without_samples = int((samples == 0).sum())
    numbers: dict[str, Any] = dict.fromkeys(OVER_CLIENTS, np.nan)
    if n:
        worst_first = np.sort(defined)
        if better == "lower":
            worst_first = worst_first[::-1]
        numbers["client_mean"] = float(defined.mean())
        numbers["worst_tenth"] = float(worst_first[: max(n // 10, 1)].mean())
        with np.errstate(invalid="ignore"):  # a model that has diverged may have infinite losses
            numbers["client_std"] = float((defined - defined[0]).std())  # exactly 0 for equal clients
        numbers["worst_client"] = float(worst_first[0])
    numbers["scored"] = n
    numbers["without_samples"] = without_samples
    numbers["undefined"] = len(values) - n - without_samples
    return numbers
