"""Who was left out of which rounds, and why."""

from __future__ import annotations

from collections.abc import Sequence

from ..collect import CollectedRun
from .markup import Html, table

MOST = 100
"""So many rows are shown of each run, those of most rounds."""
PARTS = 8

REFUSED = "upload refused: not finite, or too long"
SKIPPED = "round skipped"


def missing(runs: Sequence[CollectedRun]) -> Html | None:
    """A row for each client and reason, and one for each reason why rounds were skipped. None if all answered."""
    groups = [(run.name if len(runs) > 1 else None, rows) for run in runs if (rows := _rows(run))]
    if not groups:
        return None
    caption = f"Rounds from which clients are missing. Of each run the {MOST} rows with the most rounds are shown."
    return table(caption, ["client", "why", "how many rounds", "which"], groups, texts=2)


def _rows(run: CollectedRun) -> list[list[str]]:
    rounds: dict[tuple[str, str], list[int]] = {}
    for round, problems in run.problems.items():
        reasons = [(str(client), reason) for client, reason in problems.missing.items()]
        reasons += [(str(client), REFUSED) for client in problems.refused]
        if problems.skipped:
            reasons.append(("all", f"{SKIPPED}: {problems.skipped}"))
        for reason in dict.fromkeys(reasons):  # a client may be refused several times within a step of the server
            rounds.setdefault(reason, []).append(round)
    most = sorted(rounds.items(), key=lambda one: -len(one[1]))[:MOST]
    return [[client, why, str(len(of)), spans(of)] for (client, why), of in most]


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers as text, such as "1, 3 to 5"; at most `PARTS` parts."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    said = [str(first) if first == last else f"{first} to {last}" for first, last in parts]
    return ", ".join(said[:PARTS]) + (", ..." if len(said) > PARTS else "")
