"""A page for a colleague: what was run and what came of it, in one HTML file that needs no network."""

from .collect import Analysis, Collection, RunOnPage, SweepOnPage, collect
from .document import document

__all__ = ["Analysis", "Collection", "RunOnPage", "SweepOnPage", "collect", "document"]
