"""Tasks: what is learned. A task has the loss of a sample, says which labels and outputs are right, and has metrics."""

from __future__ import annotations

from .base import Loss, Task, refuse_beyond
from .classification import Binary, Classification, MultiLabel, Segmentation
from .criterion import TARGET, Criterion
from .losses import OnlyLoss, are_classes, check_all_count, check_task, check_unnamed, chosen_task, per_sample
from .metrics import (
    F1,
    R2,
    Accuracy,
    Better,
    MeanAbsoluteError,
    MeanIoU,
    Metric,
    Perplexity,
    RootMeanSquaredError,
    Scored,
)
from .regression import Regression
from .sequences import PAD, NextCharacter, NextToken
from .together import Together, TorchMetric, as_metric

__all__ = [
    "F1",
    "METRICS",
    "PAD",
    "R2",
    "TARGET",
    "TASKS",
    "Accuracy",
    "Better",
    "Binary",
    "Classification",
    "Criterion",
    "Loss",
    "MeanAbsoluteError",
    "MeanIoU",
    "Metric",
    "MultiLabel",
    "NextCharacter",
    "NextToken",
    "OnlyLoss",
    "Perplexity",
    "Regression",
    "RootMeanSquaredError",
    "Scored",
    "Segmentation",
    "Task",
    "Together",
    "TorchMetric",
    "are_classes",
    "as_metric",
    "check_all_count",
    "check_task",
    "check_unnamed",
    "chosen_task",
    "per_sample",
    "refuse_beyond",
]

TASKS = Task.by_name
"""The registered tasks by name."""

METRICS = Metric.by_name
"""The registered metrics by name."""
