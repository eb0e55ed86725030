"""The papers' networks, by name, and any function that returns an `nn.Module`.

A registered model is a callable `model(shape, classes, **options)`: `shape` is the shape of one input, without the
batch. Each has two children, `features` and `classifier`; the classifier is the last linear layer. `"timm:NETWORK"` and
`"torchvision:NETWORK"` name whatever those libraries have.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from ..basics.errors import SettingError, check
from ..basics.private_torch import batch_norms
from ..basics.randomness import Purpose, key
from ..basics.resolve import resolve
from .alexnet import alexnet_gn
from .cnn import cifar_cnn, cifar_lenet, fmnist_cnn, lenet5
from .digits import digit_five_cnn
from .femnist import femnist_cnn
from .libraries import is_outside, outside
from .lstm import shakespeare_lstm
from .mlp import MLP
from .mobilenet import mobilenet_v2_gn
from .norm import group_norm
from .resnet import resnet18_gn, resnet20_gn
from .transformer import vit
from .vgg import vgg11_gn

__all__ = [
    "MLP",
    "MODELS",
    "alexnet_gn",
    "batch_norms",
    "build",
    "cifar_cnn",
    "cifar_lenet",
    "digit_five_cnn",
    "femnist_cnn",
    "find_model",
    "fmnist_cnn",
    "group_norm",
    "is_own",
    "lenet5",
    "mobilenet_v2_gn",
    "resnet18_gn",
    "resnet20_gn",
    "vgg11_gn",
    "vit",
]

MakeModel = Callable[..., nn.Module]


MODELS: dict[str, MakeModel] = {
    "mlp": MLP,
    "fmnist_cnn": fmnist_cnn,
    "cifar_cnn": cifar_cnn,
    "cifar_lenet": cifar_lenet,
    "lenet5": lenet5,
    "femnist_cnn": femnist_cnn,
    "digit_five_cnn": digit_five_cnn,
    "alexnet_gn": alexnet_gn,
    "vgg11_gn": vgg11_gn,
    "resnet18_gn": resnet18_gn,
    "resnet20_gn": resnet20_gn,
    "shakespeare_lstm": shakespeare_lstm,
    "mobilenet_v2_gn": mobilenet_v2_gn,
    "vit": vit,
}
"""The library's own, by name."""


def build(name: str, options: Mapping[str, Any], *, shape: Sequence[int], classes: int, seed: int) -> nn.Module:
    """The model `name`, on the CPU, its initial values a pure function of `seed`.

    What `find_model` gives is called with `shape`, `classes` and the options; a user's own function, which may be any
    callable that returns an `nn.Module`, with the options alone. Initialisation draws from PyTorch's CPU generator,
    which is seeded for it and put back afterwards.

    Raises `LibraryError` for a library that is missing, and `SettingError` for a name that is not known or can't be
    imported, for options that don't fit, for a shape that the model can't take and for a result that is no `nn.Module`.
    """
    make = find_model(name) if is_own(name) else partial(find_model(name), shape, classes)
    signature = inspect.signature(make)
    try:
        signature.bind(**options)
    except TypeError as error:
        its = ", ".join(signature.parameters) or "none"
        raise SettingError("", "model.name", name, f"{error}; its options are {its}") from None
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(key(seed, Purpose.MODEL))
        model = make(**options)
    check(
        isinstance(model, nn.Module), "model.name", name, f"must return an nn.Module, returned {type(model).__name__}"
    )
    return model


def find_model(name: str) -> MakeModel:
    """The function that makes the models of a name: `model(shape, classes, **options)`, or a user's own.

    Raises `SettingError` for a name that is neither registered, nor another library's, nor can be imported.
    """
    if name in MODELS:
        return MODELS[name]
    if is_outside(name):
        return outside(name)
    close = "".join(f"; did you mean {match!r}?" for match in difflib.get_close_matches(name, MODELS, n=1))
    check(":" in name, "model.name", name, f"must be one of {', '.join(MODELS)} or 'package.module:function'{close}")
    make: MakeModel = resolve(name, field="model.name")
    check(callable(make), "model.name", name, "must be a function that returns an nn.Module")
    return make


def is_own(name: str) -> bool:
    """Whether a name is that of a user's function, which is called with the options alone."""
    return ":" in name and not is_outside(name)
