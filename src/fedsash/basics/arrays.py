"""Type names for common arrays and tensors."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

Objects: TypeAlias = NDArray[np.object_]

Vectors: TypeAlias = dict[str, Tensor]
"""Named tensors: `[D]` (or any shape) at the server; with a first dimension `C` for C clients side by side."""
