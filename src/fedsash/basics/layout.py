"""A model as one flat vector, and back."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from .errors import ModelError, SettingError, brief, shortened
from .private_torch import batch_norms, point

ModelSlice = str | tuple[str, ...]
"""A slice of the model: `"all"`, `"classifier"`, `"extractor"`, or names of parameters or modules (see `ranges`)."""


class Layout:
    """The position of each trainable parameter of a module in one flat vector `w` `[D]`.

    Parameters have the order of `module.named_parameters()`. A tied parameter counts once, under its first name. Frozen
    parameters (`requires_grad = False`) and buffers are not part of the vector. `names`, `shapes` and `lengths`
    describe the parameters, `size` is D and `dtype` their common type. The layout holds no values and no reference to
    the module.

    Raises `ModelError` if the module has no trainable parameter, if their types differ, or if a layer keeps statistics
    of the data (BatchNorm), which would be wrong after a mean over clients or rounds.
    """

    def __init__(self, module: nn.Module) -> None:
        statistics = batch_norms(module)
        if statistics:
            raise ModelError(
                f"a mean of models leaves the statistics of the data (BatchNorm) wrong in: {', '.join(statistics)}; "
                "convert the model with fedsash.models.group_norm(module, groups=2)"
            )
        parameters = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not parameters:
            raise ModelError(f"{type(module).__name__} has no trainable parameters: set requires_grad on some of them")
        kinds = {p.dtype for _, p in parameters}
        if len(kinds) > 1 or not next(iter(kinds)).is_floating_point:
            found = ", ".join(sorted(str(kind) for kind in kinds))
            raise ModelError(f"trainable parameters must share one floating-point type, found {found}: use module.to()")
        self.names = tuple(name for name, _ in parameters)
        self.shapes = tuple(p.shape for _, p in parameters)
        self.lengths = tuple(p.numel() for _, p in parameters)
        self.size = sum(self.lengths)
        self.dtype = parameters[0][1].dtype
        first = {p: name for name, p in parameters}
        self._masks: dict[tuple[str, torch.device], Tensor] = {}
        everywhere = module.named_parameters(remove_duplicate=False)
        self._aliases = {name: first[p] for name, p in everywhere if p in first}
        linears = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
        self._last_linear: str | None = next(filter(self._parameters_of, reversed(linears)), None)
        self._classifier = self._parameters_of(self._last_linear) if self._last_linear is not None else set()

    @property
    def classifier(self) -> str:
        """The name of the last trainable linear layer. Raises `ModelError` if there is none."""
        if self._last_linear is None:
            raise ModelError("the model has no trainable nn.Linear, hence no classifier")
        return self._last_linear

    def linear(self, w: Tensor) -> tuple[Tensor, Tensor | None]:
        """The classifier's weight `[..., classes, d]` and bias `[..., classes]`, if it has one, as views of `w`.

        Raises `ModelError` if its weight is computed from other parameters, or if there is no classifier.
        """
        prefix = f"{self.classifier}." if self.classifier else ""
        weight, bias = (self._aliases.get(f"{prefix}{name}") for name in ("weight", "bias"))
        if weight is None:
            raise ModelError(f"the classifier {self.classifier!r} has no trainable weight of its own")
        views = self.views(w)
        return views[weight], None if bias is None else views[bias]

    def parameters(self, module: nn.Module) -> list[nn.Parameter]:
        """The module's parameters in the vector's order."""
        return [module.get_parameter(name) for name in self.names]

    def flatten(self, module: nn.Module) -> Tensor:
        """A new vector `[D]` with the values of the module's parameters."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters(module)])

    def views(self, w: Tensor) -> dict[str, Tensor]:
        """Each parameter as a view of `w`: `[..., D]` gives tensors of shape `[..., *shape]`."""
        pieces = torch.split(w, list(self.lengths), dim=-1)
        lead = w.shape[:-1]
        return {n: piece.view(lead + s) for n, piece, s in zip(self.names, pieces, self.shapes, strict=True)}

    def load(self, module: nn.Module, w: Tensor) -> None:
        """Copy `w` `[D]` into the module's parameters."""
        with torch.no_grad():
            for p, view in zip(self.parameters(module), self.views(w).values(), strict=True):
                p.copy_(view)

    def bind(self, module: nn.Module, w: Tensor) -> None:
        """Make the module's parameters views of `w` `[D]`: from now on they share their memory."""
        for p, view in zip(self.parameters(module), self.views(w).values(), strict=True):
            point(p, view)

    @contextmanager
    def applied(self, module: nn.Module, w: Tensor) -> Iterator[nn.Module]:
        """A context in which the module has the values of `w` `[D]`. Afterwards it has its own values again."""
        own = [p.data for p in self.parameters(module)]
        try:
            self.bind(module, w)
            yield module
        finally:
            for p, data in zip(self.parameters(module), own, strict=True):
                point(p, data)

    def copied(self, module: nn.Module, w: Tensor) -> nn.Module:
        """A copy of the module with the values of `w` `[D]`. It shares no memory with `w`."""
        module = copy.deepcopy(module)
        self.load(module, w)
        return module

    def export(self, module: nn.Module, w: Tensor) -> bytes:
        """The model `w` `[D]` as the bytes of a safetensors file: a state dict that fits the module."""
        from safetensors.torch import save

        with self.applied(module, w):
            return save({name: value.detach().cpu().clone() for name, value in module.state_dict().items()})

    def mask(self, word: str, device: torch.device) -> Tensor:
        """The entries of the vector that belong to a parameter with `word` in its name, bool `[D]`."""
        if (word, device) not in self._masks:
            pieces = [torch.full((length,), word in n) for n, length in zip(self.names, self.lengths, strict=True)]
            self._masks[word, device] = torch.cat(pieces).to(device)
        return self._masks[word, device]

    def ranges(self, part: ModelSlice) -> list[tuple[int, int]]:
        """The index ranges `[(start, stop), ...]` of a part of the model, in order. Adjacent ranges are merged.

        `"all"` is the whole vector, `"classifier"` the last trainable linear layer (in the order of definition) and
        `"extractor"` everything else. Any other name, or tuple of names, selects parameters, or modules with all their
        parameters. A tied parameter belongs to every module that has it.

        Raises `SettingError` if there is no classifier, if the extractor would be empty, or if no trainable parameter
        or module has such a name.
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

    def _members(self, part: ModelSlice) -> set[str]:
        if part == "all":
            return set(self.names)
        if part in ("classifier", "extractor"):
            rest = set(self.names) - self._classifier
            if not self._classifier:
                raise SettingError(
                    "", "part", part, "the model has no trainable nn.Linear; name its parameters instead"
                )
            if part == "extractor" and not rest:
                raise SettingError("", "part", part, "the model has nothing but its classifier")
            return self._classifier if part == "classifier" else rest
        asked = (part,) if isinstance(part, str) else part
        unknown = [name for name in asked if not name or not self._parameters_of(name)]
        if unknown or not asked:
            there = shortened(", ".join(self.names), 200)
            raise SettingError("", "part", part, f"nothing that trains is called {brief(unknown)}; there are {there}")
        return set().union(*map(self._parameters_of, asked))

    def _parameters_of(self, name: str) -> set[str]:
        """The trainable parameter of that name, or all of the module of that name (the empty name is the root)."""
        prefix = f"{name}." if name else ""
        return {first for alias, first in self._aliases.items() if f"{alias}.".startswith(prefix)}


def finite(module: nn.Module) -> nn.Module:
    """The module itself. Raises `ModelError`, which names the first bad tensor, if training can't begin from it.

    The values of trainable parameters must be finite. Frozen parameters and buffers must not be NaN; they may be
    infinite, as in a mask.
    """
    for name, p in module.named_parameters():
        if p.requires_grad and (bad := int((~p.detach().isfinite()).sum())):
            raise ModelError(f"{name} has {bad} values that are not finite: training must begin from finite values")
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        if bad := int(value.detach().isnan().sum()):
            raise ModelError(f"{name} has {bad} values that are NaN: training must begin from numbers")
    return module
