"""A run's summary as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..evaluation import NOT_EVALUATED, SPLITS, Curves
from ..tasks import Criterion
from ..tasks.criterion import UNKNOWN
from . import terminal
from .client_results import HEADS, client_rows, counted
from .summaries import metric_of, privacy_text, stuck_text

if TYPE_CHECKING:
    from rich.table import Table

NAME = 24
"""Names of models up to this length are never folded."""


def empty_table() -> Table:
    """A table without rows in the one style of the terminal. It is also readable in a plain text file."""
    from rich import box
    from rich.table import Table

    plain = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, show_edge=False, header_style="bold")
    plain.caption_justify = "left"
    return plain


def table(summary: dict[str, Any]) -> Table:
    """A row for each of `summary["models"]` (see `summaries.summarise`). The best mean is bold.

    The heads name the target, and of how many evaluations the means are. Shares are in per cent, their gains in
    percentage points. Print it with `terminal.show`.
    """
    criterion = metric_of(summary)
    models: dict[str, dict[str, Any]] = summary["models"]
    columns = ["model", *heads(summary, f"(last {summary['averaged']})")]
    rows = [[name, *cells(name, numbers, criterion)] for name, numbers in models.items()]
    result = with_names(columns, rows, leader(models, criterion))
    result.caption = "\n".join(notes(summary)) or None
    return result


def tables(summary: dict[str, Any]) -> list[Table]:
    """All tables of a run: its models, and their numbers over the clients on each split that clients score."""
    criterion = metric_of(summary)
    result = [table(summary)]
    for split, models in summary["over_clients"].items():
        result.append(_over_clients(split, models, criterion))
    return result


def _over_clients(split: str, models: Mapping[str, Mapping[str, Any]], criterion: Criterion) -> Table:
    """A row for each model on a split that clients score (see `client_rows`)."""
    result = with_names(HEADS, client_rows(models, criterion))
    unit = " (%)" if criterion.share else ""
    gain = "gain: that of the worst tenth over the model's"
    result.caption = f"{criterion.name}{unit} of {counted(models)} on {SPLITS[split]}; {gain}"
    return result


def with_names(heads: Sequence[str], rows: Sequence[Sequence[str]], lead: str | None = None) -> Table:
    """A table whose first column has names. Where it is too wide, names of more than `NAME` columns are folded.

    Nothing else gives way: that is its `min_width`.
    """
    result = empty_table()
    result.add_column(heads[0], overflow="fold", vertical="bottom")
    for head in heads[1:]:
        result.add_column(head, justify="right", no_wrap=True, vertical="bottom")
    for row in rows:
        result.add_row(*row, style="bold" if row[0] == lead else None)
    longest = max(map(len, [heads[0], *(row[0] for row in rows)]))
    whole = terminal.console(width=10_000).measure(result).maximum
    result.min_width = whole - max(longest - NAME, 0)
    return result


def leader(models: Mapping[str, Mapping[str, Any]], criterion: Criterion) -> str | None:
    """The model with the best mean. None if there is only one model."""
    if len(models) <= 1:
        return None
    best: str | None = criterion.best({name: numbers["last_mean"] for name, numbers in models.items()})
    return best


def heads(summary: Mapping[str, Any], last: str = "") -> list[str]:
    """The column heads of `cells`. A head may have two lines."""
    criterion = metric_of(summary)
    target = "target" if criterion.target is None else criterion.plain(criterion.target)
    splits = {numbers["best"]["chosen_on"] for numbers in summary["models"].values() if numbers["best"]}
    chosen_on = " or ".join(sorted(splits)).replace("_", "-") or "test"
    return [
        "at the end",
        f"mean ± std\n{last}".strip(),
        f"best (round)\nchosen on {chosen_on}",
        f"rounds\nto {target}",
        "gain over\nthe model",
    ]


def notes(summary: Mapping[str, Any]) -> Iterator[str]:
    """The lines below the table: the metric, no evaluation, the chosen model, an early end, a run that is stuck."""
    if not summary["models"]:
        yield "no evaluation: no round is finished" if summary.get("rounds") == 0 else NOT_EVALUATED
    elif caption := Curves(metric_of(summary), summary["metric"]["split"], {}).caption:
        yield caption
    if summary["chosen"]:
        yield f"the best on held-out data: {summary['chosen']}"
    if spent := summary["privacy"]:
        yield privacy_text(spent)
    if why := summary.get("ended_early"):
        yield f"ended after round {summary['rounds']}: {why}"
    if since := summary.get("stuck"):
        yield stuck_text(since)


def cells(name: str, of_model: Mapping[str, Any], criterion: Criterion) -> list[str]:
    """The numbers of a model as text, in the order of `heads`."""
    mean = criterion.spread(of_model["last_mean"], of_model["last_std"])
    if criterion.share and mean != UNKNOWN:
        mean += " %"
    best = UNKNOWN
    if of_model["best"] is not None:
        best = f"{criterion.text(of_model['best']['value'])} ({of_model['best']['round']})"
    rounds = UNKNOWN
    if of_model["rounds_to_target"] is not None:
        rounds = str(of_model["rounds_to_target"])
    gain = UNKNOWN
    if of_model["gain"] is not None and name != "model":
        gain = criterion.spread(of_model["gain"], None, sign="+")
        if criterion.share:
            gain += " points"
    return [criterion.text(of_model["value"]), mean, best, rounds, gain]
