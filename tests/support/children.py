"""Functions that run in a fork of the test's process."""

from __future__ import annotations

import os
from collections.abc import Callable


def status_of_child(run: Callable[[], object]) -> int:
    """The exit status of a fork of this process that runs the function: 0, 1 for an error, or -N for signal N.

    The fork ends in any case, so that an error in it can't go on with the other tests.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
