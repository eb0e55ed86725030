"""Averages of checkpoints that lie in files: anybody's, of any training."""

from .merge import Merged, merge_checkpoints

__all__ = ["Merged", "merge_checkpoints"]
