"""The fixtures of tests that make runs and sweeps."""

from support.lab_fixtures import nothing_is_drawn, plotly_is_packed_once, sweeps_in_threads

__all__ = ["nothing_is_drawn", "plotly_is_packed_once", "sweeps_in_threads"]
