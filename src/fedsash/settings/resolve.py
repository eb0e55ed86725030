"""Code of one's own: functions and classes by their place `"package.module:name"`, and who may name them."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

from .errors import SettingError

Allowed = bool | Collection[str]
"""The places that may be named: all (True), none (False), or these."""

SAFE = "PYTHONSAFEPATH"
"""The variable that has the effect of `python -P`."""
FORBIDDEN = "names code outside fedsash; if you trust it, allow it with --own-code (in Python: own_code=True)"

_allowed: ContextVar[Allowed] = ContextVar("allowed", default=True)
_resolved: set[str] = set()


@contextmanager
def allowed_only(places: Allowed) -> Iterator[None]:
    """In the `with` block `resolve` takes these places only, and those that it has taken before in this process.

    Whoever reads a file uses it, since somebody else may have written the file. Elsewhere every place is allowed: it
    stands in the user's own program.
    """
    token = _allowed.set(places)
    try:
        yield
    finally:
        _allowed.reset(token)


def resolve(place: str, owner: str = "", field: str = "name") -> Any:
    """The class or Python function at `"package.module:name"`. Modules are also looked for in the working directory,
    after all other places.

    Raises `SettingError` for `owner.field` before anything is imported if the place is not allowed (`allowed_only`) or
    of Python's standard library. Raises it if the place can't be imported, or holds something else.
    """

    def refusal(problem: str) -> SettingError:
        return SettingError(owner, field, place, problem)

    module, _, path = place.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *path.split("."))):
        raise refusal("must be 'package.module:name'")
    if _is_standard(module):
        raise refusal("is of Python's standard library, which holds nothing to train with")
    if not _is_allowed(place):
        raise refusal(FORBIDDEN)
    _look_in_working_directory()
    try:
        resolved = import_module(module)
    except ImportError as error:
        if module.endswith(".py"):
            raise refusal(f"must be '{module.removesuffix('.py')}:{path}'") from error
        raise refusal(f"can't be imported: {error}") from error
    for name in path.split("."):
        if not hasattr(resolved, name):
            raise refusal(f"can't be imported: module {module!r} has no attribute {path!r}")
        resolved = getattr(resolved, name)
        # What a module only imports, such as `os.system`, is refused as if it were named by its own place.
        if isinstance(resolved, ModuleType) or _is_standard(getattr(resolved, "__module__", None) or ""):
            raise refusal("must be defined in that module, or in another one of yours")
    if not isinstance(resolved, type | FunctionType):
        raise refusal("must be a class or a function that is written in Python")
    _resolved.add(place)
    return resolved


def check_address(address: str, owner: str, field: str, otherwise: str) -> None:
    """Raise `SettingError` for `owner.field` if a file names an address that the user has not allowed.

    Numbers are sent there or written there, so that it is asked for as code of one's own is (`allowed_only`).
    `otherwise` says how else it can be set.
    """
    if not _is_allowed(address):
        cure = f"{otherwise}, or trust the file by --own-code"
        raise SettingError(owner, field, address, f"is where a run's numbers go, and stands in a file: {cure}")
    _resolved.add(address)


def allow(address: str) -> None:
    """Allow an address, because the user has named it on the command line."""
    _resolved.add(address)


def was_resolved(place: str) -> bool:
    """Whether this place or address was taken in this process, so that the user has allowed it."""
    return place in _resolved


@contextmanager
def libraries_first() -> Iterator[None]:
    """A process of Python that starts in the `with` block takes no file of the working directory for a library."""
    before = os.environ.get(SAFE)
    os.environ[SAFE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE]
        else:
            os.environ[SAFE] = before


def _is_allowed(place: str) -> bool:
    """Whether a place or an address may be named here. What was once taken in this process may be."""
    allowed = _allowed.get()
    if isinstance(allowed, bool):
        return allowed or place in _resolved
    return place in allowed or place in _resolved


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _look_in_working_directory() -> None:
    """Look for modules in the working directory, too. It comes last, so that no file there can replace a library."""
    folder = os.getcwd()
    if "" not in sys.path and folder not in sys.path:
        sys.path.append(folder)
