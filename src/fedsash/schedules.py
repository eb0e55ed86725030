"""Learning rates by round and by local step."""

from .methods.schedules import Chained, Constant, Cosine, Cyclic, Exponential, Flat, Mild, SawTooth, StepDecay, Warmup

__all__ = [
    "Chained",
    "Constant",
    "Cosine",
    "Cyclic",
    "Exponential",
    "Flat",
    "Mild",
    "SawTooth",
    "StepDecay",
    "Warmup",
]
