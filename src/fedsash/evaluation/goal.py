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
        all_metrics: dict[str, Metric] = {}
        requirement = f"must be an identifier other than {', '.join(RESERVED)}"
        for name, metric in (*(metrics or {}).items(), *task.metrics.items()):
            if name in all_metrics:  # one that is given replaces the task's
                continue
            check(name.isidentifier() and name not in RESERVED, "metrics", name, requirement)
            all_metrics[name] = as_metric(metric, name, task)
        criterion = _criterion(decides or next(iter(all_metrics), "loss"), all_metrics, target)
        sample_loss = task.loss_of if loss is None else per_sample(loss, task)
        return cls(task, sample_loss, all_metrics, criterion)


def _criterion(name: str, metrics: Mapping[str, Metric], target: float | None) -> Criterion:
    """The number called `name` as the one that decides: the loss, or one of the metrics. Raises `SettingError`."""
    if name == "loss":
        return Criterion(name, "lower", False, target)
    known = ", ".join([*metrics, "loss"])
    check(name in metrics, "Evaluation.metric", name, f"must be one of {known}")
    metric = metrics[name]
    if metric.share and target is not None:
        requirement = f"must be at least 0 and at most 1: {name} is a share"
        check(0 <= target <= 1, "Evaluation.target", target, requirement)
    if target is None and isinstance(metric, Accuracy):
        target = TARGET
    return Criterion(name, metric.better, metric.share, target)
