"""How much memory the mean of large checkpoints takes beside the pages of their files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

MERGE = """
import json, sys, threading
from fedsash.averages.checkpoints import merge_checkpoints

def own():
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(lines["RssAnon"].split()[0]) / 1024

def watch():
    while not over.wait(0.005):
        seen.append(own())

before = own()
seen = [before]
over = threading.Event()
watcher = threading.Thread(target=watch)
watcher.start()
merge_checkpoints(sys.argv[1], sys.argv[2])
over.set()
watcher.join()
print(json.dumps([before, max(seen)]))
"""


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_twenty_checkpoints_take_little_more_memory_than_their_mapped_pages(tmp_path: Path) -> None:
    """Of 50 million bfloat16 entries each, of which one tensor has 13 million: 2 GB of files, and 100 MB at most."""
    state = {"embedding": torch.randn(13_000, 1000).bfloat16() / 50}
    for i in range(37):
        state[f"layers.{i}"] = torch.randn(1000, 1000).bfloat16() / 50
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    try:
        for step in range(20):
            state["layers.0"] += 1  # so that no two files are copies
            save_file(state, folder / f"model-{step}.safetensors")
        command = [sys.executable, "-c", MERGE, str(folder), str(tmp_path / "mean.safetensors")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    finally:
        for path in folder.iterdir():
            path.unlink()
    before, most = json.loads(done.stdout)
    assert most - before < 100
