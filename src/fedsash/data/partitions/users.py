"""Natural clients: every user of the data is a client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from ...settings.errors import check
from ...settings.limits import Count, Remark
from ...vector.arrays import Ints
from ...vector.randomness import Purpose, generator
from .common import NamedPartition


@dataclass(frozen=True)
class Users(NamedPartition, name="users"):
    """Natural users: each user of the data (a writer, a role, a photographer) is a client (Caldas et al. 2018).

    Clients are in the order of the users' numbers.

    It needs each sample's user. Raises `SettingError` if no user has `min_samples` samples.
    """

    min_samples: Count = 1
    """how many samples a user must have; users with fewer are left out"""
    max_users: Annotated[int, Interval(ge=1), Remark(" (leave it out for all users)")] | None = None
    """how many users are used at most; left out: all. They are the first ones in a random order that depends on
    the seed only, so a smaller choice is part of a larger one"""
    by: ClassVar[tuple[str, ...]] = ("user",)

    def __call__(self, user: Ints, seed: int) -> list[Ints]:
        """Each client's indices into `user`, sorted."""
        _, sizes = np.unique(user, return_counts=True)
        right = f"must be at most {sizes.max()}, the most that a user has"
        check(sizes.max() >= self.min_samples, "Users.min_samples", self.min_samples, right)
        large = np.flatnonzero(sizes >= self.min_samples)
        kept = np.sort(generator(seed, Purpose.PARTITION).permutation(large)[: self.max_users])
        parts = np.split(np.argsort(user, kind="stable"), sizes.cumsum()[:-1])
        return [parts[i] for i in kept]
