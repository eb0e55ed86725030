"""The passage of a request to its node, and of the reply back."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Passage:
    """What happens on the way of a request and its reply: without faults each comes once.

    `requests` and `replies` are the seconds by which each of their copies is late. The node's process dies at its disk
    operation `death` from the request on, if that is not 0, and is started again `restart` seconds later. Flower keeps
    the request, and its answer, `until` a moment.
    """

    until: float
    stored: bool = True
    requests: list[float] = field(default_factory=lambda: [0.0])
    replies: list[float] = field(default_factory=lambda: [0.0])
    fails: bool = False
    death: int = 0
    restart: float = 0.0
    alteration: str = ""
    old_reply: bool = False

    @property
    def fails_roll_call(self) -> bool:
        """Whether a roll call's answer may be an error, or can't be right; with other numbers of samples it can."""
        return self.fails or self.alteration not in ("", "samples")
