"""How many parameters each model has at the data of its paper.

    python -m benchmarks.models

Each model is built without memory for its values. A model whose library is missing is left out, with a line that says
so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from fedsash.models import MODELS


@dataclass(frozen=True)
class Row:
    """A model as a paper has it."""

    name: str
    shape: tuple[int, ...]
    classes: int
    paper: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        options = ", ".join(f"`{name} = {_toml(value)}`" for name, value in self.options.items())
        shape = " x ".join(map(str, self.shape))
        return f"| `{self.name}` | {options} | {shape} | {self.classes:,} | {self.count():,} | {self.paper} |"

    def count(self) -> int:
        """The number of parameters that train."""
        with torch.device("meta"):
            model = MODELS[self.name](self.shape, self.classes, **self.options)
        return sum(p.numel() for p in model.parameters() if p.requires_grad)


def _toml(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


ROWS = [
    Row("mlp", (64,), 10, ""),
    Row("mlp", (784,), 10, "logistic regression", {"hidden": []}),
    Row("fmnist_cnn", (1, 28, 28), 10, "IMA, Fashion-MNIST"),
    Row("cifar_cnn", (3, 32, 32), 10, "IMA, CIFAR-10"),
    Row("cifar_lenet", (3, 32, 32), 10, "FedSAM, FedSWA, CIFAR-10"),
    Row("lenet5", (1, 28, 28), 10, "FedWindow, MNIST"),
    Row("femnist_cnn", (1, 28, 28), 62, "WiMA, FEMNIST"),
    Row("digit_five_cnn", (3, 28, 28), 10, "IMA, Digit-Five (code)"),
    Row("digit_five_cnn", (3, 28, 28), 10, "IMA, Digit-Five (Table 4)", {"variant": "paper"}),
    Row("alexnet_gn", (3, 224, 224), 7, "IMA, PACS (code)"),
    Row("alexnet_gn", (3, 224, 224), 7, "IMA, PACS (Table 4)", {"variant": "paper"}),
    Row("vgg11_gn", (3, 32, 32), 10, "IMA, CIFAR-10"),
    Row("vgg11_gn", (3, 32, 32), 100, "IMA, CIFAR-100"),
    Row("resnet18_gn", (3, 32, 32), 10, "IMA, CIFAR-10"),
    Row("resnet18_gn", (3, 32, 32), 100, "IMA, CIFAR-100"),
    Row("resnet18_gn", (3, 32, 32), 100, "FedSWA, CIFAR-100", {"variant": "fedswa"}),
    Row("resnet20_gn", (3, 32, 32), 10, "WiMA, CIFAR-10"),
    Row("resnet20_gn", (3, 32, 32), 100, "WiMA, CIFAR-100"),
    Row("mobilenet_v2_gn", (3, 224, 224), 2028, "WiMA, Landmarks"),
    Row("mobilenet_v2_gn", (3, 32, 32), 10, "", {"stride": 1, "width": 0.5}),
    Row("shakespeare_lstm", (80,), 90, "WiMA, Shakespeare"),
    Row("vit", (3, 64, 64), 200, "FedSWA, Tiny-ImageNet"),
    Row("vit", (3, 64, 64), 200, "FedSWA, Tiny-ImageNet, adapters", {"lora_rank": 16}),
]


if __name__ == "__main__":
    print("| model | options | input | classes | parameters | paper |\n|---|---|---|---|---|---|")
    for row in ROWS:
        try:
            print(row)
        except ImportError as error:
            print(error, file=sys.stderr)
