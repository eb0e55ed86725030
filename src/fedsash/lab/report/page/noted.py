"""Pictures of files that may be damaged."""

from __future__ import annotations

from collections.abc import Callable

from ....runs.pictures import Picture
from ....runs.pictures.page import plotly
from ....settings.errors import LibraryError


def drawn_or_noted(what: object, draw: Callable[[], Picture], notes: list[str]) -> Picture | None:
    """The picture that `draw` makes, if the page can show it; otherwise None, and a line about `what` in `notes`.

    Raises `LibraryError` if a library is missing.
    """
    try:
        plotly(picture := draw())
    except LibraryError:
        raise
    except Exception as error:  # what a damaged file leads to can't be foreseen
        notes.append(f"left out: {what}: {error!r}")
        return None
    return picture
