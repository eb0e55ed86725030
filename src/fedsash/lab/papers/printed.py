"""Numbers as papers print them: with deviations, marks for doubt, and targets that were not reached."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...settings.errors import check

NUMBER = re.compile(r"(?P<value>\d+(\.\d+)?)(?P<beyond>\+)?( ±(?P<std>\d+(\.\d+)?))?(?P<doubt> \?)?")


@dataclass(frozen=True)
class PrintedNumber:
    """One printed number: its `text`, and its meaning.

    - `"81.17"`: a value
    - `"45.8 ±0.3"`: a value with the paper's own deviation
    - `"1000+"`: the target was not reached in that many rounds (`beyond`)
    - `"22.75 ?"`: the number is suspicious, or its place in the table is inferred (`doubt`)
    - `"N/A"`: the paper has no number; there is no `value`
    - `"?"`: our source does not contain the number; there is no `value`
    """

    text: str
    value: float | None = None
    std: float | None = None
    beyond: bool = False
    doubt: bool = False

    @classmethod
    def read(cls, text: str) -> PrintedNumber:
        """The meaning of a printed number. Raises `ValueError` for any other text."""
        text = text.strip()
        if text in ("N/A", "?"):
            return cls(text, doubt=text == "?")
        match = NUMBER.fullmatch(text)
        check(match is not None, "published", text, "must be such as 81.17, 45.8 ±0.3, 1000+, 22.75 ?, N/A or ?")
        assert match is not None
        std = None
        if match["std"] is not None:
            std = float(match["std"])
        return cls(text, float(match["value"]), std, beyond=bool(match["beyond"]), doubt=bool(match["doubt"]))


def read_cell(text: str, form: str, count: int) -> tuple[PrintedNumber, ...]:
    """The `count` numbers of a printed cell: `"64.37 → 69.95"` has the form `"{} → {}"`. A single `"?"` is for all."""
    if text in ("N/A", "?"):
        return (PrintedNumber.read(text),) * count
    between = [re.escape(part) for part in form.split("{}")]
    match = re.fullmatch("(.+?)".join(between), text)
    check(match is not None and len(between) == count + 1, "published", text, f"must have the form {form}")
    assert match is not None
    return tuple(PrintedNumber.read(number) for number in match.groups())
