"""Sweeps: many runs from one file. Rounds that several runs share are trained once."""

from .axes import PlannedRun, Sweep, all_or, load, parse
from .execute import check_same, execute
from .foreman import SweepReport
from .plan import Leg, Plan, plan

__all__ = [
    "Leg",
    "Plan",
    "PlannedRun",
    "Sweep",
    "SweepReport",
    "all_or",
    "check_same",
    "execute",
    "load",
    "parse",
    "plan",
]
