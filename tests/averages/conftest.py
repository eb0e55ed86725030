"""A group of processes for trackers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    """A group of this process alone, as DDP and FSDP need one."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()
