"""What the callbacks of Lightning and Hugging Face share, and what they say where their library is missing."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from fedsash import Window
from fedsash.averages.trainers.callback import TrackerCallback
from fedsash.settings.errors import SettingError
from support.by_default import full


class Loader:
    """Batches that are drawn from all three generators, as augmentations do."""

    def __iter__(self) -> Iterator[Tensor]:
        for _ in range(2):
            yield torch.randn(4, 3) + random.random() + float(np.random.random())


def test_the_inputs_of_re_estimated_statistics_draw_nothing_from_the_training() -> None:
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    averages = TrackerCallback(Window(2, buffers="re-estimate"), batches=Loader())
    averages._begin(module)
    averages._current_tracker().update()

    def draws() -> tuple[float, float, float]:
        return random.random(), float(np.random.random()), float(torch.rand(1))

    for used in (averages.averaged_state_dict, lambda: averages._lend(module), averages._restore):
        states = random.getstate(), np.random.get_state(), torch.get_rng_state()
        expected = draws()
        random.setstate(states[0]), np.random.set_state(states[1]), torch.set_rng_state(states[2])
        used()
        assert draws() == expected


class Numbers(Dataset[Tensor]):
    """The numbers from 0 to 11 as samples."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Tensor:
        return torch.full((3,), float(i))


@pytest.mark.parametrize("workers", [0, full(1)])
def test_the_training_s_own_loader_goes_on_as_if_nobody_else_had_read_it(workers: int) -> None:
    """It shuffles by a generator of its own; with persistent workers it has a single pass at a time."""

    def epochs(evaluated: bool) -> list[list[list[float]]]:
        loader = DataLoader(
            Numbers(),
            batch_size=4,
            shuffle=True,
            generator=torch.Generator().manual_seed(0),
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        averages = TrackerCallback(Window(2, buffers="re-estimate"), batches=loader)
        averages._begin(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)))
        found: list[list[list[float]]] = [[], []]
        for epoch in found:
            for batch in loader:
                epoch.append(batch[:, 0].tolist())
                averages._current_tracker().update()
                if evaluated:
                    averages.averaged_state_dict()
        return found

    assert epochs(True) == epochs(False)


def test_an_average_that_is_not_there_is_refused_with_those_that_are() -> None:
    averages = TrackerCallback({"short": Window(2), "long": Window(9)})
    averages._begin(nn.Linear(3, 2))
    averages._current_tracker().update()
    with pytest.raises(SettingError, match="average = 'e': must be one of short, long"):
        averages.averaged_state_dict("e")


@pytest.mark.parametrize("name", ["lightning", "transformers"])
def test_without_the_library_one_line_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"fedsash.averages.trainers.{name}"
    for loaded in list(sys.modules):
        if f"{loaded}.".startswith((f"{module}.", f"{name}.")):
            monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError) as refused:
        import_module(module)
    assert f'pip install "fedsash[{name}]"' in str(refused.value) and "\n" not in str(refused.value)
