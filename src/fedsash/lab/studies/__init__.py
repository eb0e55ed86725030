"""Studies of finished runs. Each is a command; it writes its findings to a file and shows them as table and picture."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...settings.errors import check_choice

if TYPE_CHECKING:
    from ...runs.pictures import Picture
    from .study import Study


@dataclass(frozen=True)
class Entry:
    """The place of a study's class, `"package.module:Class"`, one line about it, and its kinds of findings."""

    place: str
    summary: str
    kinds: tuple[str, ...]

    def study(self) -> type[Study]:
        """The study's class. Its module is imported now."""
        study: type[Study] = pkgutil.resolve_name(self.place)
        return study


STUDIES = {
    "landscape": Entry(
        f"{__name__}.landscape:LandscapeStudy",
        "loss and error along a line, in a plane, around a model",
        ("line", "plane", "surface"),
    ),
    "decompose": Entry(
        f"{__name__}.decomposition:DecompositionStudy",
        "bias, variance and covariance of the clients' models",
        ("decomposition",),
    ),
    "ensemble": Entry(
        f"{__name__}.ensemble:EnsembleStudy",
        "the mean of 1, 2, ... client models, beside the ensemble of their answers",
        ("ensemble",),
    ),
    "variance": Entry(
        f"{__name__}.variance:VarianceStudy",
        "variance and covariance of 1, 2, ... client models, and their bounds",
        ("variance",),
    ),
    "flatness": Entry(
        f"{__name__}.flatness:FlatnessStudy",
        "the Hessian's largest eigenvalues, and sharpness",
        ("flatness",),
    ),
    "window": Entry(
        f"{__name__}.window:WindowStudy",
        "the weight of every round and client in a window's mean",
        ("window",),
    ),
    "coverage": Entry(
        f"{__name__}.coverage:CoverageStudy",
        "the share of the samples that the rounds in a window have seen",
        ("coverage",),
    ),
    "average": Entry(
        f"{__name__}.averages:AveragesStudy",
        "any window or EMA of a finished run",
        ("averages",),
    ),
    "map": Entry(
        f"{__name__}.window_map:MapStudy",
        "every window of a finished run, by its size and its end",
        ("map",),
    ),
    "bound": Entry(
        f"{__name__}.bound:BoundStudy",
        "FedWindow's bound on the gradient's norms, beside them",
        ("bound",),
    ),
}
"""The studies by their commands, in the order of the page. A module is imported when it is used."""


def kinds() -> dict[str, Entry]:
    """The study of each kind of findings, in the order of the page."""
    entries = {}
    for entry in STUDIES.values():
        for kind in entry.kinds:
            entries[kind] = entry
    return entries


def study_of(findings: Mapping[str, Any]) -> type[Study]:
    """The study that made these findings. Raises `ValueError` if no study has this kind of findings."""
    entries = kinds()
    check_choice("kind", str(findings.get("kind")), *entries)
    return entries[findings["kind"]].study()


def pictures(all_findings: Sequence[Mapping[str, Any]]) -> list[Picture]:
    """The pictures of findings that are shown together. Pictures of one kind have the same colour scales."""
    from ...runs.pictures.scales import common

    drawn = [study_of(findings).picture(findings) for findings in all_findings]
    places: dict[str, list[int]] = {}
    for place, findings in enumerate(all_findings):
        places.setdefault(findings["kind"], []).append(place)
    for places_of_kind in places.values():
        scaled = common([drawn[place] for place in places_of_kind])
        for place, picture in zip(places_of_kind, scaled, strict=True):
            drawn[place] = picture
    return drawn
