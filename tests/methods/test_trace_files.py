"""Traces from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsash.methods.sampling import trace_of


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "with a byte order mark"])
def test_a_trace_is_read_with_and_without_a_byte_order_mark(mark: bytes, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_bytes(mark + b"1,0\n0,1\n")
    assert trace_of("Uniform", str(tmp_path / "trace.csv"), "round").tolist() == [[True, False], [False, True]]
