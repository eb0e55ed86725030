"""Studies of finished runs: each is asked on the command line, written down, and shown as a table and as a picture."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...basics.errors import check_choice

if TYPE_CHECKING:
    from ..pictures import Picture
    from .study import Study


@dataclass(frozen=True)
class Entry:
    """Where a study's class is, `"package.module:Class"`, and what it shows, in a line."""

    place: str
    summary: str

    def study(self) -> type[Study]:
        """The class; its module is imported now."""
        found: type[Study] = pkgutil.resolve_name(self.place)
        return found


STUDIES = {
    "landscape": Entry(
        f"{__name__}.landscape.study:LandscapeStudy", "loss and error along a line, in a plane, around a model"
    ),
    "decompose": Entry(
        f"{__name__}.decomposition:DecompositionStudy", "bias, variance and covariance of the clients' models"
    ),
    "flatness": Entry(f"{__name__}.flatness:FlatnessStudy", "the Hessian's largest eigenvalues, and sharpness"),
    "window": Entry(f"{__name__}.window:WindowStudy", "the weight of every round and client in a window's mean"),
    "average": Entry(f"{__name__}.averages:AveragesStudy", "any window or EMA of a run, after the fact"),
}
"""The studies by their commands, in the order in which they are shown. A module is imported when it is used."""


def kinds() -> dict[str, type[Study]]:
    """The study of each kind of finding, in the order in which they are shown."""
    studies = [entry.study() for entry in STUDIES.values()]
    return {kind: study for study in studies for kind in study.kinds}


def study_of(found: Mapping[str, Any]) -> type[Study]:
    """The study that found this. Raises `ValueError` if there is none of its kind."""
    known = kinds()
    check_choice("kind", str(found.get("kind")), *known)
    return known[found["kind"]]


def pictures(findings: Sequence[Mapping[str, Any]]) -> list[Picture]:
    """The pictures of findings that are shown together: those of one kind have the same scales of colours."""
    from ..pictures.scales import common

    drawn = [study_of(found).picture(found) for found in findings]
    for kind in {found["kind"] for found in findings}:
        alike = [i for i, found in enumerate(findings) if found["kind"] == kind]
        for i, picture in zip(alike, common([drawn[i] for i in alike]), strict=True):
            drawn[i] = picture
    return drawn
