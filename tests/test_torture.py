"""The campaign at its short scale finds nothing. Its full scale is `make torture`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.places import ROOT

KINDS = [file.stem for file in sorted((ROOT / "torture").glob("*.py")) if "\nSIZES = " in file.read_text()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_short_campaign_finds_nothing(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torture", "--scale", "short", "--only", kind, "--out", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_kind_of_the_campaign_can_be_chosen() -> None:
    from torture.__main__ import KINDS as chosen

    assert sorted(chosen) == KINDS
