"""All networks of timm and torchvision, by their names there."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from torch import nn
from typing_extensions import Doc

from ..settings.errors import SettingError, check, library, one_line
from .parts import group_norm, image

LIBRARIES = ("timm", "torchvision")
PICKLES = ("checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay")
"""Options that make timm read a file of any origin as a pickle, which can run code."""


def is_of_library(name: str) -> bool:
    """Whether a name is that of another library's network, such as `"timm:resnet18"`."""
    library_name, colon, _ = name.partition(":")
    return colon == ":" and library_name in LIBRARIES


def library_model(name: str) -> Callable[..., nn.Module]:
    """The function that builds the network `name`: `"timm:NETWORK"` or `"torchvision:NETWORK"`.

    Weights come from the library itself: networks of other origins (`"timm:hf-hub:..."`) raise `SettingError`.
    """
    library_name, _, network = name.partition(":")
    is_name = re.fullmatch(r"[\w.-]+", network) is not None
    check(is_name, "model.name", name, f"must be {library_name}:NETWORK, by its name there")

    def make(
        shape: Sequence[int],
        classes: int,
        groups: Annotated[int, Doc("how many groups GroupNorm has; 0: the network keeps its BatchNorm")] = 2,
        **options: Any,
    ) -> nn.Module:
        """A network of timm or torchvision, with GroupNorm in place of BatchNorm.

        All options but `groups` are those of the library. The number of classes is that of the data. timm's networks
        take the channels of the data, torchvision's only three channels. timm replaces the classifier of a network that
        is `pretrained`. Raises `LibraryError` if the library is missing, and `SettingError` if it refuses the name or
        the options.
        """
        channels, _, _ = image(name, shape, smallest=1)
        for option in PICKLES:
            requirement = "is not taken: it reads a file that can run code; load such weights in Python"
            check(option not in options, f"model.{option}", options.get(option), requirement)
        if library_name == "timm":
            with library("timm", f"the model {name}", "timm"):
                from timm import create_model as create
            options = {"in_chans": channels} | options
        else:
            check(channels == 3, f"{name}: channels of one input", channels, "must be 3")
            with library("torchvision", f"the model {name}", "torchvision"):
                from torchvision.models import get_model as create
        try:
            module: nn.Module = create(network, num_classes=classes, **options)
        except (RuntimeError, ValueError, TypeError, OSError) as error:
            raise SettingError("", "model.name", name, one_line(error)) from error
        if groups == 0:
            return module
        return group_norm(module, groups)

    return make
