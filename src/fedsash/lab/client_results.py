"""Each client's own results: in a run's folder, in its summary, and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..evaluation import COUNTED, OVER_CLIENTS, SPLITS, Metrics, mean_or_none
from ..tasks import Criterion

CLIENTS = "clients.json"
"""The file of a run with the last result of each client (see `content`)."""
WORDS = dict(zip(OVER_CLIENTS, ("mean over clients", "worst tenth", "spread", "worst client"), strict=True))
"""The numbers over clients in words."""
HEADS = ("model", "mean over clients", "worst tenth", "gain", "worst client", "spread")
"""The columns of `client_rows`."""
Results = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By split and model: the numbers over clients, and how many clients they are of."""


def content(metrics: Iterable[Metrics], names: Sequence[str] = ()) -> dict[str, Any]:
    """What `clients.json` holds of an evaluation; empty if no client scored a model.

    It is `{"round": 300, "clients": ["Basel", "Bern"], "splits": {"client_test": {"model": [0.8, None], "window20":
    [...]}}}`: the criterion of every client, in the order of the clients; None where it is not defined. Clients without
    names have their numbers.
    """
    splits: dict[str, dict[str, list[float]]] = {}
    round = 0
    for of in metrics:
        if of.each is not None:
            round = of.round
            splits.setdefault(of.split, {})[of.model] = of.each.tolist()
    count = max((len(each) for models in splits.values() for each in models.values()), default=0)
    return {"round": round, "clients": list(names) or [*range(count)], "splits": splits} if splits else {}


def last_rounds(models: Mapping[str, Mapping[int, Any]], count: int) -> list[int]:
    """The last `count` rounds in which any of the models was evaluated, ascending."""
    return sorted(set().union(*models.values()))[-count:]


def over_last(rows: Iterable[Mapping[str, Any]], last: int) -> Results:
    """The results in a run's rows: the means of the numbers over clients at the last `last` evaluations.

    A number is None if one of its values is undefined, and for a model that was not evaluated at all of them. The
    counts of clients are those of the model's last evaluation.
    """
    found: dict[str, dict[str, dict[int, Mapping[str, Any]]]] = {}
    for row in rows:
        if OVER_CLIENTS[0] in row and row["split"] in SPLITS:
            found.setdefault(row["split"], {}).setdefault(row["model"], {})[row["round"]] = row
    return {
        split: {model: _over(its, last_rounds(models, last)) for model, its in models.items()}
        for split, models in sorted(found.items(), key=lambda item: list(SPLITS).index(item[0]))
    }


def _over(rows: Mapping[int, Mapping[str, Any]], last: Sequence[int]) -> dict[str, Any]:
    means = {name: mean_or_none([rows.get(round, {}).get(name) for round in last]) for name in OVER_CLIENTS}
    return means | {name: rows[max(rows)].get(name, 0) for name in COUNTED}


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
