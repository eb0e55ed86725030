"""Compiled steps where PyTorch can't compile: a line, and no traceback of its compiler."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from fedsash import SettingError
from fedsash.engines import LocalEngine
from support.worlds import after, federation


def test_steps_that_pytorch_fails_to_compile_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Inductor raises subclasses of `RuntimeError`, whose text has many lines."""

    def fails(*_: Any) -> Any:
        raise RuntimeError("KeyError: 'buf31'\n  in a kernel")

    monkeypatch.setattr("fedsash.engines.compiled.compiled", fails)
    with pytest.raises(SettingError, match=r"compile these steps .*buf31.* choose 'auto' or False") as error:
        after(federation(engine=LocalEngine("vectorised", 1, 4, True, "contiguous", 1)), 1)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_without_a_compiler_steps_run_uncompiled_with_a_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from torch._inductor import config

    monkeypatch.setenv("PATH", "")
    engine = LocalEngine("vectorised", 1, 4, True, "contiguous", 1)
    # not by monkeypatch, which would delete the setting in the end
    with config.patch({"cpp.cxx": ("no-such-compiler",)}), caplog.at_level(logging.WARNING, "fedsash"):
        w = after(federation(engine=engine), 2).w
    assert "install g++" in caplog.text
    torch.testing.assert_close(w, after(federation(), 2).w, rtol=0, atol=1e-14)
