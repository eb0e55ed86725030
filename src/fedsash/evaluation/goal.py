"""The goal of a training: what is learned, by which loss, and which number says how good a model is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..settings.errors import check
from ..tasks import TARGET, Accuracy, Criterion, Loss, Metric, Task, as_metric, check_task, per_sample
from .records import RESERVED


@dataclass(frozen=True, eq=False)
class Goal:
    """The task, the loss of each sample `loss(output, y)` `[B]`, all metrics by name, and the one that decides."""

    task: Task
    loss: Loss
    metrics: Mapping[str, Metric]
    criterion: Criterion

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all numbers: the loss, and the metrics."""
        return "loss", *self.metrics

    @property
    def deciding(self) -> dict[str, Metric | None]:
        """The name of the number that decides, and its metric; None for the loss."""
        return {self.criterion.name: self.metrics.get(self.criterion.name)}

    @classmethod
    def of(
        cls,
        task: Task,
        loss: Any = None,
        metrics: Mapping[str, Any] | None = None,
        *,
        decides: str = "",
        target: float | None = None,
    ) -> Goal:
        """The goal of a task: with a `loss` of one's own, with more `metrics`, decided by the metric `decides`.

        By default the first of the given metrics decides, then the first of the task's, then the loss. Raises
        `SettingError` for a loss or a metric that can't be used, and for an unknown name.
        """
        if loss is None:
            check_task(task)
        given = {name: as_metric(metric, name, task) for name, metric in (metrics or {}).items()}
        for name in given:
            right = f"must be an identifier other than {', '.join(RESERVED)}"
            check(name.isidentifier() and name not in RESERVED, "metrics", name, right)
        every = {**given, **{name: metric for name, metric in task.metrics.items() if name not in given}}
        name = decides or next(iter(every), "loss")
        there = ", ".join([*every, "loss"])
        check(name == "loss" or name in every, "Evaluation.metric", name, f"must be one of {there}")
        criterion = Criterion(name, "lower", False, target)
        if name != "loss":
            metric = every[name]
            usual = TARGET if isinstance(metric, Accuracy) else None
            criterion = Criterion(name, metric.better, metric.share, usual if target is None else target)
        right = f"must be at least 0 and at most 1: {name} is a share"
        check(not criterion.share or 0 <= (target or 0) <= 1, "Evaluation.target", target, right)
        return cls(task, task.loss_of if loss is None else per_sample(loss, task), every, criterion)
