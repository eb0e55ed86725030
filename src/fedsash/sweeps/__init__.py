"""Many runs from one file, with every round that several of them have in common trained once."""

from .axes import Planned, Sweep, load, parse
from .execute import Executed, execute
from .plan import Leg, Plan, plan

__all__ = ["Executed", "Leg", "Plan", "Planned", "Sweep", "execute", "load", "parse", "plan"]
