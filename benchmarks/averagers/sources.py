"""Classes from their own files, of libraries that as a whole need torchvision or more."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch
from torch import nn


def file_of(package: str, file: str) -> Path:
    """A file of an installed package. Raises `ImportError` if it is not installed."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ImportError(package)
    return Path(spec.origin).parent / file


@cache
def class_of_file(package: str, file: str, name: str, beside: Sequence[str] = ()) -> Any:
    """A class of a package's file, to the letter.

    With the functions `beside` it that it needs, only these statements are run, and not what the file imports.
    """
    path = file_of(package, file)
    if not beside:
        spec = spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, name)
    wanted = {name, *beside}
    tree = ast.parse(path.read_text())
    tree.body = [statement for statement in tree.body if getattr(statement, "name", None) in wanted]
    namespace: dict[str, Any] = {
        "torch": torch,
        "nn": nn,
        "math": math,
        "deepcopy": deepcopy,
        "TORCH_2_0": True,
        "TORCH_2_4": True,
    }
    exec(compile(tree, str(path), "exec"), namespace)
    return namespace[name]
