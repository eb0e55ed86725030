"""The tables of the papers' claims and of the reproductions, which the site has, and what a page says of the ledger.

    python -m site_build.claims             rewrite the page
    python -m site_build.claims --print     print the page of the claims with its tables

It rewrites what stands between `<!-- made: NAME -->` and `<!-- end -->` in docs/papers/index.md, how many printed
numbers have a row in `results/` at the printed setting. The site has the claims on their page, and on
docs/how-to/reproductions.md what there is.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedsash.lab import papers
from fedsash.lab.papers.claims import NO_NUMBERS, Claim, Finding
from fedsash.lab.papers.ledger import Ledger, cells
from fedsash.lab.papers.numbers import Key, Numbers
from fedsash.lab.papers.pick import SPEED_UPS
from fedsash.lab.papers.tables import DIMS
from fedsash.lab.papers.todo import cost_of

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / "papers" / "index.md"]
CLAIMS_PAGE = ROOT / "docs" / "papers" / "claims.md"
LEDGER = ROOT / "results"
TIERS = {"A": "Headline claims (A)", "B": "Further claims (B)"}
MADE = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
CLAIMS = re.compile(r"<!-- claims: (\w+) -->\n")
SCALES = "<!-- scales -->\n"
"""What the table of all reproductions takes the place of."""
ROUNDING = re.compile(r"-?\d[\d.]*e-(?:1[3-9]|[2-9]\d)\b")
"""A number that is a rounding error of float64, which differs by machine."""


def rewritten(text: str) -> str:
    """A page with its made parts made anew."""
    ledger = Ledger(LEDGER)

    def made(match: re.Match[str]) -> str:
        begin, _, end = match.groups()
        return f"{begin}{counted(ledger)}\n{end}"

    return MADE.sub(made, text)


def with_claims(text: str) -> str:
    """A page with the tables of its papers' claims: A and B, from their functions and the ledger. The page on
    reproductions gets the table of all of them."""
    if SCALES in text:
        return text.replace(SCALES, scales())
    if not CLAIMS.search(text):
        return text
    ledger = Ledger(LEDGER)
    return CLAIMS.sub(lambda match: tables(match[1], ledger), text)


def counted(ledger: Ledger) -> str:
    """How many printed numbers were run at the printed setting, and in which tables."""
    every = 0
    run = Counter[str]()
    partly = 0
    for reproduction in papers.reproductions().values():
        for cell in cells(reproduction):
            if cell.pick.statistic in SPEED_UPS:
                continue
            every += 1
            notes = [row.note for row in ledger.rows(cell) if row.printed_setting(cell)]
            run[cell.table.name] += bool(notes)
            partly += bool(notes) and all(note == "one strength of three" for note in notes)
    where = ", ".join(f"{count} of `{name}`" for name, count in run.most_common() if count)
    return (
        f"\nOf the {every} accuracies and rounds to a target that the papers' tables print, {run.total()} have been\n"
        f"run at the printed setting: {where}; {partly} of them with one strength of three.\n"
    )


def scales() -> str:
    """All reproductions, with the hours of `small` on two cores."""
    rows = [["reproduction", "shows", "hours of `small`"], ["---"] * 3]
    for name, reproduction in papers.reproductions().items():
        hours = cost_of(reproduction.plan("small").runs).hours
        time = "not timed" if math.isnan(hours) else f"{hours:.2g}"
        rows.append([f"`{name}`", reproduction.title, time])
    lines = [_line(cells) for cells in rows]
    return "\n" + "\n".join(lines) + "\n"


def tables(paper: str, ledger: Ledger) -> str:
    """The claims of a paper: a table for each tier."""
    of_paper = papers.claims()[paper].values()
    parts = []
    for tier, heading in TIERS.items():
        rows = [row(paper, claim, ledger) for claim in of_paper if claim.tier == tier]
        head = ["id", "claim", "where", "in print, or calculated", "in runs"]
        lines = [_line(cells) for cells in (head, ["---"] * len(head), *rows)]
        parts.append("\n".join([f"### {paper}: {heading}", "", *lines]))
    return "\n" + "\n\n".join(parts) + "\n"


def row(paper: str, claim: Claim, ledger: Ledger) -> list[str]:
    """The cells of a claim's row."""
    in_print = _words(claim.in_print())
    texts = (claim.says, claim.where, in_print, in_runs(paper, claim, ledger))
    return [claim.name, *(_cell(text) for text in texts)]


def in_runs(paper: str, claim: Claim, ledger: Ledger) -> str:
    """What runs say of a claim: each row of the ledger in its setting. Without any, what has to be run."""
    verdicts = [f"{_words(finding)} ({row['setting']})" for row, finding in ledger.judged(paper, claim)]
    finding = on_table(claim, ledger)
    if finding:
        verdicts.append(f"{_words(finding)} (the printed setting)")
    if verdicts:
        return "; ".join(verdicts)
    costs = [part for part in claim.cost.split("; ") if not re.match(r"(print|identity)\b", part)]
    if costs:
        return f"open: {'; '.join(costs)}"
    return "-"


def on_table(claim: Claim, ledger: Ledger) -> Finding | None:
    """What the ledger's rows at the printed setting say, of a claim about a paper's table; None without any.

    Where numbers are missing without which print would say something else, they decide nothing.
    """
    if claim.printed is None:
        return _finding(claim, claim.entered(ledger)) if claim.entered else None
    if claim.measure is None:
        return None
    printed = claim.printed()
    entered = claim.entered(ledger) if claim.entered else {}
    run = dict[str, Numbers]()
    needed = 0
    missing = 0
    for name, numbers in printed.items():
        run[name] = entered.get(name) or _measured(claim.of, numbers, ledger)
        for key in _needed(claim, printed, name):
            needed += bool(key)  # without a label it is the length of the runs, and no number of the table
            missing += key not in run[name]
    finding = _finding(claim, run)
    if not missing or finding is None:
        return finding
    words = re.sub("; .* are missing, such as .*", "", finding.words)
    return Finding(None, f"{words}; {missing} of {needed} numbers were not run")


def _finding(claim: Claim, evidence: dict[str, Numbers]) -> Finding | None:
    """What evidence says of a claim; None if it has no numbers for it."""
    if not all(evidence.values()):
        return None
    try:
        finding = claim.judged(evidence)
    except (ArithmeticError, LookupError, ValueError):
        return None
    return None if finding.words.startswith(NO_NUMBERS) else finding


def _measured(name: str, printed: Numbers, ledger: Ledger) -> Numbers:
    """What was run of these printed numbers of a reproduction."""
    reproduction = papers.load(name)
    if printed.dims != DIMS:
        return Numbers(printed.dims, {})
    for table in reproduction.bound_tables:
        if all(table.printed().get(key) == quantity for key, quantity in printed.items()):
            numbers = ledger.numbers(reproduction, table.name)
            return Numbers(DIMS, {key: numbers[key] for key in printed if key in numbers})
    return Numbers(printed.dims, {})


def _needed(claim: Claim, printed: dict[str, Numbers], name: str) -> Iterator[Key]:
    """The numbers of a claim's evidence without which its finding would be another one."""
    whole = claim.judged(printed)
    for key in printed[name]:
        others = dict(printed[name])
        del others[key]
        rest = Numbers(printed[name].dims, others)
        try:
            same = claim.judged({**printed, name: rest}) == whole
        except (ArithmeticError, LookupError, ValueError):
            same = False
        if not same:
            yield key


def _words(finding: Finding | None) -> str:
    """A finding in words, without rounding errors and costs; "-" for none."""
    if finding is None:
        return "-"
    words = ROUNDING.sub("0", str(finding))
    return re.sub("; costs .*", "", words)


def _line(cells: Iterable[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """A text as the content of a table's cell."""
    return " ".join(text.replace("|", "\\|").split())


def main(arguments: list[str]) -> None:
    """Rewrite the pages, or print the one of the claims."""
    if arguments == ["--print"]:
        print(with_claims(CLAIMS_PAGE.read_text()))
        return
    for page in PAGES:
        page.write_text(rewritten(page.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
