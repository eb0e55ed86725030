"""Runs one peer with its own Python: `python -m benchmarks.peers.run PEER WORK FOLDER SAVED SECONDS SEED`."""

from __future__ import annotations

import sys
from importlib import import_module

from .clock import Clock, Enough
from .works import Given


def main(peer: str, work: str, folder: str, saved: str, seconds: str, seed: str) -> None:
    given = Given(work, folder)
    clock = Clock(given, saved, float(seconds))
    try:
        import_module(f"benchmarks.peers.{peer}").run(given, clock, int(seed))
    except Enough:
        return
    raise SystemExit(f"{peer} ended before the measurement did")


if __name__ == "__main__":
    main(*sys.argv[1:])
