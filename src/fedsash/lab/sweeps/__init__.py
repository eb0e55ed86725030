"""Many runs from one file, with every round that several of them have in common trained once."""

from .axes import Planned, Sweep, load, parse
from .execute import Executed, check_same, execute
from .plan import Leg, Plan, plan

__all__ = ["Executed", "Leg", "Plan", "Planned", "Sweep", "check_same", "execute", "load", "parse", "plan"]
