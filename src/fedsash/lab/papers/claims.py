"""Claims: what a paper says, as functions of numbers that say yes, no or "not decided".

A claim is decided by a number whose sign or size would be another if the claim were wrong. The same evidence is needed
for yes and for no: at least three seeds, whose 95 % interval lies on one side (`numbers.Quantity.interval`). A claim
about several numbers holds if each of them does, and fails if one does. Of many that hold, one may seem to fail by
chance, so a no takes Simes' test of all numbers of a comparison. What is printed, and what is calculated without
chance, is exact: one value decides.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Literal, TypeAlias

from ...settings.errors import check
from .numbers import SEEDS, Key, Label, Numbers, Quantity

if TYPE_CHECKING:
    from .ledger import Ledger
    from .results import Results

Evidence: TypeAlias = dict[str, Numbers]
"""The arguments of a claim's function by their names."""
Judge: TypeAlias = Callable[..., "Finding"]
Side: TypeAlias = Callable[[float, float], bool]
"""Whether an interval, from its lower to its upper end, lies on a side."""
MOST_LISTED = 6
"""Of more numbers the words of a finding have the lowest and the highest."""
NO_NUMBERS = "there are no numbers"
"""The words of a finding for which nothing that it needs was measured."""
Tier: TypeAlias = Literal["A", "B"]


@dataclass(frozen=True)
class Finding:
    """What numbers say of a claim: whether it holds, None if they don't decide it, and the numbers in `words`."""

    holds: bool | None
    words: str

    @property
    def verdict(self) -> str:
        """Yes, no or not decided."""
        if self.holds is None:
            return "not decided"
        return "yes" if self.holds else "no"

    def __str__(self) -> str:
        return f"{self.verdict}: {self.words}"


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    - `name`: its place in the list of claims, such as W19; `tier`: "A" for a headline, "B" for the rest
    - `where`: where the paper says it
    - `judge`: the function of its evidence; its docstring is the claim in our words, and what decides it
    - `cost`: what has to be run for a verdict, or "print", or "identity"
    - `printed`: the paper's own numbers as evidence, for what arithmetic on print decides
    - `identity`: numbers that are calculated here, for what holds or not without chance
    - `of` and `measure`: the reproduction whose results have the evidence, and how it is read from them
    - `entered`: how it is read from a ledger's rows of printed numbers, where it is not the numbers of a table as they
      are, such as rounds to a target that some runs did not reach
    - `subject`: of what such evidence is, where the paper's claim is of something else, such as another network; "" if
      it is of the same. It belongs to the setting in which the claim was judged, which then is not the printed one
    """

    name: str
    tier: Tier
    where: str
    judge: Judge
    cost: str
    printed: Callable[[], Evidence] | None = None
    identity: Callable[[], Evidence] | None = None
    of: str = ""
    measure: Callable[[Results], Evidence] | None = None
    subject: Callable[[Results], str] | None = None
    entered: Callable[[Ledger], Evidence] | None = None

    @property
    def says(self) -> str:
        """The claim in our words: the first paragraph of the function's docstring, on one line."""
        text = inspect.getdoc(self.judge) or ""
        return " ".join(text.split("\n\n")[0].split())

    @property
    def needs(self) -> list[str]:
        """The names of the evidence."""
        return list(inspect.signature(self.judge).parameters)

    def judged(self, evidence: Mapping[str, Numbers]) -> Finding:
        """What the evidence says. Without a part of it, or of a part without numbers, nothing is decided."""
        missing = [name for name in self.needs if not evidence.get(name)]
        if missing:
            return Finding(None, f"no {', no '.join(missing)}; costs {self.cost}")
        finding: Finding = self.judge(**{name: evidence[name] for name in self.needs})
        return finding

    def in_print(self) -> Finding | None:
        """Whether it holds in the paper's own numbers, or as a calculation; None if it is no such claim."""
        source = self.printed or self.identity
        if source is None:
            return None
        return self.judged(source())


@dataclass
class Claims:
    """The claims of one paper by name, in the order in which their functions stand in its file.

        claims = Claims("WiMA")

        @claims.add("W19", "A", where="Table 2", cost="print; X18", printed=table_2)
        def every_method_gains(accuracy):
            return above(accuracy.at(cell="WiMA") - accuracy.at(cell="base"))

    A name that is there already raises `SettingError`.
    """

    paper: str
    by_name: dict[str, Claim] = field(default_factory=dict)

    def add(
        self,
        name: str,
        tier: Tier,
        *,
        where: str,
        cost: str,
        printed: Callable[[], Evidence] | None = None,
        identity: Callable[[], Evidence] | None = None,
        of: str = "",
        measure: Callable[[Results], Evidence] | None = None,
        subject: Callable[[Results], str] | None = None,
        entered: Callable[[Ledger], Evidence] | None = None,
    ) -> Callable[[Judge], Judge]:
        """A decorator that adds a function as the claim of this name."""
        check(name not in self.by_name, "claim", name, "is there already")

        def added(judge: Judge) -> Judge:
            self.by_name[name] = Claim(name, tier, where, judge, cost, printed, identity, of, measure, subject, entered)
            return judge

        return added

    def __iter__(self) -> Iterator[Claim]:
        return iter(self.by_name.values())

    def __getitem__(self, name: str) -> Claim:
        check(name in self.by_name, "claim", name, f"there is none; {self.paper} has {', '.join(self.by_name)}")
        return self.by_name[name]


def above(numbers: Numbers, than: float = 0.0) -> Finding:
    """Whether all numbers are above a value: no if one is certainly not."""
    return _all(numbers, f"above {than:g}", lambda low, high: low > than, lambda low, high: high <= than)


def below(numbers: Numbers, than: float = 0.0) -> Finding:
    """Whether all numbers are below a value: no if one is certainly not."""
    return _all(numbers, f"below {than:g}", lambda low, high: high < than, lambda low, high: low >= than)


def between(numbers: Numbers, low: float, high: float) -> Finding:
    """Whether all numbers lie between two values, ends included: no if one certainly lies outside."""
    return _all(
        numbers,
        f"between {low:g} and {high:g}",
        lambda least, most: low <= least and most <= high,
        lambda least, most: most < low or least > high,
    )


def rising(numbers: Numbers, dim: str) -> Finding:
    """Whether the numbers rise from each label of a dimension to the next."""
    return above(numbers.steps(dim))


def falling(numbers: Numbers, dim: str) -> Finding:
    """Whether the numbers fall from each label of a dimension to the next."""
    return below(numbers.steps(dim))


def largest(numbers: Numbers, **label: str | float) -> Finding:
    """Whether the number with this label is above those with other labels of its dimension."""
    return below(numbers.without(**label) - numbers.at(**label))


def smallest(numbers: Numbers, **label: str | float) -> Finding:
    """Whether the number with this label is below those with other labels of its dimension."""
    return above(numbers.without(**label) - numbers.at(**label))


def every(*findings: Finding) -> Finding:
    """Whether all findings hold: no if one says no."""
    return Finding(_conjunction([finding.holds for finding in findings]), _words(findings))


def either(*findings: Finding) -> Finding:
    """Whether one of the findings holds at least: no if all say no."""
    all_opposite = _conjunction([opposite(finding).holds for finding in findings])
    return opposite(Finding(all_opposite, _words(findings)))


def _conjunction(holds: Collection[bool | None]) -> bool | None:
    """Whether all hold, in three values: one that does not decides, and then one that is not known."""
    if False in holds:
        return False
    if None in holds:
        return None
    return True


def _words(findings: Sequence[Finding]) -> str:
    """The words of findings one after another; once, if none has numbers."""
    if findings and all(finding.words == NO_NUMBERS for finding in findings):
        return NO_NUMBERS
    return "; ".join(finding.words for finding in findings)


def opposite(finding: Finding) -> Finding:
    """Whether the finding does not hold."""
    if finding.holds is None:
        return finding
    return Finding(not finding.holds, finding.words)


def _all(numbers: Numbers, what: str, yes: Side, no: Side) -> Finding:
    """Whether all numbers are `what` is asked, as far as their intervals `(low, high)` say `yes` or `no`."""
    if not numbers:
        return Finding(None, NO_NUMBERS)
    holding = [yes(*quantity.interval()) for quantity in numbers.values()].count(True)
    count = f"{_counted(holding, numbers, what)}:"
    if _none_has_seeds(numbers):
        count = f"{what}?"
    holds = None
    if holding == len(numbers):
        holds = True
    elif _one_certainly(list(numbers.values()), no):
        holds = False
    return Finding(holds, f"{count} {_listed(numbers)}{_short_of_seeds(numbers)}")


def _one_certainly(quantities: Sequence[Quantity], side: Side) -> bool:
    """Whether one of the quantities lies on a side, by Simes' test of all of them.

    One does if for some k at least k of the n quantities lie there with intervals that leave out 5 % k / n (Simes
    1986). That happens by chance with a probability of at most 2.5 % where they are independent, or rise together.
    """
    known = [quantity for quantity in quantities if all(map(math.isfinite, quantity.interval()))]
    candidates = [quantity for quantity in known if side(*quantity.interval())]
    for count in range(1, len(candidates) + 1):
        certain = [side(*quantity.interval(of=len(known) / count)) for quantity in candidates]
        if certain.count(True) >= count:
            return True
    return False


def _counted(holding: int, numbers: Numbers, what: str) -> str:
    """How many numbers are `what` an interval says; one that may be so by chance is not counted."""
    count = len(numbers)
    if holding == count == 1:
        return what
    if holding < count and _by_chance(numbers):
        return f"{holding} of {count} certainly {what}"
    return f"{holding} of {count} {what}"


def _by_chance(numbers: Numbers) -> bool:
    """Whether a number is of runs: another seed would give another one."""
    return not all(quantity.exact for quantity in numbers.values())


def _listed(numbers: Numbers) -> str:
    """The means of the numbers if they are few, and otherwise the lowest and the highest; how many are not known."""
    means = {key: quantity.mean for key, quantity in numbers.items()}
    known = {key: mean for key, mean in means.items() if not math.isnan(mean)}
    if len(means) <= MOST_LISTED:
        words = ", ".join(_named(key, mean) for key, mean in known.items())
    elif known:
        low = min(known, key=known.__getitem__)
        high = max(known, key=known.__getitem__)
        words = f"from {_named(low, known[low])} to {_named(high, known[high])}"
    else:
        words = ""
    unknown = len(means) - len(known)
    if not unknown:
        return words
    return f"{words}, {unknown} not known" if words else f"{unknown} not known"


def _named(key: Key, value: float) -> str:
    """A value with its labels behind it."""
    words = []
    for label in key:
        words.append(f"{label:g}" if isinstance(label, float) else str(label))
    labels = ", ".join(words)
    return f"{value:.4g} ({labels})" if labels else f"{value:.4g}"


def _none_has_seeds(numbers: Numbers) -> bool:
    """Whether all numbers are of runs with too few seeds to say anything: none can be counted for or against."""
    return all(not quantity.exact and len(quantity.values) < SEEDS for quantity in numbers.values())


def _short_of_seeds(numbers: Numbers) -> str:
    """A note where numbers of runs have too few seeds to decide anything; "" otherwise."""
    fewest = min(len(quantity.values) for quantity in numbers.values())
    if fewest >= SEEDS or not _by_chance(numbers):
        return ""
    return f"; {fewest} of the {SEEDS} seeds that a verdict needs"


def at_most(numbers: Numbers, than: float = 0.0) -> Finding:
    """Whether all numbers are at most a value: no if one is certainly above."""
    return _all(numbers, f"at most {than:g}", lambda low, high: high <= than, lambda low, high: low > than)


def lacking(numbers: Numbers, **wanted: Iterable[Label]) -> list[Key]:
    """The combinations of some dimensions' labels of which there is no number."""
    for dim in wanted:
        check(dim in numbers.dims, "lacking", dim, f"must be one of {', '.join(numbers.dims)}")
    places = [numbers.dims.index(dim) for dim in wanted]
    known = {tuple(key[place] for place in places) for key in numbers}
    return [key for key in product(*wanted.values()) if key not in known]


def of_all(finding: Finding, numbers: Numbers, **wanted: Iterable[Label]) -> Finding:
    """The finding of a claim about all of some labels: it is no yes without a number for each combination of them.

        of_all(above(gain), gain, row=ROWS, column=METHODS)

    A no stays one: a single number that contradicts is enough. `numbers` are those that the finding was made of, before
    they were reduced, because a reduced number does not show what it lacks.
    """
    labels = {dim: list(each) for dim, each in wanted.items()}
    missing = lacking(numbers, **labels)
    if not (finding.holds and missing):
        return finding
    first = ", ".join(map(str, missing[0]))
    count = prod(len(each) for each in labels.values())
    return Finding(None, f"{finding.words}; {len(missing)} of {count} are missing, such as {first}")


def of_many(finding: Finding, count: int, least: int, of: str) -> Finding:
    """The finding; if it holds, but for fewer than the `least` cases that it takes to say "always", it is undecided."""
    if finding.holds and count < least:
        return Finding(None, f"{finding.words}; {count} of {least} {of}")
    return finding


def with_all(finding: Finding, numbers: Numbers, **wanted: Iterable[Label]) -> Finding:
    """The finding, which decides nothing without a number for each combination of some labels: neither yes nor no.

    So it is where what is missing could turn a no as well: a mean, the best of several, a claim that there is one.
    """
    return opposite(of_all(opposite(of_all(finding, numbers, **wanted)), numbers, **wanted))


def given(condition: Finding, finding: Finding) -> Finding:
    """The finding where the condition holds; nothing is decided if it doesn't, or if that isn't known."""
    holds = finding.holds if condition.holds else None
    return Finding(holds, f"{finding.words}; given {condition.words}")


def agreed(findings: Mapping[str, Finding]) -> Finding:
    """What findings of different readings agree on: nothing is decided if one of them says otherwise or nothing."""
    if _words(list(findings.values())) == NO_NUMBERS:
        words = NO_NUMBERS
    else:
        words = "; ".join(f"{name}: {finding.verdict}, {finding.words}" for name, finding in findings.items())
    verdicts = {finding.holds for finding in findings.values()}
    if len(verdicts) != 1:
        return Finding(None, words)
    return Finding(verdicts.pop(), words)


def noted(finding: Finding, note: str) -> Finding:
    """The finding with a note behind its numbers; without numbers there is nothing to note."""
    if finding.words == NO_NUMBERS:
        return finding
    return Finding(finding.holds, f"{finding.words}; {note}")
