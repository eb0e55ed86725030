"""Sweeps: many runs from one file. Rounds that several runs share are trained once."""

from .axes import PlannedRun, Sweep, all_or, load, parse
from .execute import check_same, execute
from .plan import Plan, Segment, plan
from .scheduling import SweepReport

__all__ = [
    "Plan",
    "PlannedRun",
    "Segment",
    "Sweep",
    "SweepReport",
    "all_or",
    "check_same",
    "execute",
    "load",
    "parse",
    "plan",
]
