"""Metrics of torchmetrics: by name, as an object, on every split, in other processes."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from typing import Any

import pytest
import sklearn.metrics as reference
import torch

from fedsash import SettingError
from fedsash.data.inputs import call
from fedsash.evaluation import Goal
from fedsash.tasks import Binary, Classification, NextCharacter, Regression, Segmentation, Task, TorchMetric, as_metric
from support.libraries import Library
from support.tasks import PROBLEMS
from support.worlds import SPAWNED

torchmetrics = Library("torchmetrics")

AREA = "classification.BinaryAUROC"


def test_an_object_and_its_name_are_the_same_metric_as_that_of_scikit_learn() -> None:
    problem = PROBLEMS["binary"]
    metrics = {"object": torchmetrics.classification.BinaryAUROC(), "name": TorchMetric(metric=AREA)}
    with problem.federation(metrics=metrics) as f:
        state = f.start()
        (found,) = (m for m in f.evaluate(state) if m.split == "test" and m.model == "model")
    test = f.training_data.test
    assert test is not None
    with torch.no_grad():
        logits = call(f.module_of(state.w), test.x[torch.arange(len(test))])[:, 0]
    known = reference.roc_auc_score(test.y, logits)
    assert found["object"] == found["name"] == pytest.approx(known, abs=1e-6)
    assert metrics["object"].update_count == 0, "the user's own object does not change"


def test_they_decide_with_the_direction_that_torchmetrics_says() -> None:
    higher = Goal.of(Binary(), metrics={"auc": TorchMetric(metric=AREA)}).criterion
    lower = Goal.of(Regression(), metrics={"mse": torchmetrics.MeanSquaredError()}).criterion
    assert (higher.name, higher.better, higher.share) == ("auc", "higher", False)
    assert (lower.name, lower.better, lower.target) == ("mse", "lower", None)


def test_where_torchmetrics_says_no_direction_the_user_does() -> None:
    named = "regression.PearsonCorrCoef"
    with pytest.raises(SettingError, match=r"TorchMetric.direction = None: must be 'higher' or 'lower'"):
        TorchMetric(named)
    with pytest.raises(SettingError, match=r"metrics\.it = .*does not say what is better"):
        as_metric(torchmetrics.TweedieDevianceScore(), "it", Regression())
    assert TorchMetric(named, direction="higher").better == "higher"
    assert TorchMetric("regression.TweedieDevianceScore", direction="lower").better == "lower"
    with pytest.raises(SettingError, match="must be left out: torchmetrics says higher"):
        TorchMetric(AREA, direction="lower")


@pytest.mark.slow
def test_spawned_workers_compute_them_for_their_clients() -> None:
    problem = replace(PROBLEMS["regression of one number"], metrics={"mse": torchmetrics.MeanSquaredError()})
    rows: list[dict[str, Any]] = []
    for engine in ({}, {"engine": SPAWNED}):
        with problem.federation(**engine) as f:
            rows.append({m.split: m["mse"] for m in f.evaluate(f.start()) if m.model == "model"})
    assert rows[0].keys() == {"test", "held_out", "clients"} and rows[0] == pytest.approx(rows[1], rel=1e-12)


def test_they_can_be_sent_to_another_process() -> None:
    for metric in (TorchMetric(metric=AREA), torchmetrics.MeanSquaredError()):
        given = as_metric(metric, "it", Regression())
        output = torch.tensor([0.1, 0.7, 0.4])
        y = torch.tensor([0, 1, 1])
        assert given.together and pickle.loads(pickle.dumps(given)).of(output, y) == given.of(output, y)


@pytest.mark.parametrize(("metric", "options", "line"), [
    ("classification.Nothing", {}, "TorchMetric.metric = 'classification.Nothing': must be a class of torchmetrics"),
    ("functional.r2_score", {}, "TorchMetric.metric = 'functional.r2_score': must be a class of torchmetrics"),
    ("Accuracy", {"task": "multiclass"}, "TorchMetric.options = {'task': 'multiclass'}: "),
    (AREA, {"nothing": 1}, "TorchMetric.options = {'nothing': 1}: "),
])  # fmt: skip
def test_what_torchmetrics_does_not_know_is_one_line(metric: str, options: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingError) as error:
        TorchMetric(metric=metric, options=options)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


def test_outputs_are_never_taken_for_probabilities() -> None:
    """Torchmetrics decides by the numbers of a set: those of a small client may all lie in [0, 1]."""
    output = torch.tensor([0.3, 0.4, -2.0])
    y = torch.tensor([1, 1, 0])
    for metric in (TorchMetric("classification.BinaryAccuracy"), torchmetrics.classification.BinaryAccuracy()):
        made = as_metric(metric, "it", Binary())
        assert made.of(output, y) == made.of(output[:2], y[:2]) == 1.0
    of_classes = as_metric(torchmetrics.classification.MulticlassCalibrationError(3), "it", Classification())
    logits = torch.tensor([[0.2, 0.9, 0.1], [5.0, 0.0, 1.0]])
    right = torchmetrics.classification.MulticlassCalibrationError(3)(logits.softmax(-1), torch.tensor([1, 0]))
    assert of_classes.of(logits, torch.tensor([1, 0])) == pytest.approx(float(right))


def test_a_set_without_all_classes_is_left_out_where_torchmetrics_warns_that_its_number_is_meaningless() -> None:
    """It gives 0 there, which would count as the worst of all models."""
    area = as_metric(TorchMetric(AREA), "it", Binary())
    output = torch.tensor([-1.0, 2.0, 3.0])
    assert area.of(output, torch.tensor([0, 1, 1])) == 1
    assert math.isnan(area.of(output, torch.tensor([1, 1, 1]))) and math.isnan(area.of(output, torch.tensor([0, 0, 0])))
    of_ten = as_metric(torchmetrics.classification.MulticlassAUROC(10), "it", Classification())
    assert math.isnan(of_ten.of(torch.eye(10), torch.arange(10).clamp(max=1)))
    assert of_ten.of(torch.eye(10), torch.arange(10)) == 1


def test_a_class_that_has_no_weight_may_have_no_samples() -> None:
    weighted = as_metric(torchmetrics.classification.MulticlassAUROC(10, average="weighted"), "it", Classification())
    assert 0 < weighted.of(torch.eye(10), torch.arange(10).clamp(max=1)) <= 1


def test_other_metrics_of_one_class_have_their_number() -> None:
    right = as_metric(torchmetrics.classification.BinaryAccuracy(), "it", Binary())
    assert right.of(torch.tensor([1.0, -1.0]), torch.tensor([1, 1])) == 0.5


def test_pixels_outputs_are_no_probabilities_either() -> None:
    """The same numbers as images and as samples."""
    logits = torch.tensor([[0.2, 0.9, 0.1], [0.8, 0.0, 0.5]])
    y = torch.tensor([1, 0])
    metric = torchmetrics.classification.MulticlassCalibrationError(3)
    flat = as_metric(metric, "it", Classification()).of(logits, y)
    images = as_metric(metric, "it", Segmentation()).of(logits.T[None, :, :, None], y[None, :, None])
    assert images == pytest.approx(flat)


@pytest.mark.parametrize("task", [NextCharacter(), Segmentation(ignored=2)])
def test_what_the_task_ignores_a_metric_must_ignore(task: Task) -> None:
    ignored = task.ignored_label
    line = rf"must ignore the label {ignored}, as the task does: ignore_index = {ignored}$"
    for options in ({}, {"ignore_index": 1}):
        metric = torchmetrics.classification.MulticlassJaccardIndex(3, **options)
        with pytest.raises(SettingError, match=line):
            as_metric(metric, "it", task)
        with pytest.raises(SettingError, match=line):
            as_metric(TorchMetric("classification.MulticlassJaccardIndex", {"num_classes": 3} | options), "it", task)
    as_metric(torchmetrics.classification.MulticlassJaccardIndex(3, ignore_index=ignored), "it", task)


@pytest.mark.parametrize(("name", "options", "y"), [
    ("BinaryAUROC", {"ignore_index": -100}, torch.tensor([0, 0, -100])),
    ("MulticlassAUROC", {"num_classes": 3, "ignore_index": -100}, torch.tensor([0, 1, -100])),
    ("MultilabelAUROC", {"num_labels": 3, "average": "micro"}, torch.zeros(3, 3, dtype=torch.int64)),
    ("MulticlassAUROC", {"num_classes": 3, "average": "weighted"}, torch.tensor([0, 0, 0])),
])  # fmt: skip
def test_what_is_ignored_is_no_class_and_one_class_is_not_enough_for_any_mean(
    name: str, options: dict[str, Any], y: torch.Tensor
) -> None:
    metric = getattr(torchmetrics.classification, name)(**options)
    output = torch.tensor([-1.0, 2.0, 0.5]) if "Binary" in name else torch.eye(3)
    assert math.isnan(as_metric(metric, "it", Regression()).of(output, y))
