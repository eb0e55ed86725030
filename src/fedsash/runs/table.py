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
    lead = leader(models, criterion)
    named = ["model", *heads(summary, f"(last {summary['averaged']})")]
    result = with_names(named, [[name, *cells(name, of, criterion)] for name, of in models.items()], lead)
    result.caption = "\n".join(notes(summary)) or None
    return result


def tables(summary: dict[str, Any]) -> list[Table]:
    """All tables of a run: its models, and what they come to over the clients on each split that they score."""
    criterion = metric_of(summary)
    over_clients = summary["over_clients"].items()
    return [table(summary), *(_over_clients(split, models, criterion) for split, models in over_clients)]


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
    names = max(map(len, [heads[0], *(row[0] for row in rows)]))
    result.min_width = terminal.console(width=10_000).measure(result).maximum - max(names - NAME, 0)
    return result


def leader(models: Mapping[str, Mapping[str, Any]], criterion: Criterion) -> str | None:
    """The model with the best mean. None if there is only one model."""
    found: str | None = criterion.best({name: of["last_mean"] for name, of in models.items()})
    return found if len(models) > 1 else None


def heads(summary: Mapping[str, Any], last: str = "") -> list[str]:
    """The column heads of `cells`. A head may have two lines."""
    criterion = metric_of(summary)
    to_target = "target" if criterion.target is None else criterion.plain(criterion.target)
    chosen_on = {of["best"]["chosen_on"] for of in summary["models"].values() if of["best"]}
    best = f"best (round)\nchosen on {' or '.join(sorted(chosen_on)).replace('_', '-') or 'test'}"
    return ["at the end", f"mean ± std\n{last}".strip(), best, f"rounds\nto {to_target}", "gain over\nthe model"]


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
    best = of_model["best"]
    rounds = of_model["rounds_to_target"]
    gain = of_model["gain"]
    mean = criterion.spread(of_model["last_mean"], of_model["last_std"])
    unit, points = (" %", " points") if criterion.share else ("", "")
    return [
        criterion.text(of_model["value"]),
        mean if mean == UNKNOWN else f"{mean}{unit}",
        UNKNOWN if best is None else f"{criterion.text(best['value'])} ({best['round']})",
        UNKNOWN if rounds is None else str(rounds),
        UNKNOWN if gain is None or name == "model" else f"{criterion.spread(gain, None, sign='+')}{points}",
    ]
