"""Random draws as pure functions of (seed, purpose, round, client, ...).

Each draw has a generator or key of its own. So it does not depend on the draws before it, the engine, the device or the
number of workers. There are two kinds:

- `generator`: a NumPy `Generator` (Philox) for draws that a run makes once (partitions, a test set) or that the server
  makes once in a round (noise for privacy);
- `keys` and `uniform`: a counter-based hash for many draws, for many clients at once (sampling, shuffles, crops,
  dropout). It is integer arithmetic, so it gives the same numbers on every device and in compiled code.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..settings.errors import check
from ..settings.hooks import is_of_library
from .private_torch import seed_cpu

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
"""The constants of SplitMix64, whose finaliser makes keys: `key` in Python's integers, `fold` in arrays of 64 bits."""
_GOLDEN_64 = np.uint64(_GOLDEN)
_FIRST_64 = np.uint64(_FIRST)
_SECOND_64 = np.uint64(_SECOND)
_27 = np.uint64(27)
_30 = np.uint64(30)
_31 = np.uint64(31)
"""The same as NumPy's numbers. To make them in each call would take a fifth of the time of a small `fold`."""


class Purpose(enum.IntEnum):
    """The purpose of a draw. Two purposes never share a stream. `STEP`: augmentation and dropout in a local step.

    `ALONE_...`: the same for the steps in which the personal part trains alone.
    """

    MODEL = 1
    PARTITION = 2
    SAMPLING = 3
    AVAILABILITY = 4
    BATCHES = 5
    STEP = 6
    HELD_OUT = 7
    DIRECTION = 8
    NETWORK = 9
    PRIVACY = 10
    WORKLOAD = 11
    FINE_TUNING = 12
    ALONE_BATCHES = 13
    ALONE_STEP = 14
    RING = 15


def generator(seed: int, purpose: Purpose, *numbers: int) -> np.random.Generator:
    """A new Philox generator with the key `key(seed, purpose, *numbers)`."""
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, *numbers)))


def key(seed: int, purpose: Purpose, *numbers: int) -> int:
    """A 64-bit key for `(seed, purpose, *numbers)`, integers of up to 64 bits. Other tuples have other keys."""
    h = 0
    for number in (seed, int(purpose), *numbers):
        h = ((h + _GOLDEN) & _MASK) ^ (number & _MASK)
        h = (h ^ (h >> 30)) * _FIRST & _MASK
        h = (h ^ (h >> 27)) * _SECOND & _MASK
        h ^= h >> 31
    return h


def keys(seed: int, purpose: Purpose, round: int, clients: NDArray[Any]) -> NDArray[np.uint64]:
    """A 64-bit key for each client, `[C]`: `keys(...)[i] == key(seed, purpose, round, clients[i])`."""
    return fold(np.array([key(seed, purpose, round)], dtype=np.uint64), clients)


def fold(h: NDArray[np.uint64], number: int | NDArray[Any]) -> NDArray[np.uint64]:
    """New keys from keys and a number (or an array that broadcasts with them)."""
    number = np.asarray(number, dtype=np.uint64)
    h = (h + _GOLDEN_64) ^ number
    h = (h ^ (h >> _30)) * _FIRST_64
    h = (h ^ (h >> _27)) * _SECOND_64
    return h ^ (h >> _31)


def fractions(h: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in [0, 1), multiples of 2**-53, from keys; a larger key never gives a smaller number."""
    return (h >> np.uint64(11)).astype(np.float64) * 2.0**-53


def to_tensor(h: NDArray[np.uint64], device: torch.device | str = "cpu") -> Tensor:
    """Keys as an int64 tensor with the same 64 bits."""
    return torch.from_numpy(h.view(np.int64)).to(device)


def uniform(h: Tensor, counter: Tensor) -> Tensor:
    """Numbers in [0, 1), multiples of 2**-24: a hash of the int64 tensors `h` (keys) and `counter`, broadcast together.

    `counter` numbers the draws of a key, from 0 to 2**32 - 1.
    """
    low = h & 0xFFFFFFFF
    high = (h >> 32) & 0xFFFFFFFF
    x = _mix32(_mix32(counter ^ low) ^ high)
    return (x >> 8).to(torch.float32) * 2.0**-24


def seed_torch(key: Tensor) -> None:
    """Seed PyTorch's own generator with a key, for draws of other code (attention's dropout, noise, torchvision)."""
    if key.device.type == "cpu":
        seed_cpu(int(key))
    else:
        torch.manual_seed(int(key))


def _mix32(x: Tensor) -> Tensor:
    """A 32-bit finaliser with low bias (Wellons' "lowbias32"), for 32-bit words in int64 tensors."""
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & 0xFFFFFFFF
    x = x ^ (x >> 15)
    x = (x * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)


@contextmanager
def draws_kept(loader: object = None) -> Iterator[None]:
    """All random numbers that come afterwards are as if nothing had been drawn inside, also those of the generators of
    a `loader` and its samplers, which draw even for an order."""
    states_of_loader = {generator: generator.get_state() for generator in _generators(loader)}
    state_of_python = random.getstate()
    state_of_numpy = np.random.get_state()
    devices: list[int] = []
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        devices += range(torch.cuda.device_count())  # code inside may seed all of them
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(state_of_python)
            np.random.set_state(state_of_numpy)
            for generator, state in states_of_loader.items():
                generator.set_state(state)


def no_draws(place: str, value: object) -> AbstractContextManager[None]:
    """Raise `SettingError` at `place` if the code inside draws from the global generators of Python or NumPy.

    What is drawn there depends on everything that was drawn before, so that no run could be repeated or resumed.
    """
    problem = (
        "draws numbers from a global generator of Python or NumPy, which has no seed here: use PyTorch's, or one that "
        "is made anew from a seed in each call"
    )
    return _unmoved(global_states, place, value, problem)


UNFORESEEN_DRAWS = (
    "the model or its loss draws numbers, but not for a first batch before the training, so they have no "
    "seed: draw in every batch of two samples or more, or from a generator that is made in each call"
)
"""To seed PyTorch's generators for a model that did not draw when it was tried would cost time in every step."""

Watch: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Makes contexts, such as one that refuses draws."""


def no_draws_in_hooks(parts: Mapping[str, object], *, seeded: bool = False) -> Watch:
    """Contexts that raise `SettingError` if the hooks of a federation's parts draw from a global generator inside.

    The parts are named by their places. Also PyTorch's generator has no seed there, unless the code inside has `seeded`
    it for the model. Parts of the library draw from none, so that it takes no time to watch them.
    """
    of_users = {place: part for place, part in parts.items() if not is_of_library(part)}
    if not of_users:
        return nullcontext
    value: object = list(of_users.values())
    if len(of_users) == 1:
        (value,) = of_users.values()
    problem = (
        "draws numbers from a global generator of Python, NumPy or PyTorch, which has no seed in a hook: make a "
        "generator anew in each call, from the round that the hook is given or a counter that it remembers"
    )
    states = global_states if seeded else _all_states
    return partial(_unmoved, states, " or ".join(of_users), value, problem)


@contextmanager
def _unmoved(states: Callable[[], tuple[object, ...]], place: str, value: object, problem: str) -> Iterator[None]:
    """Raise `SettingError` if the code inside moves some states of generators."""
    before = states()
    yield
    check(states() == before, place, value, problem)


def check_repeats(place: str, value: object, draw: Callable[[], object]) -> None:
    """Raise `SettingError` at `place` unless some calls give the same numbers, whatever global generators hold."""
    answers = []
    with draws_kept():
        for seed in range(4):  # a choice of few clients is the same one by chance now and then
            random.seed(seed)
            np.random.seed(seed)
            seed_cpu(seed)  # `torch.manual_seed` would also seed the GPUs, of which nothing has been used yet
            answers.append(np.asarray(draw()))
    are_same = all(np.array_equal(answers[0], other) for other in answers[1:])
    requirement = (
        "must give the same answer for the same arguments: make a generator anew in each call from the seed and the "
        "round, as by np.random.default_rng([seed, round])"
    )
    check(are_same, place, value, requirement)


def global_states() -> tuple[object, ...]:
    """The states of the global generators of Python and NumPy, as values that can be compared."""
    _, numbers, position, *_ = np.random.get_state()
    return random.getstate(), np.asarray(numbers).tobytes(), position


def _all_states() -> tuple[object, ...]:
    """The same, and the states of PyTorch's generators."""
    of_torch = [state.numpy().tobytes() for state in torch_states()]
    return (*global_states(), *of_torch)


def torch_states() -> list[Tensor]:
    """The states of PyTorch's own generators: of the CPU, and of the GPUs if they are in use."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states += torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        states.append(torch.mps.get_rng_state())
    return states


def torch_generators(device: torch.device) -> list[torch.Generator]:
    """PyTorch's own generators from which code on a device draws: the CPU's, and that of the GPU."""
    generators = [torch.default_generator]
    if device.type == "cuda":
        generators.append(torch.cuda.default_generators[device.index])
    return generators


def _generators(loader: object) -> Iterator[torch.Generator]:
    """The generators of a loader of PyTorch and of its samplers."""
    sampler = getattr(loader, "sampler", None)
    batch_sampler = getattr(loader, "batch_sampler", None)
    inner_sampler = getattr(batch_sampler, "sampler", None)
    for source in (loader, sampler, batch_sampler, inner_sampler):
        generator = getattr(source, "generator", None)
        if isinstance(generator, torch.Generator):
            yield generator
