"""A page for a colleague: what was run and what came of it, in one HTML file that needs no network."""

from .collect import Analysis, Collection, Run, Sweep, collect
from .document import document

__all__ = ["Analysis", "Collection", "Run", "Sweep", "collect", "document"]
