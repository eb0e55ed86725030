"""Flower's SuperNode, as `fedsash flower node` starts it: a client may take longer to start than Flower gives it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

START = 120.0
"""How long the process of a ClientApp may take to start, in seconds. Flower 1.42 starts another one after 30."""
STATES = ("flwr.supercore.corestate.in_memory_corestate", "flwr.supercore.corestate.sql_corestate")
"""The modules of Flower that give a process its token. A token is good for `HEARTBEAT_DEFAULT_INTERVAL` seconds until
the process begins, and after each sign of life for `HEARTBEAT_PATIENCE` times as many."""


def main() -> None:
    """Run the program `flower-supernode` with this command's options."""
    from flwr.supernode.cli import flower_supernode

    for name in STATES:
        keep_tokens(name)
    sys.argv[0] = "flower-supernode"  # its help and its errors say so
    sys.exit(flower_supernode())


def keep_tokens(name: str) -> None:
    """Let the tokens of the module `name` last `START` seconds until a process begins, and then as long as before.

    Versions of Flower that do not have it are left as they are.
    """
    try:
        module: Any = import_module(name)
        interval = float(module.HEARTBEAT_DEFAULT_INTERVAL)
        patience = float(module.HEARTBEAT_PATIENCE)
    except (ImportError, AttributeError):
        return
    if interval < START:
        module.HEARTBEAT_DEFAULT_INTERVAL = START
        module.HEARTBEAT_PATIENCE = patience * interval / START


if __name__ == "__main__":
    main()
