"""A page for a colleague: settings and results of runs in one HTML file, which needs no network."""

from .document import document

__all__ = ["document"]
