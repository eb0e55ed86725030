"""Analyses of finished runs: each opens run folders and leaves `RUN/analyses/NAME.json`."""

from .opened import Opened, Progress, open_run, write

__all__ = ["Opened", "Progress", "open_run", "write"]
