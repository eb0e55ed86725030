"""Trains runs, and writes down the accuracy of every trailing window of each, with a sketch of its models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsash.evaluation.scorer import Scorer
from fedsash.lab.config import Experiment
from fedsash.server.federation import Federation
from fedsash.system.files import replace_file
from fedsash.vector.arrays import Floats, Ints

SKETCH = 2048
"""The coordinates of a model that a rule sees, drawn once for each size of model."""
ENDS = (0.25, 0.5, 0.75, 1.0)
"""The shares of the rounds after which every trailing window is judged."""
TWO_TAILED_STEPS = 50
"""In how many evaluations of a run two-tailed averaging may switch."""
ALL_SIZES_UP_TO = 20
GROWTH = 1.08


def sizes_up_to(end: int, every: bool) -> list[int]:
    """The sizes of the windows that are judged: all up to `end`, or above 20 each 8 % more than the last."""
    if every:
        return list(range(1, end + 1))
    sizes = list(range(1, min(end, ALL_SIZES_UP_TO) + 1))
    while sizes[-1] < end:
        larger = max(sizes[-1] + 1, round(sizes[-1] * GROWTH))
        sizes.append(min(larger, end))
    return sizes


class HalvedTest:
    """The test set in two random halves of the same size; what one half chooses is scored on the other."""

    def __init__(self, federation: Federation) -> None:
        data = federation.training_data
        assert data.test is not None
        self._samples = data.test
        order = np.random.default_rng(0).permutation(len(self._samples))
        middle = len(order) // 2
        self._halves: list[Ints] = [np.sort(order[:middle]), np.sort(order[middle:])]
        self._scorer = Scorer(federation.module, federation.layout, federation.goal, data.problem, 1000)

    def accuracies(self, w: Tensor) -> Floats:
        """The accuracies of the model `w` `[D]` on the two halves, `[2]`."""
        scores = self._scorer.scores(w, self._samples, self._halves)
        sums = scores["accuracy"]
        return np.asarray(sums[:, 0] / sums[:, 1])


class TwoTailed:
    """Two-tailed averaging (Melis 2022) with held-out data: the longer of two averages gives the width.

    Both averages end with the newest model. Where the shorter one is at least as good as the longer one, the longer one
    is dropped, the shorter one takes its place, and a new one begins.
    """

    def __init__(self) -> None:
        self._long_start = 0
        self._short_start = 0

    def step(self, end: int, accuracy_of: WindowAccuracy, half: int) -> None:
        short = accuracy_of(end - self._short_start)[half]
        long = accuracy_of(end - self._long_start)[half]
        if short >= long:
            self._long_start = self._short_start
            self._short_start = end

    def size(self, end: int) -> int:
        return end - self._long_start


class WindowAccuracy:
    """The accuracies of the windows that end with the newest model, each found once."""

    def __init__(self, sums: Sequence[Tensor], test: HalvedTest, dtype: torch.dtype) -> None:
        self._sums = sums
        self._test = test
        self._dtype = dtype
        self._known: dict[int, Floats] = {}

    def __call__(self, size: int) -> Floats:
        if size not in self._known:
            total = self._sums[-1] - self._sums[-1 - size]
            self._known[size] = self._test.accuracies((total / size).to(self._dtype))
        return self._known[size]


@dataclass(frozen=True, eq=False)
class Recording:
    """A run: the sketches `[T, k]` of its models, and by end the windows' sizes `[n]` and accuracies `[n, 2]`."""

    labels: dict[str, str]
    sketch: Floats
    ends: list[int]
    sizes: list[Ints]
    accuracies: list[Floats]
    two_tailed: list[Ints]

    def write(self, path: Path) -> None:
        arrays: dict[str, Any] = {"sketch": self.sketch.astype(np.float32), "ends": self.ends}
        for name, label in self.labels.items():
            arrays[f"label.{name}"] = label
        for end, sizes, values, chosen in zip(self.ends, self.sizes, self.accuracies, self.two_tailed, strict=True):
            arrays[f"sizes.{end}"] = sizes
            arrays[f"accuracies.{end}"] = values
            arrays[f"two_tailed.{end}"] = chosen
        content = BytesIO()
        np.savez_compressed(content, **arrays)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content.getvalue())

    @classmethod
    def read(cls, path: Path) -> Recording:
        with np.load(path) as arrays:
            ends = [int(end) for end in arrays["ends"]]
            labels = {}
            for key in arrays.files:
                if key.startswith("label."):
                    labels[key.removeprefix("label.")] = str(arrays[key])
            return cls(
                labels,
                arrays["sketch"].astype(np.float64),
                ends,
                [arrays[f"sizes.{end}"] for end in ends],
                [arrays[f"accuracies.{end}"] for end in ends],
                [arrays[f"two_tailed.{end}"] for end in ends],
            )


def record(experiment: Experiment, labels: dict[str, str], every_size: bool) -> Recording:
    """Train an experiment; after each of the `ENDS` every trailing window is judged."""
    federation = experiment.federation()
    test = HalvedTest(federation)
    state = federation.start()
    rounds = experiment.rounds
    coordinates = _coordinates(len(state.w))
    ends = [round(share * rounds) for share in ENDS]
    steps = {round(step * rounds / TWO_TAILED_STEPS) for step in range(1, TWO_TAILED_STEPS + 1)}
    two_tailed = [TwoTailed(), TwoTailed()]
    recording = Recording(labels, np.empty((rounds, len(coordinates))), ends, [], [], [])
    sums = [torch.zeros(len(state.w), dtype=torch.float64)]
    for end in range(1, rounds + 1):
        state, _ = federation.round(state)
        recording.sketch[end - 1] = state.w[coordinates].numpy()
        sums.append(sums[-1] + state.w)
        accuracy_of = WindowAccuracy(sums, test, state.w.dtype)
        if end in steps:
            for half, average in enumerate(two_tailed):
                average.step(end, accuracy_of, half)
        if end in ends:
            sizes = sizes_up_to(end, every_size)
            recording.sizes.append(np.array(sizes))
            recording.accuracies.append(np.stack([accuracy_of(size) for size in sizes]))
            recording.two_tailed.append(np.array([average.size(end) for average in two_tailed]))
    return recording


def _coordinates(length: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randperm(length, generator=generator)[:SKETCH].sort().values


def recordings(folder: Path) -> Iterator[Recording]:
    """All recordings of a folder, by name."""
    for path in sorted(folder.glob("*.npz")):
        yield Recording.read(path)
