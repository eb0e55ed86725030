"""The results of one model on one split."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..basics.arrays import Floats
from ..basics.shown import Shown


@dataclass(kw_only=True, repr=False)
class Metrics(Shown):
    """One model's results on one split, after `round` finished rounds: the mean loss, and all metrics as `values`.

    `metrics["accuracy"]` gives a metric by its name; shares lie in [0, 1].

    - Split `"test"`: the central test set. `more` holds the criterion by class, `classes` (unless it is a metric of all
      samples together), and by domain, `domains` (None where it is not defined);
    - `"held_out"` and `"client_test"`: the clients' held-out samples, and their own test samples, all together;
    - `"held_out_tuned"` and `"client_test_tuned"`: the same samples, scored by each client with its fine-tuned copy;
    - `"clients"`: the unweighted mean over the clients, on their training samples;
    - `"broadcast"`: the decision of an adaptive broadcast; `model` is the chosen average.

    On splits of clients, `more` holds what the criterion comes to over the clients (see `over_clients`), and `each` is
    the criterion of every client `[N]`, NaN where it is not defined and where the client did not answer.
    """

    round: int
    model: str
    split: str
    loss: float
    values: dict[str, float] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    each: Floats | None = field(default=None, repr=False, compare=False)

    def __getitem__(self, name: str) -> float:
        """The loss or a metric by its name."""
        return self.loss if name == "loss" else self.values[name]

    def row(self) -> dict[str, Any]:
        """The metrics as one flat record."""
        row = {"round": self.round, "model": self.model, "split": self.split}
        return row | self.values | {"loss": self.loss} | self.more
