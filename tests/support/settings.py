"""Every class of settings, and the least that each must be given."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from fedsash import Broadcast, Evaluation, LocalTraining
from fedsash.lab.config import Experiment, NetworkExperiment
from fedsash.lab.config.registries import REGISTRIES
from fedsash.methods.sampling import FixedClients, Uniform
from fedsash.methods.schedules import Constant
from fedsash.settings.setting import hints_of

REGISTERED = {make for room in REGISTRIES.values() for make in room.things.values() if is_dataclass(make)}
SETTINGS = sorted(
    REGISTERED | {LocalTraining, Broadcast, Evaluation, Experiment, NetworkExperiment}, key=lambda cls: cls.__name__
)


def minimal(cls: Any) -> dict[str, Any]:
    """Values for the fields that have no default."""
    by_name = {
        "clients": 4,
        "clients_per_domain": 2,
        "rounds": 3,
        "path": "x",
        "function": "support.experiments:broken",
        "label": "y",
        "metric": "classification.BinaryAUROC",
        "schedules": (Constant(),),
    }
    needed = [f for f in fields(cls) if f.init and f.default is MISSING and f.default_factory is MISSING]
    known = by_name | ({"rounds": ((0,),)} if cls is FixedClients else {}) | {"partitioner": "x", "average": "w"}
    return {f.name: known.get(f.name, 0.5 if hints_of(cls)[f.name] is float else 1) for f in needed} | (
        {"count": 2} if cls is Uniform else {}
    )
