"""Where things lie in the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
DOCS = ROOT / "docs"
HOW_TO = DOCS / "how-to"


def real(name: str) -> str:
    """The folder of a real data set; the test is skipped where there are none."""
    if "FEDSASH_DATA" not in os.environ:
        pytest.skip("FEDSASH_DATA, the folder of the real data sets, is not set")
    return str(Path(os.environ["FEDSASH_DATA"]) / name)


def offline(patch: pytest.MonkeyPatch) -> None:
    """Let the hub's library do as without a network, or skip the test without the library."""
    datasets = pytest.importorskip("datasets", reason="fedsash[data] is not installed")
    patch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
