"""Each client's own results: in a run's folder, in its summary, and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..evaluation import OVER_CLIENTS, Score
from ..tasks import Criterion

CLIENTS = "clients.json"
"""The file of a run with the last result of each client (see `content`)."""
WORDS = dict(zip(OVER_CLIENTS, ("mean over clients", "worst tenth", "spread", "worst client"), strict=True))
"""The numbers over clients in words."""
HEADS = ("model", "mean over clients", "worst tenth", "gain", "worst client", "spread")
"""The columns of `client_rows`."""


def content(scores: Iterable[Score], names: Sequence[str] = ()) -> dict[str, Any]:
    """What `clients.json` holds of an evaluation; empty if no client scored a model.

    It is `{"round": 300, "clients": ["Basel", "Bern"], "splits": {"client_test": {"model": [0.8, None], "window20":
    [...]}}}`: the criterion of every client, in the order of the clients; None where it is not defined. Clients without
    names have their numbers.
    """
    splits: dict[str, dict[str, list[float]]] = {}
    round = 0
    for score in scores:
        if score.each is not None:
            round = score.round
            splits.setdefault(score.split, {})[score.model] = score.each.tolist()
    count = max((len(each) for models in splits.values() for each in models.values()), default=0)
    return {"round": round, "clients": list(names) or [*range(count)], "splits": splits} if splits else {}


def client_rows(models: Mapping[str, Mapping[str, Any]], criterion: Criterion, digits: int = 1) -> list[list[str]]:
    """A row for each model of a split, with the columns `HEADS`: the gain is that of the worst tenth over the model."""
    base = models.get("model", {}).get("worst_tenth")
    made = []
    for name, of in models.items():
        worst = of["worst_tenth"]
        gain = None if base is None or worst is None or name == "model" else criterion.gain(worst, base)
        shown = [of["client_mean"], worst, gain, of["worst_client"], of["client_std"]]
        signs = ["", "", "+", "", ""]
        texts = [criterion.spread(value, None, digits, sign) for value, sign in zip(shown, signs, strict=True)]
        made.append([name, *texts])
    return made


def counted(models: Mapping[str, Mapping[str, Any]]) -> str:
    """How many clients the numbers of a split are of, and how many are left out, in words."""
    of = next(iter(models.values()))
    left = [(of["without_samples"], "without samples"), (of["undefined"], "where it is not defined")]
    out = [f"{count} {why}" for count, why in left if count]
    return f"{of['scored']} clients" + (f" ({' and '.join(out)} left out)" if out else "")
