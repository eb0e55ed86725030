"""Metrics against scikit-learn, over any split of the samples into groups; and which number decides."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as reference
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedsash import SettingError
from fedsash.evaluation import Goal
from fedsash.tasks import (
    F1,
    R2,
    Accuracy,
    Binary,
    Classification,
    Criterion,
    MeanAbsoluteError,
    MeanIoU,
    Metric,
    MultiLabel,
    NextToken,
    Perplexity,
    Regression,
    RootMeanSquaredError,
    Segmentation,
    Task,
    as_metric,
)

no_deadline = settings(deadline=None, max_examples=40)
C = 4


def measured(metric: Metric, task: Task, output: Tensor, y: Tensor, cuts: list[int]) -> float:
    """The metric from the sums of several groups of samples."""
    parts = np.split(np.arange(len(y)), sorted(cut % len(y) for cut in cuts))
    total = 0.0
    for part in parts:
        scored = task.scored(output[part], y[part], task.loss_of(output[part], y[part]))
        total = total + metric.sums(scored).sum(0).double().numpy()
    return float(metric.value(np.asarray(total)))


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@no_deadline
@given(st.integers(0, 10**6), st.integers(1, 30), st.lists(st.integers(0, 29), max_size=4))
def test_classes(seed: int, n: int, cuts: list[int]) -> None:
    output = torch.from_numpy(rng(seed).normal(size=(n, C)))
    y = torch.from_numpy(rng(seed + 1).integers(0, C, n))
    said = output.argmax(1)
    task = Classification()
    assert measured(Accuracy(), task, output, y, cuts) == pytest.approx(reference.accuracy_score(y, said), rel=1e-13)
    assert measured(F1(), task, output, y, cuts) == pytest.approx(
        reference.f1_score(y, said, average="macro"), rel=1e-13
    )
    jaccard = reference.jaccard_score(y, said, average="macro")
    assert measured(MeanIoU(), task, output, y, cuts) == pytest.approx(jaccard, rel=1e-13)
    top = reference.top_k_accuracy_score(y, output, k=2, labels=range(C))
    assert measured(Accuracy(top=2), task, output, y, cuts) == pytest.approx(top, rel=1e-13)


@no_deadline
@given(st.integers(0, 10**6), st.integers(2, 30), st.lists(st.integers(0, 29), max_size=4))
def test_yes_or_no_and_several_labels(seed: int, n: int, cuts: list[int]) -> None:
    output = torch.from_numpy(rng(seed).normal(size=(n, 3)))
    y = torch.from_numpy(rng(seed + 1).integers(0, 2, (n, 3)))
    said = (output > 0).long()
    one = (output[:, 0] > 0).long()
    if y[:, 0].any() or one.any():
        f1 = reference.f1_score(y[:, 0], one)
        assert measured(F1(), Binary(), output[:, 0], y[:, 0], cuts) == pytest.approx(f1, rel=1e-13)
    right = reference.accuracy_score(y[:, 0], one)
    assert measured(Accuracy(), Binary(), output[:, :1], y[:, 0], cuts) == pytest.approx(right, rel=1e-13)
    each = 1 - reference.hamming_loss(y, said)
    assert measured(Accuracy(), MultiLabel(), output, y, cuts) == pytest.approx(each, rel=1e-13)


@no_deadline
@given(st.integers(0, 10**6), st.integers(3, 30), st.sampled_from([0, 1, 2]), st.lists(st.integers(0, 29), max_size=4))
def test_numbers(seed: int, n: int, targets: int, cuts: list[int]) -> None:
    shape = (n, targets) if targets else (n,)
    y = torch.from_numpy(rng(seed).normal(size=shape))
    output = y + torch.from_numpy(rng(seed + 1).normal(size=shape))
    task = Regression()
    for metric, known in (
        (MeanAbsoluteError(), reference.mean_absolute_error),
        (R2(), reference.r2_score),
    ):
        assert measured(metric, task, output, y, cuts) == pytest.approx(known(y, output), rel=1e-9, abs=1e-9)
    square = reference.mean_squared_error(y, output)
    assert measured(RootMeanSquaredError(), task, output, y, cuts) ** 2 == pytest.approx(square, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_r2_keeps_its_digits_where_labels_are_large_and_their_variance_is_small(dtype: torch.dtype) -> None:
    y = torch.from_numpy(10_000 + rng(0).normal(size=(500, 2))).to(dtype)
    output = y + torch.from_numpy(rng(1).normal(size=(500, 2))).to(dtype)
    known = reference.r2_score(y.double(), output.double())
    assert measured(R2(), Regression(), output, y, [100, 300]) == pytest.approx(known, abs=1e-6)


@example(1.8684371052213624e-161, 3, 0)
@given(st.floats(-1e9, 1e9), st.integers(1, 50), st.integers(0, 49))
def test_r2_is_not_defined_where_the_labels_never_change(label: float, n: int, cut: int) -> None:
    y = torch.full((n,), label, dtype=torch.float64)
    assert np.isnan(measured(R2(), Regression(), y + 1, y, [cut]))


def test_the_first_outputs_of_pixels_and_tokens_are_the_highest_of_their_classes() -> None:
    """Where all dimensions are equal, the wrong one would go unnoticed."""
    pixels = torch.randn(4, 4, 4, 4, dtype=torch.float64)
    tokens = torch.randn(5, 4, 4, dtype=torch.float64)
    heads = torch.randn(5, 3, 2, 4, dtype=torch.float64)  # of a task of one's own: four dimensions that are no image
    for output, dim, task in ((pixels, 1, Segmentation()), (tokens, 2, NextToken()), (heads, 3, NextToken())):
        last = output.movedim(dim, -1).reshape(-1, 4)
        y = torch.from_numpy(rng(2).integers(0, 4, output.movedim(dim, -1).shape[:-1]))
        known = reference.top_k_accuracy_score(y.flatten(), last, k=2, labels=range(4))
        assert measured(Accuracy(top=2), task, output, y, [2]) == pytest.approx(known, rel=1e-13)


def test_pixels_that_are_ignored_are_not_scored() -> None:
    y = torch.tensor([[[0, 1], [2, 9]]])
    output = torch.zeros(1, 3, 2, 2, dtype=torch.float64)
    for place, said in {(0, 0): 0, (0, 1): 1, (1, 0): 1, (1, 1): 2}.items():
        output[0, said, *place] = 5.0
    task = Segmentation(ignored=9)
    assert measured(Accuracy(), task, output, y, []) == pytest.approx(2 / 3)
    assert measured(MeanIoU(), task, output, y, []) == pytest.approx((1 + 1 / 2 + 0) / 3)


def test_perplexity_is_exp_of_the_mean_over_all_real_tokens() -> None:
    y = torch.tensor([[1, 2, -100, -100], [3, 0, 1, 2]])
    output = torch.randn(2, 4, C, dtype=torch.float64)
    real = y != -100
    mean = torch.nn.functional.cross_entropy(output[real], y[real])
    assert measured(Perplexity(), NextToken(), output, y, [1]) == pytest.approx(float(mean.exp()), rel=1e-13)


def test_perplexity_is_that_of_the_outputs_whatever_loss_is_trained() -> None:
    y = torch.tensor([[1, 2, -100], [3, 0, 1]])
    output = torch.randn(2, 3, C, dtype=torch.float64)
    usual = NextToken().scored(output, y, NextToken().loss(output, y))
    other = NextToken().scored(output, y, torch.full((2,), 7.0, dtype=torch.float64))
    assert torch.equal(Perplexity().sums(usual), Perplexity().sums(other))


def test_a_function_of_all_samples_is_a_metric() -> None:
    y = torch.tensor([0, 1, 1, 0])
    output = torch.tensor([0.1, 0.9, 0.2, 0.3])
    auc = as_metric(lambda output, y: reference.roc_auc_score(y, output), "auc", Binary())
    assert auc.together
    assert auc.of(output, y) == pytest.approx(0.75)


def test_which_number_decides() -> None:
    assert Goal.of(Classification()).criterion == Criterion("accuracy", "higher", True, 0.8)
    assert Goal.of(Regression()).criterion == Criterion("rmse", "lower", False, None)
    assert Goal.of(Regression(), metrics={"off": MeanAbsoluteError()}, target=3.0).criterion.name == "off"
    assert Goal.of(Regression(), decides="r2").criterion.better == "higher"
    assert Goal.of(Classification(), decides="loss").criterion == Criterion("loss", "lower", False, None)
    with pytest.raises(SettingError, match="must be one of accuracy, loss"):
        Goal.of(Classification(), decides="f1")
    with pytest.raises(SettingError, match="metrics = 'round': must be an identifier other than round, model"):
        Goal.of(Classification(), metrics={"round": F1()})
    for name in ("better", "start", "held_out", "time", "trips", "skipped", "worst_tenth", "two words", ""):
        with pytest.raises(SettingError, match="must be an identifier other than"):
            Goal.of(Classification(), metrics={name: F1()})
    with pytest.raises(SettingError, match=r"metrics\.x = 3: must be a Metric"):
        Goal.of(Classification(), metrics={"x": 3})


class WithMetrics(Classification):
    """A task of one's own with these metrics."""

    def __init__(self, metrics: dict[str, Any]) -> None:
        self._metrics = metrics

    @property
    def metrics(self) -> dict[str, Any]:
        return self._metrics


@pytest.mark.parametrize("name", ["loss", "split"])
def test_a_metric_of_a_task_is_checked_as_one_that_is_given(name: str) -> None:
    with pytest.raises(SettingError, match=f"metrics = '{name}': must be an identifier other than"):
        Goal.of(WithMetrics({name: Accuracy()}))
    with pytest.raises(SettingError, match=r"metrics\.x = 3: must be a Metric"):
        Goal.of(WithMetrics({"x": 3}))
    assert Goal.of(WithMetrics({"x": 3}), metrics={"x": F1()}).criterion.name == "x"


def test_a_target_is_one_that_the_number_can_reach() -> None:
    assert Goal.of(Regression(), target=40.0).criterion.target == 40 and Goal.of(Regression()).criterion.target is None
    assert Goal.of(Classification(), decides="loss", target=2.5).criterion.target == 2.5
    assert Goal.of(Classification(), target=1.0).criterion.target == 1 == Goal.of(Binary(), target=1).criterion.target
    for target in (80.0, -0.1):
        with pytest.raises(SettingError, match=rf"Evaluation.target = {target}: must be at least 0 and at most 1"):
            Goal.of(Classification(), target=target)


@pytest.mark.parametrize(
    ("value", "said"),
    [(12_345.6, "12,346"), (-25_000, "-25,000"), (9_999.7, "10,000"), (9_999.4, "9999"), (0.00012345, "0.0001234")],
)
def test_a_large_number_is_written_without_an_exponent(value: float, said: str) -> None:
    rmse = Criterion("rmse", "lower", share=False, target=None)
    assert rmse.text(value) == said and rmse.spread(value, 0.5) == f"{said} ± 0.5"
    assert rmse.spread(abs(value), None, sign="+") == f"+{said.lstrip('-')}"
    assert rmse.text(2e9) == "2e+09" and rmse.text(float("inf")) == "inf"


@given(st.dictionaries(st.text("abc", max_size=2), st.floats(), max_size=5))
def test_the_best_is_the_first_of_the_best_finite_numbers(values: dict[str, float]) -> None:
    known = {name: value for name, value in values.items() if math.isfinite(value)}
    for better, choose in (("higher", max), ("lower", min)):
        best: Any = choose(known, key=known.__getitem__) if known else None
        assert Criterion(better=better).best(values) == best  # type: ignore[arg-type]


def test_a_target_is_reached_from_the_side_of_worse_numbers() -> None:
    higher = Criterion(target=0.8)
    lower = Criterion(better="lower", target=0.5)
    none = Criterion(target=None)
    assert [higher.reached(v) for v in (0.8, 0.79, None, math.nan, math.inf)] == [True, *[False] * 4]
    assert [lower.reached(v) for v in (0.5, 0.51, None, math.nan, -math.inf)] == [True, *[False] * 4]
    assert not none.reached(1.0)


@pytest.mark.parametrize(
    ("task", "shape", "labels"),
    [
        (Binary(), (4,), (4,)),
        (Classification(), (4, 3), (4,)),
        (MultiLabel(), (4, 3), (4, 3)),
        (Segmentation(ignored=9), (4, 3, 2, 2), (4, 2, 2)),
        (NextToken(padding=9), (4, 5, 3), (4, 5)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Task) else "",
)
@pytest.mark.parametrize("metric", [Accuracy(), F1(), MeanIoU()], ids=lambda metric: type(metric).__name__)
def test_an_output_that_is_no_number_is_no_prediction(
    task: Task, shape: tuple[int, ...], labels: tuple[int, ...], metric: Metric
) -> None:
    output = torch.zeros(shape)
    y = torch.zeros(labels, dtype=torch.int64)
    output[(0,) * len(shape)] = torch.nan
    assert np.isnan(measured(metric, task, output, y, []))
    if isinstance(task, Segmentation | NextToken):
        y[(0,) * len(labels)] = 9  # it does not count there
        assert measured(metric, task, output, y, []) == 1.0
