"""The rules of the study of a window's width, and the regret by which they are judged."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.width.judge import DRAWS, PRIMARY, Ending, corrected, interval, table
from benchmarks.width.rules import Trail, by_mser, by_variogram, drift_and_noise

SIZES = np.arange(1, 21)


def test_the_variogram_is_the_mean_squared_distance_over_the_last_half() -> None:
    sketch = np.random.default_rng(0).normal(size=(41, 7)).cumsum(axis=0)
    values = Trail(sketch).variogram
    assert len(values) == 21
    for lag in range(21):
        distances = [np.square(sketch[i] - sketch[i - lag]).sum() for i in range(21, 41)]
        assert values[lag] == pytest.approx(np.mean(distances), abs=1e-11)


def test_without_noise_the_drift_is_the_distance_of_the_mean_from_the_newest_model() -> None:
    sketch = np.outer(np.arange(40.0), [3.0, 4.0])  # it moves by 5 in each round
    drift, noise = drift_and_noise(Trail(sketch).variogram, 0.0)
    means = [sketch[-size:].mean(axis=0) for size in SIZES]
    assert drift == pytest.approx([np.square(mean - sketch[-1]).sum() for mean in means])
    assert drift == pytest.approx(25 * (SIZES - 1) ** 2 / 4)
    assert not noise.any()


def test_noise_without_memory_is_no_drift() -> None:
    variance = 0.3
    values = np.full(21, 2 * variance)
    values[0] = 0.0
    drift, noise = drift_and_noise(values, variance)
    assert drift == pytest.approx(np.zeros(20), abs=1e-15)
    assert noise == pytest.approx(variance / SIZES)


def test_rules_take_few_models_of_a_drift_and_many_of_noise() -> None:
    moving = Trail(np.outer(np.arange(40.0), np.ones(3)))
    still = Trail(np.random.default_rng(0).normal(size=(400, 50)))
    assert by_variogram(1.0, 1.0)(moving) <= 2
    assert by_variogram(1.0, 1.0)(still) > 100
    assert by_mser(still) > 300


def test_mser_sees_all_layers() -> None:
    """The first coordinates stand still; the last ones stop to move after a third of the rounds."""
    still = np.zeros((60, 256))
    moving = np.minimum(np.arange(60), 20)[:, None] * np.ones((1, 256))
    assert by_mser(Trail(np.hstack([still, moving]))) == 40


def test_a_half_s_best_window_is_scored_on_the_other_half() -> None:
    accuracies = np.array([[0.5, 0.6], [0.9, 0.7], [0.8, 0.8]])
    ending = Ending({}, Trail(np.zeros((3, 1))), np.array([1, 2, 3]), accuracies, np.array([3, 1]))
    assert ending.oracle == pytest.approx((0.7 + 0.8) / 2)
    assert ending.regret(2) == pytest.approx(100 * (0.75 - 0.8))
    assert ending.two_tailed_regret() == pytest.approx(100 * (0.75 - (0.8 + 0.5) / 2))


def test_no_draw_of_clusters_on_the_other_side_is_a_small_p_and_no_difference_is_none() -> None:
    low, high, p = interval(np.linspace(0.1, 0.3, 15))
    assert 0.1 < low < 0.2 < high < 0.3
    assert p == pytest.approx(2 / (DRAWS + 1))
    assert interval(np.zeros(15)) == (0.0, 0.0, 1.0)


def test_only_secondary_rules_are_corrected() -> None:
    assert corrected({PRIMARY: 0.04, "one": 0.04, "other": 0.01}) == {PRIMARY: 0.04, "one": 0.04, "other": 0.02}


def test_few_clusters_have_their_range_and_no_p() -> None:
    endings = []
    for number, method in enumerate(("FedAvg", "FedAvgM", "FedProx")):
        labels = {"data": "cifar10", "skew": "IID", "method": method}
        accuracies = np.full((10, 2), 0.5)
        accuracies[1] = 0.6 + 0.1 * number  # a fifth of ten rounds
        sketch = np.random.default_rng(number).normal(size=(10, 16))
        endings.append(Ending(labels, Trail(sketch), np.arange(1, 11), accuracies, np.array([2, 2])))
    lines = list(table(endings))
    assert "3 clusters" in lines[0] and "95 %" not in lines[0]
    assert "| the model, W = 1 | 20.00 | +20.00 | +10.00 to +30.00 |  |" in lines
    assert "| two-tailed, held-out data | 0.00 | +0.00 | +0.00 to +0.00 |  |" in lines
