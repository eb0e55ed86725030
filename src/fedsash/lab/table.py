"""A run's summary as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..evaluation import Evaluation

if TYPE_CHECKING:
    from rich.table import Table

MISSING = "-"
HEADS = ("at the end", "mean ± std", "best (round)", "rounds to target", "gain over the model")
"""The column heads of `cells`."""


def empty_table() -> Table:
    """A table without rows in the one style of the terminal. It is also readable in a plain text file."""
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, show_edge=False, header_style="bold")


def table(summary: dict[str, Any], evaluation: Evaluation | None = None) -> Table:
    """A row for each of `summary["models"]` (see `records.summarise`). The highest mean is bold.

    With the run's `evaluation`, the heads name the number of evaluations and the target. Accuracies are in per cent,
    gains in percentage points. Print it with `terminal.show`.
    """
    last = "" if evaluation is None else f"\n(last {evaluation.last})"
    target = "target" if evaluation is None else _percent(evaluation.target)
    heads = ("at the end", f"mean ± std{last}", "best (round)", f"rounds\nto {target}", "gain over\nthe model")
    result = empty_table()
    result.add_column("model", overflow="fold", vertical="bottom")
    for head in heads:
        result.add_column(head, justify="right", no_wrap=True, vertical="bottom")

    models: dict[str, dict[str, Any]] = summary["models"]
    means = [of_model["last_mean"] for of_model in models.values() if of_model["last_mean"] is not None]
    for name, of_model in models.items():
        leads = len(models) > 1 and of_model["last_mean"] is not None and of_model["last_mean"] == max(means)
        result.add_row(name, *cells(name, of_model), style="bold" if leads else None)
    result.caption = "\n".join(notes(summary)) or None
    return result


def notes(summary: dict[str, Any]) -> Iterator[str]:
    """The lines below the table: no evaluation, the model chosen on held-out data, divergence."""
    if not summary["models"]:
        yield "no evaluation on a test set"
    if summary.get("chosen"):
        yield f"the best on held-out data: {summary['chosen']}"
    if wrong := summary.get("diverged"):
        yield f"diverged in round {wrong['round']}: {wrong['why']}; the model has not moved since"


def cells(name: str, of_model: dict[str, Any]) -> list[str]:
    """The numbers of a model as text, in the order of `HEADS`."""
    mean, std, best = of_model["last_mean"], of_model["last_std"], of_model["best"]
    rounds, gain = of_model["rounds_to_target"], of_model["gain"]
    return [
        _percent(of_model["accuracy"]),
        MISSING if mean is None else f"{100 * mean:.1f} ± {100 * std:.1f} %",
        MISSING if best is None else f"{_percent(best['accuracy'])} ({best['round']})",
        MISSING if rounds is None else str(rounds),
        MISSING if gain is None or name == "model" else f"{100 * gain:+.1f} points",
    ]


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.1f} %"
