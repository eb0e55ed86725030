"""What every sampling refuses."""

from __future__ import annotations

import numpy as np
import pytest

from fedsash.methods.sampling import FixedClients, Function, Poisson, Sampling, Uniform, Weighted


@pytest.mark.parametrize("make", [Uniform, Poisson, Weighted, FixedClients, Function])
def test_every_sampling_refuses_a_dropout_above_one(make: type[Sampling]) -> None:
    first = {Uniform: 4, Poisson: 0.5, Weighted: 4, FixedClients: ((0,),), Function: np.arange}[make]
    with pytest.raises(ValueError, match=rf"{make.__name__}\.dropout = 1\.5"):
        make(first, dropout=1.5)  # type: ignore[call-arg]
