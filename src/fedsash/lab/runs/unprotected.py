"""What a private run does not protect."""

from __future__ import annotations

from collections.abc import Iterator

from ...state import State
from .driver import Driver


def unprotected(driver: Driver, state: State) -> Iterator[str]:
    """A line for each evaluation of a private run that shows how the models do on the clients' own samples."""
    if driver.privacy(state) is None:
        return
    shown = "its scores come from the clients' own samples without noise, so epsilon does not cover them"
    if driver.evaluation.clients:
        yield f"evaluation.clients = true: {shown}"
    if driver.evaluation.client_test:
        yield f"evaluation.client_test = true: {shown}"
    if driver.clients.held:
        yield f"evaluation.held_out = {driver.evaluation.held_out:g}: {shown}"
