"""The progress of a run: a bar on a terminal or in a notebook, otherwise a line from time to time."""

from .progress import Progress

__all__ = ["Progress"]
