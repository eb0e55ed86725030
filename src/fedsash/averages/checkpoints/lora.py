"""The mean of adapters of LoRA: that of the changes which they make, s B A, and not of their factors A and B.

With n adapters of rank r and shares p_i, the factors below each other and side by side give the mean exactly:

    sum_i p_i s B_i A_i  =  s' B' A',   A' = [A_1; ...; A_n],   B' = [n p_1 B_1, ..., n p_n B_n],   s' = s / n

It has the rank n r. A lower one is cut from it by a singular value decomposition in float64, the nearest matrix of that
rank in the Frobenius norm (Eckart and Young, 1936).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import safetensors.torch
import torch
from torch import Tensor

from ...settings.errors import ModelError, RunError, SettingError, check, check_count, some
from ...system.paths import plain_file
from ...vector.exact_means import weighted_mean
from ...vector.mixed_means import mixed_mean
from .formats import Checkpoint, PickledFile, SafetensorsFile, is_finite
from .order import folder_of
from .output import save_pickled, sync
from .weights import shares

CONFIG = "adapter_config.json"
"""Where PEFT says rank and alpha of an adapter."""

FACTOR = re.compile(r"lora[_.](A|B|up|down|embedding_[AB]|linear_layer|magnitude)|hada_w|lokr_w")
"""Names of tensors whose products, and not they themselves, change a model."""

FIRST = re.compile(r"\.lora_(embedding_)?A(\.|$)")
"""Names of the factor A in PEFT's files."""

DECIDES = ("peft_type", "r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "use_dora", "lora_bias")
"""The keys of the configuration on which the change of a model depends."""


class NamedTensors(Protocol):
    """An adapter whose tensors are asked for by the newest's names."""

    def tensor(self, name: str) -> Tensor: ...


@dataclass(frozen=True)
class AdapterMean:
    """An adapter that is to be written: its tensors, in the newest's order, and its configuration."""

    newest: SafetensorsFile | PickledFile
    tensors: Mapping[str, Tensor]
    config: Mapping[str, Any]

    def write(self, path: Path) -> None:
        """Write the file of the weights at `path`, and the configuration beside it."""
        if isinstance(self.newest, SafetensorsFile):
            safetensors.torch.save_file(dict(self.tensors), path, metadata=self.newest.metadata)
        else:
            save_pickled(path, self.newest.filled(self.tensors))
        config = path.with_name(CONFIG)
        config.write_text(json.dumps(self.config, indent=2) + "\n")
        for written in (path, config):
            with written.open("r+b") as file:  # Windows syncs no file that is only read
                sync(file)


def factor_in(checkpoint: Checkpoint) -> str:
    """The name of a tensor that is a factor of a product; empty if there is none."""
    for name in checkpoint.names:
        if FACTOR.search(name):
            return name
    return ""


def mean_of_adapters(
    checkpoints: Sequence[Checkpoint],
    models: Sequence[NamedTensors],
    weights: Sequence[float] | None,
    rank: int | None,
    mean_of: Callable[[str], Tensor],
    say: Callable[[str], None],
) -> AdapterMean:
    """The mean of the adapters, from the oldest to the newest: exact, or cut to a rank.

    `models` are the checkpoints by the newest's names; `mean_of` gives the mean of a tensor that is no factor.

    Raises `ModelError` for another kind of adapters than LoRA's, if they differ in what decides their products, or if a
    factor is not finite.
    """
    newest = checkpoints[-1]
    if not isinstance(newest, SafetensorsFile | PickledFile):
        raise ModelError(f"{newest.path} has several files, and an adapter of LoRA must be one")
    config = _config(checkpoints)
    names = [name for name in newest.names if FIRST.search(name)]
    pairs = {name: name.replace("lora_A", "lora_B").replace("embedding_A", "embedding_B") for name in names}
    factors = {*pairs, *pairs.values()}
    _check_factors(newest, pairs, config, factors)
    share_of_each = shares(weights, len(models))
    if rank is not None:
        check_count("lora", rank)
        exact = len(models) * config["r"]
        check(rank <= exact, "lora", rank, f"must be at most {exact}, the rank of the exact mean")
    tensors: dict[str, Tensor] = {}
    errors = dict[str, tuple[float, float]]()
    for first, second in pairs.items():
        a = [model.tensor(first) for model in models]
        b = [model.tensor(second) for model in models]
        _check_finite(checkpoints, {first: a, second: b})
        if rank is None:
            tensors[first] = torch.cat([_times(factor, 1.0, a[-1].dtype) for factor in a], dim=0)
            tensors[second] = torch.cat(_weighted(b, share_of_each), dim=1)
        else:
            tensors[first], tensors[second], errors[first] = _cut(a, b, share_of_each, rank)
    for name in newest.names:
        if name not in factors:
            tensors[name] = mean_of(name)
    if rank is None:
        _say_exact(len(models), config["r"], weights, say)
    else:
        _say_cut(rank, errors, say)
    _say_not_finite(tensors, say)
    in_order = {name: tensors[name].contiguous() for name in newest.names}
    return AdapterMean(newest, in_order, _new_config(config, len(models), rank))


def _config(checkpoints: Sequence[Checkpoint]) -> dict[str, Any]:
    """The newest's configuration, which decides of the products as all others do."""
    newest = checkpoints[-1].path
    configs = [_read(checkpoint.path) for checkpoint in checkpoints]
    config = configs[-1]
    _check_agree(checkpoints, configs)
    kind = config.get("peft_type")
    if kind != "LORA":
        raise ModelError(f"{newest} is an adapter of the kind {kind}: only the products of LORA are averaged")
    for key in ("use_dora", "lora_bias"):
        if config.get(key):
            raise ModelError(f"{newest} has {key}, which is more than a product: merge it into its model first")
    return config


def check_scales(checkpoints: Sequence[Checkpoint]) -> None:
    """Raise `ModelError` if adapters whose factors are averaged have other scales, as their configurations say.

    Those of other libraries than PEFT may have none.
    """
    configs = list[dict[str, Any]]()
    for checkpoint in checkpoints:
        config = dict[str, Any]()
        if _has_config(checkpoint.path):
            config = _read(checkpoint.path)
        configs.append(config)
    _check_agree(checkpoints, configs)


def _check_agree(checkpoints: Sequence[Checkpoint], configs: Sequence[Mapping[str, Any]]) -> None:
    """Raise `ModelError` if the configurations differ in what decides how much the factors change."""
    newest = checkpoints[-1].path
    config = configs[-1]
    for checkpoint, other in zip(checkpoints, configs, strict=True):
        for key in DECIDES:
            if (other.get(key) or None) != (config.get(key) or None):
                values = f"{other.get(key)} in {checkpoint.path}, {config.get(key)} in {newest}"
                raise ModelError(f"the adapters differ in {key}: {values}")


def _has_config(path: Path) -> bool:
    return (folder_of(path) / CONFIG).is_file()


def _read(path: Path) -> dict[str, Any]:
    file = folder_of(path) / CONFIG
    if not file.is_file():
        raise RunError(f"{path} has no {CONFIG} beside it, which says r and lora_alpha")
    try:
        config = json.loads(plain_file(file).read_bytes())
        valid = int(config["r"]) >= 1 and math.isfinite(config["lora_alpha"])
    except (ValueError, TypeError, KeyError):
        valid = False
    if not valid:
        raise RunError(f"{file} must be a JSON object with numbers r and lora_alpha")
    return dict(config)


def _check_factors(newest: Checkpoint, pairs: Mapping[str, str], config: Mapping[str, Any], factors: set[str]) -> None:
    """Raise `ModelError` if a factor has no partner, or another rank than the configuration says."""
    others = [name for name in newest.names if FACTOR.search(name) and name not in factors]
    for first, second in pairs.items():
        if second not in newest.names:
            others.append(first)
    if others:
        raise ModelError(f"{newest.path}: {others[0]} is not one of two factors A and B, whose product has a mean")
    for first, second in pairs.items():
        rank = newest.form(first).shape[0]
        size = newest.form(second).shape
        if size[1] != rank or math.prod(size[2:]) != 1:
            raise ModelError(f"{newest.path}: {second} has the shape {list(size)}, and {first} the rank {rank}")
        if not config.get("rank_pattern") and rank != config["r"]:
            raise ModelError(f"{newest.path}: {first} has the rank {rank}, and {CONFIG} says r = {config['r']}")


def _check_finite(checkpoints: Sequence[Checkpoint], factors: Mapping[str, Sequence[Tensor]]) -> None:
    """Raise `ModelError` if a factor of an adapter is not finite: no product of it has a mean."""
    for name, tensors in factors.items():
        for checkpoint, tensor in zip(checkpoints, tensors, strict=True):
            if not is_finite(tensor.reshape(-1)):
                raise ModelError(f"{checkpoint.path}: {name} is not finite: leave this adapter out")


def _say_not_finite(tensors: Mapping[str, Tensor], say: Callable[[str], None]) -> None:
    """Say which tensors of the mean are not finite, as the newest's type may not hold what an older adapter has."""
    names = list[str]()
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not is_finite(tensor.reshape(-1)):
            names.append(name)
    if names:
        say(f"the mean of {some(names)} is not finite")


def _weighted(factors: Sequence[Tensor], share_of_each: Sequence[Fraction]) -> list[Tensor]:
    """Each factor B times n p_i, rounded once to the newest's type."""
    weighted = []
    for factor, share in zip(factors, share_of_each, strict=True):
        weighted.append(_times(factor, float(len(factors) * share), factors[-1].dtype))
    return weighted


def _times(factor: Tensor, times: float, dtype: torch.dtype) -> Tensor:
    """A factor times a number, rounded once to a type; times 1 in its own type it is the factor itself."""
    if times == 1 and factor.dtype == dtype:
        return factor
    values = [factor, torch.zeros_like(factor)]
    weights = [times, 1 - times]
    if factor.dtype == dtype:
        return weighted_mean(values, weights)
    return mixed_mean(values, weights, dtype)


def _cut(
    a: Sequence[Tensor], b: Sequence[Tensor], share_of_each: Sequence[Fraction], rank: int
) -> tuple[Tensor, Tensor, tuple[float, float]]:
    """Factors of the matrix of a rank that is nearest to sum_i p_i B_i A_i; the squared norms of the error and of all.

    The product is decomposed by its factors' QR: [out, R] [R, in] = Q_B (R_B R_A^T) Q_A^T, of which the middle one is
    small.
    """
    below = torch.cat([factor.double().flatten(1) for factor in a], dim=0)
    weighted = [factor.double().flatten(1) * float(share) for factor, share in zip(b, share_of_each, strict=True)]
    beside = torch.cat(weighted, dim=1)
    left, upper_left = torch.linalg.qr(beside)
    right, upper_right = torch.linalg.qr(below.T)
    u, values, v = torch.linalg.svd(upper_left @ upper_right.T, full_matrices=False)
    roots = values[:rank].sqrt()
    new_a = torch.zeros(rank, below.shape[1], dtype=torch.float64)
    new_b = torch.zeros(beside.shape[0], rank, dtype=torch.float64)
    new_a[: len(roots)] = roots[:, None] * (v[:rank] @ right.T)
    new_b[:, : len(roots)] = (left @ u[:, :rank]) * roots
    stored_a = new_a.to(a[-1].dtype)
    stored_b = new_b.to(b[-1].dtype)
    difference = _squared_norm(torch.cat([beside, -stored_b.double()], 1), torch.cat([below, stored_a.double()], 0))
    shape_a = (rank, *a[-1].shape[1:])
    shape_b = (b[-1].shape[0], rank, *b[-1].shape[2:])
    return stored_a.view(shape_a), stored_b.view(shape_b), (difference, _squared_norm(beside, below))


def _squared_norm(b: Tensor, a: Tensor) -> float:
    """The squared Frobenius norm of a product b a, without making it."""
    middle = torch.linalg.qr(b).R @ torch.linalg.qr(a.T).R.T
    return float(middle.square().sum())


def _new_config(config: Mapping[str, Any], n: int, rank: int | None) -> dict[str, Any]:
    """The configuration with the new rank, and the alpha with which the product is the mean.

    With s the scale of the adapters, alpha' / r' is s / n for the exact mean (r' = n r), and s for one that is cut.
    """
    new = dict(config)
    patterns = bool(config.get("rank_pattern") or config.get("alpha_pattern"))
    rooted = bool(config.get("use_rslora"))
    if patterns and (rooted or rank is not None):
        with_what = "use_rslora" if rooted else "a rank"
        raise SettingError.at("lora", rank or "exact", f"rank_pattern and alpha_pattern do not go with {with_what}")
    r = int(config["r"])
    scale = config["lora_alpha"] / (math.sqrt(r) if rooted else r)
    if rooted:
        new["use_rslora"] = False
    if rank is not None:
        new["r"] = rank
        new["lora_alpha"] = _integer(scale * rank)
    else:
        new["r"] = n * r
        new["lora_alpha"] = _integer(scale * r) if rooted else config["lora_alpha"]
        new["rank_pattern"] = {
            module: n * rank_there for module, rank_there in (config.get("rank_pattern") or {}).items()
        }
    return new


def _integer(alpha: float) -> float:
    """PEFT's alphas are integers where they can be."""
    if alpha == round(alpha):
        return round(alpha)
    return alpha


def _say_exact(n: int, r: int, weights: Sequence[float] | None, say: Callable[[str], None]) -> None:
    say(f"the mean of the products of LoRA's factors has the rank {n} x {r} = {n * r}")
    if weights is not None:
        say("the factors B are multiplied by their weights, and each entry is rounded to its type")


def _say_cut(rank: int, errors: Mapping[str, tuple[float, float]], say: Callable[[str], None]) -> None:
    """Say what is lost, in the Frobenius norm: of all, and of the matrix that loses most."""
    lost = sum(difference for difference, _ in errors.values())
    whole = sum(size for _, size in errors.values())
    share = {name: _relative(difference, size) for name, (difference, size) in errors.items()}
    worst = max(share, key=lambda name: share[name])
    line = f"cut to the rank {rank}: the relative error of the mean change is {_relative(lost, whole):.2e}"
    say(f"{line}, at most {share[worst]:.2e}, in {FIRST.split(worst)[0]}")


def _relative(difference: float, size: float) -> float:
    if size == 0:
        return 0.0
    return math.sqrt(difference / size)
