"""A model as one flat vector, and back."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import reduce
from itertools import accumulate, chain
from typing import NamedTuple
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..settings.errors import ModelError, SettingError, brief, check, one_line, shortened
from .arrays import writable
from .norms import begin_training, is_statistic, tracking
from .private_torch import point

ModelSlice = str | tuple[str, ...]
"""A slice of the model: `"all"`, `"classifier"`, `"extractor"`, or names of parameters or modules (see `members`)."""


class NamedPart(NamedTuple):
    """A part of the model: the tensors of these parameters and modules, or all `others`."""

    names: Sequence[str] = ()
    others: bool = True


class Layout:
    """The position of everything that a model learns in one flat vector `w` `[D]`.

    First come the trainable parameters, in the order of `module.named_parameters()`. A tied parameter counts once,
    under its first name. If BatchNorm layers track statistics of the data (see `norms.tracking`), the affine parameters
    of these layers, whose names are `affine`, come after all others. Their running statistics follow from entry
    `trained` on, the number of batches as a floating-point number. Without such layers `trained` and `size` are D.

    A federation has one layout, that of `Sharing.of`, in which a part that stays with clients comes after the others.

    Frozen parameters (`requires_grad = False`), the statistics of frozen layers and all other buffers are not part of
    the vector. `names`, `shapes`, `lengths` and `places` (start, stop) describe the tensors, `size` is D and `dtype`
    their common type. `norms` are the names of the layers that track statistics. The layout holds no values and no
    reference to the module.

    Raises `ModelError` if the module has no trainable parameter, or if types differ. A `mixed` layout takes several
    floating-point types; its vector has the one that holds them all.
    """

    def __init__(self, module: nn.Module, mixed: bool = False) -> None:
        layers = tracking(module)
        affine: set[int] = set()
        for layer in layers.values():
            affine.update(map(id, layer.parameters(recurse=False)))
        parameters = _trainable(module, affine)
        statistics = _running_statistics(layers)
        _check_own(statistics)
        tensors = [*parameters, *statistics]
        self.dtype = _common_type(tensors, mixed)
        self._arrange([(name, tensor.shape) for name, tensor in tensors])
        self.norms = tuple(layers)
        self.trained = sum(p.numel() for _, p in parameters)
        self.affine = frozenset(name for name, p in parameters if id(p) in affine)
        self._aliases = _aliases(module, parameters)
        for name, _ in statistics:
            self._aliases[name] = name
        self._last_linear: str | None = None
        for name, layer in module.named_modules():
            if isinstance(layer, nn.Linear) and self._tensors_of(name):
                self._last_linear = name

    def _arrange(self, tensors: Sequence[tuple[str, torch.Size]]) -> None:
        """Put tensors of these names and shapes one after the other into the vector."""
        self.names = tuple(name for name, _ in tensors)
        self.shapes = tuple(shape for _, shape in tensors)
        self.lengths = tuple(shape.numel() for shape in self.shapes)
        ends = tuple(accumulate(self.lengths))
        self.places = tuple(zip((0, *ends), ends, strict=False))
        self.size = sum(self.lengths)
        # Methods ask for the same masks in every local step.
        self._masks: dict[tuple[str, torch.device], Tensor] = {}

    @property
    def order(self) -> str:
        """The checksum of the tensors' names and shapes, in their order."""
        return f"{len(self.names)} tensors, {crc32(repr((self.names, self.shapes)).encode()):08x}"

    def between(self, start: int, stop: int) -> Layout:
        """The layout of the entries from `start` up to `stop` alone, which must not cut a tensor in two."""
        if (start, stop) == (0, self.size):
            return self
        return self._with([i for i, (first, last) in enumerate(self.places) if start <= first and last <= stop])

    def permuted(self, order: Sequence[int]) -> Layout:
        """The layout of the same tensors in another order, given by their numbers."""
        if list(order) == sorted(order):
            return self
        return self._with(order)

    def _with(self, tensors: Sequence[int]) -> Layout:
        """The layout of some tensors, given by their numbers."""
        part = copy.copy(self)
        part._arrange([(self.names[i], self.shapes[i]) for i in tensors])
        return part

    @property
    def classifier(self) -> str:
        """The name of the last trainable linear layer. Raises `ModelError` if there is none."""
        if self._last_linear is None:
            raise ModelError("the model has no trainable nn.Linear, hence no classifier")
        return self._last_linear

    def linear(self, w: Tensor) -> tuple[Tensor, Tensor | None]:
        """The classifier's weight `[..., classes, d]` and bias `[..., classes]`, if it has one, as views of `w`.

        Raises `ModelError` if its weight is computed from other parameters, if it is not in this layout, or if there is
        no classifier.
        """
        classifier = self.classifier
        weight = self._aliases.get(_joined_name(classifier, "weight"))
        bias = self._aliases.get(_joined_name(classifier, "bias"))
        if weight is None:
            raise ModelError(f"the classifier {classifier!r} has no trainable weight of its own")
        views = self.views(w)
        if weight not in views or (bias is not None and bias not in views):
            raise ModelError(f"the classifier {classifier!r} stays with the clients, but the method needs it")
        if bias is None:
            return views[weight], None
        return views[weight], views[bias]

    def tensors(self, module: nn.Module) -> list[Tensor]:
        """The module's parameters and statistics in the vector's order."""
        by_name = dict(chain(module.named_parameters(), module.named_buffers()))
        return [by_name[name] for name in self.names]

    def flatten(self, module: nn.Module) -> Tensor:
        """A new vector `[D]` with the module's values."""
        return torch.cat([t.detach().reshape(-1).to(self.dtype) for t in self.tensors(module)])

    def views(self, w: Tensor) -> dict[str, Tensor]:
        """Each tensor as a view of `w`: `[..., D]` gives tensors of shape `[..., *shape]`."""
        pieces = torch.split(w, list(self.lengths), dim=-1)
        lead = w.shape[:-1]
        views = {}
        for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True):
            views[name] = piece.view(lead + shape)
        return views

    def load(self, module: nn.Module, w: Tensor) -> None:
        """Copy `w` `[D]` into the module. Numbers of batches are rounded."""
        with torch.no_grad():
            for tensor, view in zip(self.tensors(module), self.views(w).values(), strict=True):
                tensor.copy_(_like(tensor, view))

    def bind(self, module: nn.Module, w: Tensor) -> None:
        """Make the module's tensors views of `w` `[D]`: from now on they share their memory."""
        for tensor, view in zip(self.tensors(module), self.views(w).values(), strict=True):
            point(tensor, view)

    @contextmanager
    def applied(self, module: nn.Module, w: Tensor) -> Iterator[nn.Module]:
        """A context in which the module has the values of `w` `[D]`. Afterwards it has its own values again."""
        tensors = self.tensors(module)
        values_before = [tensor.data for tensor in tensors]
        try:
            for tensor, view in zip(tensors, self.views(w).values(), strict=True):
                point(tensor, _like(tensor, view))
            yield module
        finally:
            for tensor, values in zip(tensors, values_before, strict=True):
                point(tensor, values)

    def copied(self, module: nn.Module, w: Tensor) -> nn.Module:
        """A copy of the module with the values of `w` `[D]`. It shares no memory with `w`."""
        module = copy.deepcopy(module)
        self.load(module, w)
        return module

    def export(self, module: nn.Module, w: Tensor) -> bytes:
        """The model `w` `[D]` as the bytes of a safetensors file: a state dict that fits the module."""
        from safetensors.torch import save

        # Clones, since safetensors refuses tensors that share memory, as tied parameters and views of `w` do.
        with self.applied(module, w):
            values = {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}
        return save(values)

    def mask(self, word: str, device: torch.device) -> Tensor:
        """The entries of the vector that belong to a tensor with `word` in its name, bool `[D]`."""
        if (word, device) not in self._masks:
            inside = torch.tensor([word in name for name in self.names], dtype=torch.bool)
            lengths = torch.tensor(self.lengths, dtype=torch.int64)
            self._masks[word, device] = inside.repeat_interleave(lengths, output_size=self.size).to(device)
        return self._masks[word, device]

    def ranges(self, part: ModelSlice, statistics: bool = True, but: Collection[str] = ()) -> list[tuple[int, int]]:
        """The index ranges `[(start, stop), ...]` of a part of the model, in order. Adjacent ranges are merged.

        Without `statistics` a part has parameters only; it has no tensors whose names are in `but`. Raises
        `SettingError` as `members` does.
        """
        names = self.members(part).difference(but)
        chosen = []
        for name, (start, _) in zip(self.names, self.places, strict=True):
            is_parameter = start < self.trained
            chosen.append(name in names and (statistics or is_parameter))
        return joined(self.lengths, chosen)

    def members(self, part: ModelSlice) -> set[str]:
        """The names of the tensors of a part of the model.

        `"all"` is the whole vector, `"classifier"` the last trainable linear layer (in the order of definition) and
        `"extractor"` everything else. Any other name, or tuple of names, selects parameters, or modules with all their
        parameters and statistics. A tied parameter belongs to every module that has it.

        Raises `SettingError` if there is no classifier, if the extractor would be empty, or if no trainable parameter
        or module has such a name.
        """
        return self.inside(self.named(part))

    def named(self, part: ModelSlice) -> NamedPart:
        """A part of the model by names, which mean the same when other parameters train. Raises as `members` does."""
        if part == "all":
            return NamedPart()
        if part in ("classifier", "extractor"):
            if self._last_linear is None:
                requirement = "the model has no trainable nn.Linear; name its parameters instead"
                raise SettingError("", "part", part, requirement)
            named_part = NamedPart((self._last_linear,), others=part == "extractor")
            if not self.inside(named_part):
                raise SettingError("", "part", part, "the model has nothing but its classifier")
            return named_part
        names = (part,) if isinstance(part, str) else tuple(part)
        unknown = [name for name in names if not name or not self._tensors_of(name)]
        if unknown or not names:
            line = f"nothing that trains is called {brief(unknown)}; {self._known_names(unknown)}"
            raise SettingError("", "part", part, line)
        return NamedPart(names, others=False)

    def _known_names(self, unknown: Sequence[str]) -> str:
        """What the model's tensors are called, with one that looks like an unknown name, as the end of an error."""
        known = f"there are {shortened(', '.join(self.names), 200)}"
        words = ("all", "classifier", "extractor", *self.names)
        for name in unknown:
            close = get_close_matches(name, words, n=1)
            if close:
                return f"{known}; did you mean {close[0]!r}?"
        return known

    def inside(self, part: NamedPart) -> set[str]:
        """The names of the tensors of a part that are in this layout, maybe none."""
        named: set[str] = set()
        for name in part.names:
            named |= self._tensors_of(name)
        if part.others:
            return set(self.names) - named
        return named

    def _tensors_of(self, name: str) -> set[str]:
        """The tensor of that name, or all of the module of that name (the empty name is the root)."""
        prefix = f"{name}." if name else ""
        return {first for alias, first in self._aliases.items() if f"{alias}.".startswith(prefix)}


def joined(lengths: Sequence[int], chosen: Sequence[bool]) -> list[tuple[int, int]]:
    """The index ranges of the chosen ones of successive pieces. Adjacent ranges are merged."""
    ranges: list[tuple[int, int]] = []
    stop = 0
    for length, is_chosen in zip(lengths, chosen, strict=True):
        start = stop
        stop = stop + length
        if not is_chosen:
            continue
        if ranges and ranges[-1][1] == start:
            first, _ = ranges[-1]
            ranges[-1] = (first, stop)
        else:
            ranges.append((start, stop))
    return ranges


def _joined_name(module: str, name: str) -> str:
    """The name that a tensor of a module has in the whole model. The whole model's own name is empty."""
    return f"{module}.{name}" if module else name


def _trainable(module: nn.Module, affine: Collection[int]) -> list[tuple[str, nn.Parameter]]:
    """The trainable parameters by name; those whose `id` is in `affine` come last."""
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    parameters = sorted(named, key=lambda name_and_parameter: id(name_and_parameter[1]) in affine)
    if not parameters:
        raise ModelError(f"{type(module).__name__} has no trainable parameters: set requires_grad on some of them")
    for name, p in parameters:
        _check_shape_is_known(name, p)
    for name, p in parameters:
        if not writable(p):
            raise ModelError(f"{name} is sparse or expanded: give it values of its own, by to_dense() or clone()")
    return parameters


def _running_statistics(layers: Mapping[str, nn.Module]) -> list[tuple[str, Tensor]]:
    """The running statistics of some layers, by their names in the whole model. A layer may have other buffers, too."""
    statistics = []
    for layer_name, layer in layers.items():
        for name, buffer in layer.named_buffers(recurse=False):
            if not is_statistic(name):
                continue
            full_name = _joined_name(layer_name, name)
            _check_shape_is_known(full_name, buffer)
            statistics.append((full_name, buffer))
    return statistics


def _check_shape_is_known(name: str, tensor: Tensor) -> None:
    """Raise `ModelError` for a tensor of a lazy layer, before its first input."""
    if is_lazy(tensor):
        raise ModelError(f"{name} has no shape before the first input: pass a batch through the module first")


def _common_type(tensors: Iterable[tuple[str, Tensor]], mixed: bool) -> torch.dtype:
    """The type of all tensors but numbers of batches; of `mixed` types, the one that holds them all."""
    first_names: dict[torch.dtype, str] = {}
    for name, tensor in tensors:
        if not _counts_batches(tensor):
            first_names.setdefault(tensor.dtype, name)
    for dtype, name in first_names.items():
        if not dtype.is_floating_point:
            cure = "train torch.view_as_real() of it, or freeze it by requires_grad_(False)"
            raise ModelError(f"trainable parameters must be floating-point numbers, found {dtype} ({name}): {cure}")
        if dtype.itemsize < 2:
            cure = "train it in bfloat16 or float32, or freeze it by requires_grad_(False)"
            raise ModelError(f"trainable parameters must have 16 bits or more, found {dtype} ({name}): {cure}")
    if len(first_names) > 1 and not mixed:
        types = ", ".join(sorted(map(str, first_names)))
        raise ModelError(f"trainable parameters must share one floating-point type, found {types}: use module.to()")
    return reduce(torch.promote_types, first_names)


def _check_own(statistics: Sequence[tuple[str, Tensor]]) -> None:
    """Raise `ModelError` if two layers share running statistics: each would count the other's batches."""
    names: dict[int, str] = {}
    for name, tensor in statistics:
        other = names.setdefault(id(tensor), name)
        if other != name:
            raise ModelError(f"{other} and {name} are one tensor: give each BatchNorm statistics of its own")


def _aliases(module: nn.Module, parameters: Iterable[tuple[str, nn.Parameter]]) -> dict[str, str]:
    """The first name of each of the parameters, by each of its names."""
    first_names = {p: name for name, p in parameters}
    aliases = {}
    for name, p in module.named_parameters(remove_duplicate=False):
        if p in first_names:
            aliases[name] = first_names[p]
    return aliases


def _counts_batches(tensor: Tensor) -> bool:
    """Whether a tensor is a layer's number of batches, the only integer among the statistics."""
    return tensor.dtype == torch.int64


def _like(tensor: Tensor, view: Tensor) -> Tensor:
    """The view of a vector with the type of the tensor that it stands for."""
    if _counts_batches(tensor):
        return view.round().to(tensor.dtype)
    return view


def copied(module: nn.Module) -> nn.Module:
    """A copy of a module; raises `ModelError` if it can't be copied, or if its copies could not be trained.

    If the module is in train mode, its own `train` says which layers of the copy are frozen.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, torch.jit.ScriptModule) and any(p.requires_grad for p in layer.parameters()):
            raise ModelError(
                f"{name or 'the model'} is TorchScript, of which copies can't be trained: give the nn.Module it was "
                "made from"
            )
    if any(value.is_inference() for value in (*module.parameters(), *module.buffers())):
        raise ModelError("the model was made in torch.inference_mode(), so it can't be trained: make it outside")
    try:
        copy_of_module = copy.deepcopy(module)
    except Exception as error:  # its class depends on what the module holds
        raise ModelError(
            f"the model can't be copied ({one_line(error)}): hold no open files in it, put "
            "torch.nn.utils.parametrizations in place of weight_norm and spectral_norm, and make pruning permanent by "
            "torch.nn.utils.prune.remove"
        ) from error
    if copy_of_module.training:
        begin_training(copy_of_module)
    return copy_of_module


def check_start(module: nn.Module, layout: Layout) -> None:
    """Raise an error, which names the first bad tensor, if training can't begin from a module.

    The values of trainable parameters must be finite. Frozen parameters and buffers must not be NaN; they may be
    infinite, as in a mask. Weights of 16 bits are refused, since small updates vanish in a sum over clients.
    """
    for name, p in module.named_parameters():
        if not p.requires_grad:
            continue
        not_finite = int((~p.detach().isfinite()).sum())
        if not_finite:
            raise ModelError(
                f"{name} has {not_finite} values that are not finite: training must begin from finite values"
            )
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        nans = int(tensor.detach().isnan().sum())
        if nans:
            raise ModelError(f"{name} has {nans} values that are NaN: training must begin from numbers")
    requirement = 'must be float32 or float64: sums over clients need the digits; engine.precision can be "bfloat16"'
    check(layout.dtype.itemsize >= 4, "Federation.model: type of its weights", layout.dtype, requirement)
