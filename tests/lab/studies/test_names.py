"""What the files of a study are called."""

from __future__ import annotations

import pytest

from fedsash.lab.studies.averages import AveragesStudy
from fedsash.lab.studies.ensemble import EnsembleStudy
from fedsash.lab.studies.flatness import FlatnessStudy
from fedsash.lab.studies.landscape.study import LandscapeStudy
from fedsash.lab.studies.study import Study, words
from fedsash.lab.studies.window import WindowStudy
from fedsash.lab.studies.window_map import MapStudy


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (EnsembleStudy(), []),
        (EnsembleStudy(rounds=(2, 3)), ["2", "3"]),
        (
            EnsembleStudy(rounds=tuple(range(1, 99)), split="train", seed=3),
            ["1-98", "98-rounds", "split-train", "seed-3"],
        ),
        (WindowStudy("w5", round=7), ["w5", "7"]),
        (AveragesStudy(at=100), ["at-100"]),
        (MapStudy(every=50), ["every-50"]),
        (
            FlatnessStudy(("model", "client:3@5", "a/b.safetensors"), rho=(0.05, 0.1)),
            ["model", "client-3-5", "b", "rho-0-05-0-1"],
        ),
        (LandscapeStudy(("model",), surface=True, seed=3).parts()[0], ["model", "seed-3"]),
        (LandscapeStudy(("model", "w5"), points=31), ["model", "w5", "points-31"]),
    ],
    ids=str,
)
def test_a_study_s_files_are_called_by_all_that_is_set(study: Study, said: list[str]) -> None:
    """So no study replaces what another one has found."""
    assert words(study) == said
