"""Tasks, metrics and the metric that decides, as an experiment file names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsash.lab.config import ConfigError, load, parse
from fedsash.tasks import Accuracy, Classification, Criterion, Regression, RootMeanSquaredError
from support.experiments import file_with

REGRESSION = '[task]\nname = "regression"\n'


def test_a_task_is_a_table_and_without_one_the_data_say_what_is_learned(tmp_path: Path) -> None:
    assert parse({}).task is None
    content = '[task]\nname = "classification"\nweights = [0.5, 2]\nsmoothing = 0.1\n'
    assert load(file_with(content, tmp_path)).task == Classification((0.5, 2.0), 0.1)
    assert parse({"task": {"name": "regression", "error": "huber"}}).task == Regression("huber")


def test_metrics_are_tables_by_their_names() -> None:
    found = parse({"metrics": {"top3": {"name": "accuracy", "top": 3}, "low": {"name": "rmse"}}}).metrics
    assert found == {"top3": Accuracy(3), "low": RootMeanSquaredError()}


def criterion(**content: object) -> Criterion:
    return parse(content).federation().goal.criterion


def test_the_first_metric_of_the_file_decides_or_the_one_that_the_evaluation_names() -> None:
    top = {"top3": {"name": "accuracy", "top": 3}, "macro": {"name": "f1"}}
    assert criterion() == Criterion("accuracy", "higher", share=True, target=0.8)
    assert criterion(metrics=top) == Criterion("top3", "higher", share=True, target=0.8)
    chosen = {"metric": "macro", "target": 0.7}
    assert criterion(metrics=top, evaluation=chosen) == Criterion("macro", "higher", share=True, target=0.7)
    assert criterion(evaluation={"metric": "loss"}) == Criterion("loss", "lower", share=False, target=None)


def test_digits_can_be_learned_as_numbers() -> None:
    federation = parse({"task": {"name": "regression"}, "evaluation": {"target": 2.5}}).federation()
    assert federation.goal.criterion == Criterion("rmse", "lower", share=False, target=2.5)
    data = federation.training_data
    assert data.train.y.is_floating_point() and data.classes == 0
    (last,) = (layer for layer in federation.module.modules() if getattr(layer, "out_features", 0) == 1)
    assert last.weight.dtype == data.train.y.dtype == data.train.x.dtype


WRONG_SETTINGS = {
    "an unknown task": ('task.name = "regresion"', 'task.name = "regresion": must be one of'),
    "a task by its name alone": ('task = "binary"', 'task = "binary": must be a table, [task] with name = "binary"'),
    "an unknown key": ("[task]\nname = 'binary'\nweight = 2", "unknown key task.weight"),
    "a wrong option": ("[task]\nname = 'regression'\nerror = 'cubic'", 'task.error = "cubic": must be "squared" or'),
    "an unknown metric": ('metrics.x.name = "f2"', 'metrics.x.name = "f2": must be one of accuracy, f1, mean_iou'),
    "no name of a metric": ("[metrics.x]\ntop = 2", "metrics.x.name is missing"),
    "a metric that is no table": ("metrics.x = 3", "metrics.x = 3: must be a table, [metrics.x]"),
    "an infinite target": ("evaluation.target = inf", "evaluation.target = inf: must be finite"),
    "a metric that is a number": ("evaluation.metric = 3", "evaluation.metric = 3: must be a string"),
    "another split": ('evaluation.best_on = "clients"', 'evaluation.best_on = "clients": must be "held_out" or "test"'),
}


@pytest.mark.parametrize("name", WRONG_SETTINGS)
def test_a_wrong_setting_is_one_line_that_names_its_key(name: str, tmp_path: Path) -> None:
    content, line = WRONG_SETTINGS[name]
    with pytest.raises(ConfigError) as error:
        load(file_with(content, tmp_path))
    assert line in str(error.value) and "\n" not in str(error.value)


MISFITS = {
    "a metric that is not there": (
        'evaluation.metric = "f1"',
        "evaluation.metric = 'f1': must be one of accuracy, loss",
    ),
    "a field of records": (
        'metrics.round.name = "f1"',
        "metrics = 'round': must be an identifier other than round, model",
    ),
    "no word": ('metrics."a b".name = "f1"', "metrics = 'a b': must be an identifier"),
    "more than two classes": ('task.name = "binary"', "task: the training labels[1] = 2: must be 0 to 1"),
    "one label for each sample": (
        'task.name = "multi_label"',
        "task: the training labels = [1438]: must be [samples, labels], each 0 or 1",
    ),
    "no pixels": ('task.name = "segmentation"', "task: the training labels = [1438]: must be [samples, height, width]"),
    "no sequence": ('task.name = "next_token"', "task: the training labels = [1438]: must be [samples, T]"),
    "too few weights": (
        '[task]\nname = "classification"\nweights = [1, 2]',
        "task.weights = (1.0, 2.0): must be one for each of 10 classes",
    ),
    "a metric of sequences": ('metrics.x.name = "perplexity"', "metrics = 'x': can't be computed: "),
    "a model of classes": (
        REGRESSION + '[model]\nname = "support.experiments:linear"\nfeatures = 64\nclasses = 10',
        "model: the model's outputs have the shape [2, 10]: the task Regression needs outputs of shape [2]",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_the_data_is_one_line_before_the_first_round(name: str, tmp_path: Path) -> None:
    content, line = MISFITS[name]
    with pytest.raises(ConfigError) as error:
        load(file_with(content, tmp_path), own_code=True).federation()
    assert line in str(error.value) and "\n" not in str(error.value)
