"""The multi-layer perceptron."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

from torch import nn
from typing_extensions import Doc

from ..settings.errors import check


class MLP(nn.Sequential):
    """Multi-layer perceptron with ReLU for inputs of any shape, which are flattened.

    The number of inputs is the product of `shape`. PyTorch's default initialisation.

    Raises `SettingError` if a width is not a positive integer.
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        hidden: Annotated[
            Sequence[int],
            Doc("the widths of the hidden layers; without any it is a linear model, such as logistic regression"),
        ] = (64,),
    ) -> None:
        valid = isinstance(hidden, list | tuple) and all(type(width) is int and width > 0 for width in hidden)
        check(valid, "mlp.hidden", hidden, "must be a list of positive integers")
        widths = (math.prod(shape), *hidden)
        layers = [layer for fan_in, out in pairwise(widths) for layer in (nn.Linear(fan_in, out), nn.ReLU())]
        features = nn.Sequential(nn.Flatten(), *layers)
        super().__init__(OrderedDict(features=features, classifier=nn.Linear(widths[-1], classes)))
