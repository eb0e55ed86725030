"""Early stopping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...evaluation import SPLITS, Score
from ...server.federation import Federation
from ...settings.errors import check
from ...settings.limits import Count
from ...tasks import Better, Criterion
from .. import Callback, LiveRun


@dataclass(frozen=True)
class EarlyStopping(Callback, name="early_stopping"):
    """Ends the run when a model has not become better in `patience` evaluations.

    Only a strictly better value counts, and NaN never does. A fork counts from its start. The callback looks at the
    recorded metrics alone. So a resumed run ends in the round in which the run without a stop would have ended. The run
    raises `SettingError` as it begins if it has no such model, metric or samples.
    """

    patience: Count = 10
    """in how many evaluations the model must have become better, or the run ends"""
    model: str = "model"
    """the model that is judged: "model", the global one, or an average by its name"""
    metric: str = ""
    """the metric by which it is judged: "loss" or a metric of the run; empty: the one that decides"""
    better: Literal["higher", "lower", ""] = ""
    """the metric's direction; empty: its own"""
    start: Count = 1
    """the first round whose evaluation counts: a metric such as F1 can be high by chance before a model has learnt
    anything"""
    on: Literal["held_out", "test"] = "held_out"
    """on which samples it is measured: the held-out ones, which need `evaluation.held_out`, or the test set, whose
    numbers are then no longer a fair result"""

    def fits(self, federation: Federation) -> None:
        models = ["model", *federation.averages]
        check(self.model in models, "EarlyStopping.model", self.model, f"must be one of {', '.join(models)}")
        metrics = federation.goal.names
        requirement = f"must be one of {', '.join(metrics)}"
        check(self.metric in ("", *metrics), "EarlyStopping.metric", self.metric, requirement)
        if self.on == "held_out":
            requirement = 'needs held-out samples: set evaluation.held_out, for example to 0.1, or choose "test"'
            check(federation.clients.held, "EarlyStopping.on", self.on, requirement)
        else:
            check(federation.clients.problem.test is not None, "EarlyStopping.on", self.on, "needs a test set")

    def begin(self, run: LiveRun) -> None:
        self._judge(run)

    def evaluation(self, run: LiveRun, scores: list[Score]) -> None:
        self._judge(run)

    def _judge(self, run: LiveRun) -> None:
        criterion = self._criterion(run.federation)
        points = run.history.curves(criterion, self.on).models.get(self.model, {})
        start = max(self.start, (run.tally.forked or 0) + 1)
        own_points = {round: value for round, value in points.items() if round >= start}
        best = criterion.best(own_points)
        evaluations = sum(best is None or round > best for round in own_points)  # those since the best one
        if evaluations >= self.patience:
            value = f"{self.model}'s {criterion.name} on {SPLITS[self.on]}"
            reason = f"{value} has not improved in {self.patience} evaluations"
            if best is not None:
                reason += f" since round {best} ({criterion.text(own_points[best])})"
            run.stop(reason)

    def _criterion(self, federation: Federation) -> Criterion:
        goal = federation.goal
        name = self.metric or goal.criterion.name
        metric = goal.metrics.get(name)
        usual: Better = "lower" if metric is None else metric.better
        return Criterion(name, self.better or usual, metric is not None and metric.share)
