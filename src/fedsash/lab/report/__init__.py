"""What people see of a run: its progress, its table, its picture."""

from .curves import curves
from .progress import Progress
from .table import table

__all__ = ["Progress", "curves", "table"]
