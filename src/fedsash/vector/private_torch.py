"""All private parts of PyTorch that fedsash uses. PyTorch may change them, so no other module uses any.

Tested with PyTorch 2.13.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from multiprocessing import parent_process
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.utils import _pytree

Norm = _NormBase
"""BatchNorm and InstanceNorm layers."""
PLAIN_RESULTS = torch._C._disabled_torch_function_impl
"""The `__torch_function__` of a class of tensors of which every operation makes a plain tensor."""


def is_instance_norm(layer: nn.Module) -> bool:
    """Whether a layer is an InstanceNorm of any dimension."""
    return isinstance(layer, _InstanceNorm)


def is_batch_norm(layer: nn.Module) -> bool:
    """Whether a layer keeps, or depends on, statistics over samples.

    These are BatchNorm layers of every kind, and InstanceNorm layers with running statistics.
    """
    return isinstance(layer, _BatchNorm) or (isinstance(layer, _InstanceNorm) and layer.track_running_stats)


def point(tensor: Tensor, values: Tensor) -> None:
    """Let a parameter or a buffer share the memory of `values`, which has its shape."""
    tensor.data = values


def in_type(value: Any, dtype: torch.dtype) -> Any:
    """A tensor, or a structure of tensors such as a model's output, with its floating-point tensors in this type."""

    def converted(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point():
            return tensor.to(dtype)
        return tensor

    return _pytree.tree_map_only(Tensor, converted, value)


def lerp_all(ends: Sequence[Tensor], to: Sequence[Tensor], share: float) -> None:
    """Move each tensor of a list towards its partner, in place: `end += share * (to - end)`, on a GPU in one pass."""
    torch._foreach_lerp_(list(ends), list(to), share)


def seed_cpu(seed: int) -> None:
    """Seed the CPU's generator only. `torch.manual_seed` also seeds every accelerator, which takes far longer."""
    torch.default_generator.manual_seed(seed)


def checkpointed() -> bool:
    """Whether code runs in a checkpoint of activations, which runs it once more for the gradient.

    PyTorch 2.6 can't be asked: there it is False.
    """
    newest_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    if newest_hooks is None:
        return False
    hooks = newest_hooks(True)
    return hooks is not None and hooks[0].__qualname__.startswith("_checkpoint_hook")


def transformed() -> bool:
    """Whether `vmap`, `grad` or another transform of functions is at work."""
    return bool(torch._C._are_functorch_transforms_active())


def keep_compiled_in(folder: str) -> None:
    """Let Inductor keep its code in a folder, unless the user has chosen another one.

    As soon as it is imported, it names its own choice in the environment: a folder for temporary files.
    """
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    usual = os.path.abspath(default_cache_dir())
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR", usual) == usual:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder


COMPILED_KEPT = 64
"""So many compiled functions are kept in this process. They hold code, and the constants of their graphs."""

_compiled: OrderedDict[str, Callable[..., Any]] = OrderedDict()


def compiled(function: Callable[..., None], tensors: list[Tensor]) -> Callable[..., Any]:
    """The function, compiled for tensors of these shapes: it is traced to a flat graph, which Inductor compiles.

    A graph that this process has compiled before is not compiled again: the runs of a sweep share their code. To read
    it from Inductor's cache on the disk takes longer than some hundred rounds of a small model.
    """
    from torch import _inductor as inductor
    from torch._inductor import config
    from torch.fx.experimental.proxy_tensor import make_fx

    copies = [t.clone() for t in tensors]
    graph = make_fx(function)(*copies)
    digest = _digest(graph, copies)
    if digest not in _compiled:
        helpers: dict[str, int] = {}
        if parent_process() is not None:  # a forked process would wait for helpers that it does not have
            helpers["compile_threads"] = 1
        with config.patch(helpers):
            run: Callable[..., Any] = inductor.compile(graph, list[Any](copies))
        if not digest:
            return run
        _compiled[digest] = run
    _compiled.move_to_end(digest)
    while len(_compiled) > COMPILED_KEPT:
        _compiled.popitem(last=False)
    return _compiled[digest]


def _digest(graph: torch.fx.GraphModule, inputs: Sequence[Tensor]) -> str:
    """The digest of all that the code of a graph depends on: what it computes, its constants, its inputs, PyTorch's
    settings. It is empty if the code can't be shared: the graph changes a constant, or holds something else than
    tensors."""
    from torch._inductor import config

    settings = [
        torch.__version__,
        torch.get_num_threads(),  # Inductor writes it into loops
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        config.save_config_portable(),
    ]
    forms = [_form(tensor) for tensor in inputs]
    content = sha256(repr([settings, graph.code, forms]).encode())
    for node in graph.graph.find_nodes(op="get_attr"):
        constant = attrgetter(str(node.target))(graph)
        if not isinstance(constant, Tensor) or any(_changes(user, node) for user in node.users):
            return ""
        content.update(repr([node.target, _form(constant)]).encode())
        content.update(constant.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


def _changes(operation: torch.fx.Node, tensor: torch.fx.Node) -> bool:
    """Whether an operation may change this tensor in place."""
    schema = getattr(operation.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return False
    # PyTorch writes into the first argument, or into those that are given by name, such as `out`.
    return tensor in operation.args[:1] or tensor in operation.kwargs.values()


def _form(tensor: Tensor) -> tuple[object, ...]:
    """All of a tensor but its values."""
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad
