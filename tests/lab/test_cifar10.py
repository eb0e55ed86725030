"""The published effect on the published data: a window over FedAvg's models beats the model."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fedsash as fs
from fedsash import models
from fedsash.data import Images, Shards
from fedsash.methods.sampling import Uniform


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_window_beats_the_model_on_cifar10_with_two_classes_a_client() -> None:
    if "FEDSASH_DATA" not in os.environ:
        pytest.skip("FEDSASH_DATA names no folder with cifar10/")
    images = Images(
        path=str(Path(os.environ["FEDSASH_DATA"]) / "cifar10"), mean=(0.491, 0.482, 0.447), std=(0.247, 0.243, 0.262)
    )
    federation = fs.Federation(
        models.build("cifar_cnn", {}, shape=(3, 32, 32), classes=10, seed=0),
        images.load().partition(Shards(clients=100, classes=2), seed=1),
        local=fs.LocalTraining(lr=0.01, optimiser=fs.SGD(momentum=0.9, weight_decay=1e-3), batch=50, epochs=1),
        sampling=Uniform(10),
        averages={"wima": fs.Window(10)},
        evaluation=fs.Evaluation(every=80, last=8),
        seed=0,
    )
    found = fs.run(federation, rounds=80, progress=False).summary["models"]
    # The window's accuracy is higher, and moves less from round to round.
    assert found["wima"]["last_mean"] > found["model"]["last_mean"] + 0.02
    assert found["wima"]["last_std"] < found["model"]["last_std"]
