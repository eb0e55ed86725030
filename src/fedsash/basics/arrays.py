"""Names for the arrays of numbers that are used everywhere."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

Vectors: TypeAlias = dict[str, Tensor]
"""Named tensors: `[D]` (or any shape) at the server, with a leading `C` for the clients of a block."""
