"""Reproductions for tests: those of the papers, one on the digits, and folders of runs that were never trained."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from fedsash.evaluation import Evaluation
from fedsash.lab.papers import load as read
from fedsash.lab.papers.reproduction import Reproduction
from fedsash.lab.papers.results import Results
from fedsash.lab.papers.tables import Table
from fedsash.runs.records import Records
from fedsash.runs.summaries import GOAL, goal_content
from fedsash.tasks import Criterion
from support.histories import history_of
from support.json_files import write_json

DIGITS = {
    "rounds": 6,
    "partition": {"name": "dirichlet", "clients": 10, "alpha": 0.5},
    "model": {"name": "mlp", "hidden": [8]},
    "averages": {"ima": {"name": "window", "size": 2}},
    "evaluation": {"every": 1, "last": 2, "target": 0.5},
}

HALF = Criterion(target=0.5)


@cache
def load(name: str) -> Reproduction:
    return read(name)


def reproduction(**more: Any) -> Reproduction:
    """A table of methods A and B and seeds 0 and 1 on the digits, or another with `more` of its fields."""
    table = Table(rows="method", columns="seed", printed={"A": ["50.0", "60.0"], "B": ["70.0", "?"]})
    fields = {
        "name": "test",
        "title": "a table",
        "paper": "a paper",
        "shows": "accuracy",
        "base": DIGITS,
        "axes": {"seed": [0, 1], "method": {"A": {}, "B": {"local": {"lr": 0.05}}}},
        "tables": [table],
    }
    return Reproduction(**fields | more)


def pretend(
    out: Path,
    given: Reproduction,
    values: dict[str, list[float]],
    scale: str = "full",
    criterion: Criterion = HALF,
) -> Results:
    """Run folders with these values of the criterion by round, for the runs whose name is in `values`."""
    sweep = given.plan(scale)
    for run in sweep.runs:
        if run.name in values:
            rows = [
                {"round": t, "model": model, "split": "test", criterion.name: a / (1 if model == "model" else 2)}
                for t, a in enumerate(values[run.name], 1)
                for model in ("model", "ima")
            ]
            folder = out / "runs" / run.name
            folder.mkdir(parents=True)
            Records(folder).create(history_of(rows))
            write_json(folder / GOAL, goal_content(criterion, Evaluation()))
            write_json(folder / "summary.json", {"rounds": run.experiment.rounds})
    return Results(sweep, out, given.labels)
