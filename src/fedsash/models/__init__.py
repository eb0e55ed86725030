"""The papers' networks by name, networks of other libraries, and users' own functions that return an `nn.Module`.

A registered model is a callable `model(shape, classes, **options)`. `shape` is the shape of one input without the
batch. Each network has two children, `features` and `classifier`; the classifier is the last linear layer.
`"timm:NETWORK"` and `"torchvision:NETWORK"` are the networks of those libraries.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from ..settings.errors import ModelError, SettingError, check, one_line, shortened
from ..settings.resolve import resolve
from ..vector.norms import batch_norms
from ..vector.private_torch import seed_cpu
from ..vector.randomness import Purpose, key
from ..vector.storage import free
from .convolutional import alexnet_gn, cifar_cnn, cifar_lenet, digit_five_cnn, femnist_cnn, fmnist_cnn, lenet5, vgg11_gn
from .libraries import is_of_library, library_model
from .lstm import shakespeare_lstm
from .mlp import MLP
from .mobilenet import mobilenet_v2_gn
from .parts import group_norm
from .resnet import resnet18_gn, resnet20_gn
from .transformer import vit

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
    "shakespeare_lstm",
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
"""The registered models by name."""
LARGE = 4096
"""A registered model whose whole numbers add up to so much is checked to fit into memory before it is made."""
LARGE_FACTOR = 8
"""So is one with an option above this that is no whole number: a factor of its widths."""


def build(name: str, options: Mapping[str, Any], *, shape: Sequence[int], classes: int, seed: int) -> nn.Module:
    """The model `name` on the CPU. Its initial values are a pure function of `seed`.

    The function that `find_model` returns is called with `shape`, `classes` and the options. A user's own function is
    called with the options only. Initialisation draws from PyTorch's CPU generator, which is seeded before and restored
    afterwards.

    Raises `ModelError` if the model can't be made with its options or does not fit into memory, and `LibraryError` if a
    library is missing. Raises `SettingError` if the name is unknown or can't be imported, if options or shape do not
    fit the model, or if the result is not an `nn.Module`.
    """
    make = find_model(name)
    if not is_own(name):
        make = partial(make, shape, classes)
    signature = inspect.signature(make)
    try:
        signature.bind(**options)
    except TypeError as error:
        known = ", ".join(signature.parameters) or "none"
        raise SettingError("", "model.name", name, f"{error}; its options are {known}") from None
    make = partial(make, **options)
    if name in MODELS:
        if _is_large(options):
            _check_size(name, make)
        make = partial(_made, name, make)
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        seed_cpu(key(seed, Purpose.MODEL))
        model = make()
    requirement = f"must return an nn.Module, returned {type(model).__name__}"
    check(isinstance(model, nn.Module), "model.name", name, requirement)
    return model


def _is_large(options: Mapping[str, Any]) -> bool:
    """Whether the numbers in the options are so large that the model may not fit into memory."""
    numbers: list[Any] = []
    for value in options.values():
        if isinstance(value, list | tuple):
            numbers += value
        else:
            numbers.append(value)
    total = sum(number for number in numbers if isinstance(number, int))
    largest_factor = max((number for number in numbers if isinstance(number, float)), default=0.0)
    return total >= LARGE or largest_factor > LARGE_FACTOR


def _made(name: str, make: Callable[[], nn.Module]) -> nn.Module:
    """A registered model. Raises `ModelError` for options of other types, and for sizes that no machine has."""
    try:
        return make()
    except (RuntimeError, OverflowError, TypeError) as error:
        raise ModelError(f"{name} can't be made with these options: {shortened(one_line(error), 200)}") from error


def _check_size(name: str, make: Callable[[], nn.Module]) -> None:
    """Raise `ModelError` if the model doesn't fit into memory. It is made without numbers first."""
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        model = _made(name, make)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    room = free(torch.device("cpu"))
    if size > room:
        raise ModelError(f"{name} with these options takes {size / 1e9:,.1f} GB, and {room / 1e9:,.1f} GB are free")


def find_model(name: str) -> MakeModel:
    """The function that builds the model `name`: `model(shape, classes, **options)`, or a user's own function or class.

    Raises `SettingError` if the name is not registered, not one of another library, and no function or class of modules
    that may be named (see `settings.resolve`).
    """
    if name in MODELS:
        return MODELS[name]
    if is_of_library(name):
        return library_model(name)
    matches = difflib.get_close_matches(name, MODELS, n=1)
    hint = f"; did you mean {matches[0]!r}?" if matches else ""
    check(":" in name, "model.name", name, f"must be one of {', '.join(MODELS)} or 'package.module:function'{hint}")
    make: Any = resolve(name, field="model.name")
    requirement = "must be a function that returns an nn.Module, or a class that extends nn.Module"
    check(not isinstance(make, type) or issubclass(make, nn.Module), "model.name", name, requirement)
    return make  # type: ignore[no-any-return]


def is_own(name: str) -> bool:
    """Whether a name is that of a user's function, which is called with the options only."""
    return ":" in name and not is_of_library(name)
