"""Steps recorded as one CUDA graph. `make test-gpu` runs them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsash.client import Adam, LocalTraining
from fedsash.engines import compiled
from fedsash.engines.replayed import Replayed, replayed
from fedsash.methods.sampling import Uniform
from fedsash.settings.errors import SettingError
from fedsash.testing import close
from support.choices import METHODS
from support.worlds import SEQUENTIAL, VECTORISED, WORKERS, after, federation, mlp

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
RECORDED = replace(VECTORISED, block=4, compile=True)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are recorded as they are, which takes no time to compile."""
    monkeypatch.setattr(compiled, "_compile", lambda steps, tensors: steps)


@pytest.mark.parametrize("name", METHODS)
def test_recorded_steps_of_every_method_are_those_of_the_cpu(name: str, uncompiled: None) -> None:
    settings: dict[str, Any] = {"method": METHODS[name]}
    expected = after(federation(**settings), 3)
    assert close(after(federation(**settings, engine=RECORDED, device="cuda"), 3).w.cpu(), expected.w, 1e-10)


@pytest.mark.parametrize("steps", [None, 2])
@pytest.mark.parametrize("keep", [False, True])
def test_recorded_steps_move_the_moments_of_an_optimiser(steps: int | None, keep: bool, uncompiled: None) -> None:
    settings: dict[str, Any] = {
        "model": mlp(dropout=0.3),
        "local": LocalTraining(lr=0.1, batch=5, steps=steps, optimiser=Adam(), keep_moments=keep),
        "sampling": Uniform(4),
    }
    expected = after(federation(**settings), 3)
    assert close(after(federation(**settings, engine=RECORDED, device="cuda"), 3).w.cpu(), expected.w, 1e-10)


def test_a_replay_has_the_last_numbers_and_those_of_the_samples_where_they_are() -> None:
    x, samples = torch.zeros(3, device="cuda"), torch.arange(3.0, device="cuda")
    run = Replayed(lambda x, samples: x.add_(samples), [x, samples], [samples])
    assert not x.any()
    for start in (1.0, 5.0):
        (own, same) = run.lend([x.fill_(start), samples], [False, False])
        run(own, same)
        run(own, same)
        assert own.tolist() == [start, start + 2, start + 4] and same is samples


def test_what_waits_for_the_gpu_is_not_recorded_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    def doubled(x: Tensor) -> None:
        x.mul_(float(x.sum()) * 0 + 2)

    x = torch.ones(2, device="cuda")
    assert replayed(doubled, [x], []) is doubled
    assert "can't become one CUDA graph" in caplog.text
    doubled(x)
    assert x.tolist() == [2, 2]
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_an_error_of_the_steps_themselves_is_raised() -> None:
    def wrong(x: Tensor) -> None:
        raise RuntimeError("sizes do not fit")

    with pytest.raises(RuntimeError, match="sizes do not fit"):
        replayed(wrong, [torch.ones(2, device="cuda")], [])


def test_processes_are_not_forked_where_a_gpu_is() -> None:
    with pytest.raises(SettingError, match=r"LocalEngine\.start = 'fork': forked processes can't train where"):
        after(federation(engine=replace(WORKERS, start="fork")), 1)
    spawned, alone = (after(federation(engine=engine), 1).w for engine in (WORKERS, SEQUENTIAL))
    assert close(spawned, alone, 1e-10)
