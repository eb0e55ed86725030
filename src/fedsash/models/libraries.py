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


def is_outside(name: str) -> bool:
    """Whether a name is that of another library's network, such as `"timm:resnet18"`."""
    source, colon, _ = name.partition(":")
    return bool(colon) and source in LIBRARIES


def outside(name: str) -> Callable[..., nn.Module]:
    """The function that builds the network `name`: `"timm:NETWORK"` or `"torchvision:NETWORK"`.

    Weights come from the library itself: networks of other origins (`"timm:hf-hub:..."`) raise `SettingError`.
    """
    source, _, network = name.partition(":")
    check(bool(re.fullmatch(r"[\w.-]+", network)), "model.name", name, f"must be {source}:NETWORK, by its name there")

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
            right = "is not taken: it reads a file that can run code; load such weights in Python"
            check(option not in options, f"model.{option}", options.get(option), right)
        if source == "timm":
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
        return group_norm(module, groups) if groups else module

    return make
