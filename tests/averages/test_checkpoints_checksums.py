"""The checksums of files that are read in steps."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from fedsash.averages.checkpoints.checksums import BLOCK, Checksums


def test_files_that_are_read_in_steps_have_the_checksums_of_whole_ones(tmp_path: Path) -> None:
    sizes = {"index": 10, "empty": 0, "long": 3 * BLOCK + 5, "last": BLOCK}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(name.encode() * (size // len(name)))
    parts = [tmp_path / name for name in sizes]
    with Checksums([parts, parts[2:]]) as checksums:
        for share in (0.0, 0.4, 0.4, 0.2, 0.8):
            checksums.advance(share)
        found = checksums.finish()
    wanted = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in parts}
    assert found == [wanted, {name: wanted[name] for name in ("long", "last")}]


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    with Checksums([[tmp_path / "a"]]) as checksums:
        (tmp_path / "a").unlink()
        with pytest.raises(FileNotFoundError, match="/a'"):
            checksums.finish()
