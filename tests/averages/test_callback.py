"""What the callbacks of Lightning and Hugging Face share, and what they say where their library is missing."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsash import Window
from fedsash.averages.callback import TrackerCallback
from fedsash.basics.errors import SettingError


class Loader:
    """Batches that are drawn from all three generators, as augmentations do."""

    def __iter__(self) -> Iterator[Tensor]:
        for _ in range(2):
            yield torch.randn(4, 3) + random.random() + float(np.random.random())


def test_the_inputs_of_re_estimated_statistics_draw_nothing_from_the_training() -> None:
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    averages = TrackerCallback(Window(2, buffers="re-estimate"), batches=Loader())
    averages._begin(module)
    averages._begun().update()

    def draws() -> tuple[float, float, float]:
        return random.random(), float(np.random.random()), float(torch.rand(1))

    for used in (averages.averaged_state_dict, lambda: averages._lend(module), averages._restore):
        states = random.getstate(), np.random.get_state(), torch.get_rng_state()
        expected = draws()
        random.setstate(states[0]), np.random.set_state(states[1]), torch.set_rng_state(states[2])
        used()
        assert draws() == expected


def test_an_average_that_is_not_there_is_refused_with_those_that_are() -> None:
    averages = TrackerCallback({"short": Window(2), "long": Window(9)})
    averages._begin(nn.Linear(3, 2))
    averages._begun().update()
    with pytest.raises(SettingError, match="average = 'e': must be one of short, long"):
        averages.averaged_state_dict("e")


@pytest.mark.parametrize("name", ["lightning", "transformers"])
def test_without_the_library_one_line_says_what_to_install(name: str) -> None:
    program = (
        f"import sys; sys.modules['{name}'] = None\ntry:\n import fedsash.{name}\nexcept ImportError as e: print(e)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f'pip install "fedsash[{name}]"' in answer.stdout and answer.stdout.count("\n") == 1
