"""A model as one flat vector, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Part = str | tuple[str, ...]
"""A slice of the model: "all", "classifier", "extractor", or a tuple of parameter names."""


class Layout:
    """Where each trainable parameter of a module lies in one flat vector `w` of shape `[D]`.

    Parameters keep the order of `module.named_parameters()`. A tied parameter counts once, under its first name;
    frozen parameters (`requires_grad = False`) and buffers stay in the module and out of the vector. The layout
    itself holds no values and no reference to the module.

    Raises `ValueError` if the module has no trainable parameter, if its parameters differ in type, or if it holds
    running statistics (BatchNorm), which a mean over clients or rounds would leave wrong.
    """

    def __init__(self, module: nn.Module) -> None:
        _refuse_batch_norm(module)
        parameters = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not parameters:
            raise ValueError(f"{type(module).__name__} has no trainable parameters: set requires_grad on some of them")
        kinds = {p.dtype for _, p in parameters}
        if len(kinds) > 1 or not next(iter(kinds)).is_floating_point:
            found = ", ".join(sorted(str(kind) for kind in kinds))
            raise ValueError(f"trainable parameters must share one floating-point type, found {found}: use module.to()")
        self.names = tuple(name for name, _ in parameters)
        self.shapes = tuple(p.shape for _, p in parameters)
        self.lengths = tuple(p.numel() for _, p in parameters)
        self.size = sum(self.lengths)
        self.dtype = parameters[0][1].dtype
        self._classifier = _last_linear(module, self.names)

    def parameters(self, module: nn.Module) -> list[nn.Parameter]:
        """The module's parameters in the vector's order."""
        return [module.get_parameter(name) for name in self.names]

    def flatten(self, module: nn.Module) -> Tensor:
        """A fresh vector `[D]` with the values of the module's parameters."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters(module)])

    def views(self, w: Tensor) -> dict[str, Tensor]:
        """Each parameter as a view of `w`: `[..., D]` gives tensors of shape `[..., *shape]`."""
        pieces = torch.split(w, self.lengths, dim=-1)
        lead = w.shape[:-1]
        return {n: piece.view(lead + s) for n, piece, s in zip(self.names, pieces, self.shapes, strict=True)}

    def load(self, module: nn.Module, w: Tensor) -> None:
        """Copy `w` `[D]` into the module's parameters."""
        with torch.no_grad():
            for p, view in zip(self.parameters(module), self.views(w).values(), strict=True):
                p.copy_(view)

    def bind(self, module: nn.Module, w: Tensor) -> None:
        """Make the module's parameters views of `w` `[D]`: from now on a change of one is a change of the other."""
        for p, view in zip(self.parameters(module), self.views(w).values(), strict=True):
            p.data = view

    @contextmanager
    def applied(self, module: nn.Module, w: Tensor) -> Iterator[nn.Module]:
        """The module with the values of `w`, and with its own again afterwards."""
        own = [p.data for p in self.parameters(module)]
        self.bind(module, w)
        try:
            yield module
        finally:
            for p, data in zip(self.parameters(module), own, strict=True):
                p.data = data

    def ranges(self, part: Part) -> list[tuple[int, int]]:
        """The index ranges `[(start, stop), ...]` of a part of the model, adjoining ones merged.

        `"classifier"` is the last linear layer, `"extractor"` everything else, `"all"` the whole vector; a tuple
        names parameters, or modules with all their parameters.
        """
        names = self._members(part)
        ranges: list[tuple[int, int]] = []
        stop = 0
        for name, length in zip(self.names, self.lengths, strict=True):
            start, stop = stop, stop + length
            if name not in names:
                continue
            if ranges and ranges[-1][1] == start:
                ranges[-1] = (ranges[-1][0], stop)
            else:
                ranges.append((start, stop))
        return ranges

    def _members(self, part: Part) -> set[str]:
        if part == "all":
            return set(self.names)
        if part in ("classifier", "extractor"):
            if not self._classifier:
                raise ValueError(f"part = {part!r}: the model has no trainable nn.Linear; name its parameters instead")
            return self._classifier if part == "classifier" else set(self.names) - self._classifier
        asked = (part,) if isinstance(part, str) else tuple(part)
        found = {n for n in self.names for a in asked if n == a or n.startswith(a + ".")}
        unknown = [a for a in asked if not any(n == a or n.startswith(a + ".") for n in self.names)]
        if unknown or not found:
            raise ValueError(f"part = {part!r}: no parameter is called {unknown}; there are {', '.join(self.names)}")
        return found


def _last_linear(module: nn.Module, names: Sequence[str]) -> set[str]:
    """The trainable parameters of the last linear layer (by definition order)."""
    linears = [prefix for prefix, m in module.named_modules() if isinstance(m, nn.Linear)]
    candidates = ({f"{prefix}.{p}".lstrip(".") for p in ("weight", "bias")} & set(names) for prefix in reversed(linears))
    return next((own for own in candidates if own), set())


def _refuse_batch_norm(module: nn.Module) -> None:
    layers = [name or type(module).__name__ for name, m in module.named_modules() if isinstance(m, _BatchNorm)]
    if layers:
        raise ValueError(
            f"BatchNorm keeps running statistics, which a mean of models leaves wrong: {', '.join(layers)}; "
            "convert the model with fedsash.models.group_norm(module, groups=2)"
        )
