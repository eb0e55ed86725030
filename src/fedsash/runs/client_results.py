"""Each client's own results: in a run's folder, in its summary, and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..evaluation import Score
from ..tasks import Criterion

CLIENTS = "clients.json"
"""The file of a run with the last result of each client (see `content`)."""
WORDS = {
    "client_mean": "mean over clients",
    "worst_tenth": "worst tenth",
    "client_std": "spread",
    "worst_client": "worst client",
}
"""The numbers over clients in words."""
HEADS = ("model", "mean over clients", "worst tenth", "gain", "worst client", "spread")
"""The columns of `client_rows`."""


def content(scores: Iterable[Score], names: Sequence[str] = ()) -> dict[str, Any]:
    """The content of `clients.json` after an evaluation; empty if no client scored a model.

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
    if not splits:
        return {}
    clients: list[Any] = list(names)
    if not clients:
        models = next(iter(splits.values()))
        clients = list(range(len(next(iter(models.values())))))
    return {"round": round, "clients": clients, "splits": splits}


def client_rows(models: Mapping[str, Mapping[str, Any]], criterion: Criterion, digits: int = 1) -> list[list[str]]:
    """A row for each model of a split, with the columns `HEADS`: the gain is that of the worst tenth over the model."""
    base = models.get("model", {}).get("worst_tenth")
    rows = []
    for name, numbers in models.items():
        worst = numbers["worst_tenth"]
        gain = None
        if base is not None and worst is not None and name != "model":
            gain = criterion.gain(worst, base)
        row = [
            name,
            criterion.spread(numbers["client_mean"], None, digits),
            criterion.spread(worst, None, digits),
            criterion.spread(gain, None, digits, "+"),
            criterion.spread(numbers["worst_client"], None, digits),
            criterion.spread(numbers["client_std"], None, digits),
        ]
        rows.append(row)
    return rows


def counted(models: Mapping[str, Mapping[str, Any]]) -> str:
    """How many clients the numbers of a split are of, and how many are left out, in words; by model if they differ."""
    texts = {name: _counted(numbers) for name, numbers in models.items()}
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return "; ".join(f"{name}: {text}" for name, text in texts.items())


def _counted(numbers: Mapping[str, Any]) -> str:
    text = f"{numbers['scored']} clients"
    left_out = []
    if numbers["without_samples"]:
        left_out.append(f"{numbers['without_samples']} without samples")
    if numbers["undefined"]:
        left_out.append(f"{numbers['undefined']} where it is not defined")
    if left_out:
        text += f" ({' and '.join(left_out)} left out)"
    return text
