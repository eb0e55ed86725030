"""A page for a colleague: settings and results of runs in one HTML file, which needs no network."""

from .collect import Analysis, Collection, RunOnPage, SweepOnPage, collect
from .document import document

__all__ = ["Analysis", "Collection", "RunOnPage", "SweepOnPage", "collect", "document"]
