"""Averages around any strategy of a Flower app."""

from ...settings.errors import library

with library("flwr", "fedsash.flower", "fedsash[flower]"):
    import flwr.serverapp.strategy  # noqa: F401  # what all modules of this room need
