"""What the files of a study are called."""

from __future__ import annotations

from zlib import crc32

import pytest

from fedsash.lab.cli.studies import name_words
from fedsash.lab.studies.averages import AveragesStudy
from fedsash.lab.studies.ensemble import EnsembleStudy
from fedsash.lab.studies.flatness import FlatnessStudy
from fedsash.lab.studies.landscape import LandscapeStudy
from fedsash.lab.studies.study import Study, names_of
from fedsash.lab.studies.window import WindowStudy
from fedsash.lab.studies.window_map import MapStudy


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (EnsembleStudy(), []),
        (EnsembleStudy(rounds=(2, 3)), ["2", "3"]),
        (
            EnsembleStudy(rounds=tuple(range(1, 99)), split="train", seed=3),
            ["1-98", f"98-rounds-{crc32(repr(tuple(range(1, 99))).encode()):08x}", "split-train", "seed-3"],
        ),
        (FlatnessStudy(("model",), samples=None), ["model", "samples-all"]),
        (WindowStudy("w5", round=7), ["w5", "7"]),
        (AveragesStudy(at=100), ["at-100"]),
        (MapStudy(every=50), ["every-50"]),
        (
            FlatnessStudy(("model", "client:3@5", "a/b.safetensors"), rho=(0.05, 0.1)),
            ["model", "client-3-5", f"b-{crc32(repr('a/b.safetensors').encode()):08x}", "rho-0-05-0-1"],
        ),
        (LandscapeStudy(("model",), surface=True, seed=3).parts()[0], ["model", "seed-3"]),
        (LandscapeStudy(("model", "w5"), points=31), ["model", "w5", "points-31"]),
    ],
    ids=str,
)
def test_a_study_s_files_are_called_by_all_that_is_set(study: Study, said: list[str]) -> None:
    """So no study replaces what another one has found."""
    assert name_words(study) == said


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (FlatnessStudy(("x/models/ema.safetensors",)), FlatnessStudy(("y/models/ema.safetensors",))),
        (EnsembleStudy(rounds=(10, 20, 30, 40, 50, 60)), EnsembleStudy(rounds=(10, 12, 14, 16, 18, 60))),
    ],
    ids=["files", "rounds"],
)
def test_abbreviations_of_different_settings_differ(one: Study, other: Study) -> None:
    assert name_words(one) != name_words(other)


def test_models_in_a_picture_have_names_of_their_own() -> None:
    assert names_of(["model", "model.safetensors", "a/ema.safetensors"]) == ["model", "model.safetensors", "ema"]
