"""Which clients take part in a round."""

from .methods.sampling import FixedClients, Function, Poisson, Uniform, Weighted

__all__ = [
    "FixedClients",
    "Function",
    "Poisson",
    "Uniform",
    "Weighted",
]
