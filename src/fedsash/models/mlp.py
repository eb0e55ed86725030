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
        are_widths = isinstance(hidden, list | tuple) and all(type(width) is int and width > 0 for width in hidden)
        check(are_widths, "mlp.hidden", hidden, "must be a list of positive integers")
        widths = (math.prod(shape), *hidden)
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        features = nn.Sequential(*layers)
        super().__init__(OrderedDict(features=features, classifier=nn.Linear(widths[-1], classes)))
