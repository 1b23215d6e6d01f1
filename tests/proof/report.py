"""What is proved, for a reader: a line for each family, and behind it what some of them have to show."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import zip_longest
from math import inf

from tests.proof.registry import CORRUPTION, FUZZ, MUTANTS, SIMULATION, Slice
from tests.proof.results import Known, Result, Results, commits_since
from tests.simulation.branches import missing

_KINDS = ("fault", "branch")
_NAMED = 10
"""So many of the slices that were never run are named."""


class Report:
    """Of these slices, by the newest run of each: an older run that held never hides a newer one that did not."""

    def __init__(
        self,
        slices: Sequence[Slice],
        results: Results,
        commits_since: Callable[[str], int | None] = commits_since,
    ) -> None:
        self._slices = slices
        self._commits_since = cache(commits_since)
        self._known = [(each, known) for each in slices if (known := results.known(each)) is not None]

    @property
    def is_as_it_is(self) -> bool:
        """Whether every slice was last run of the present sources."""
        return len(self._known) == len(self._slices) and all(known.as_it_is for _, known in self._known)

    def word(self) -> str:
        """The verdict. ``shortcomings`` say why it is not proved."""
        if self.shortcomings():
            return "NOT PROVED"
        if self.is_as_it_is:
            return "PROVED as it is"
        earlier = [known.newest for _, known in self._known if not known.as_it_is]
        oldest = self._oldest(earlier)
        return f"PROVED, {len(earlier)} of {len(self._slices)} slices of earlier sources (oldest: {oldest.when})"

    def lines(self) -> list[str]:
        parts = {
            SIMULATION: self._simulation,
            MUTANTS: self._mutants,
            CORRUPTION: self._corruption,
            FUZZ: self._fuzz,
        }
        lines = self.table()
        for family, show in parts.items():
            if any(result.details for result in self._of(family)):
                lines += ["", *show()]
        return lines

    def shortcomings(self) -> list[str]:
        """Why this does not count as proved: what failed, was skipped, was never run, or was never met."""
        names: defaultdict[str, list[str]] = defaultdict(list)
        for each, known in self._known:
            names[known.newest.outcome].append("; ".join([each.name, *_remarks(known)]))
        return [
            *(f"failed: {name}" for name in names["failed"]),
            *(f"skipped, as this machine cannot do it: {name}" for name in names["skipped"]),
            *self._never_run(),
            *self._never_met(),
        ]

    def _never_run(self) -> list[str]:
        run = {each.name for each, _ in self._known}
        names = [each.name for each in self._slices if each.name not in run]
        named = ", ".join(names[:_NAMED]) + (f", and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        return (
            [f"never run, {len(names)} of {len(self._slices)} slices (make proof runs them): {named}"] if names else []
        )

    def _never_met(self) -> list[str]:
        """The seeds of the present sources must meet by themselves what so many seeds should meet. So must all seeds
        together: what hardly a seed meets is asked of no fewer."""
        ours, all_seeds = self._of(SIMULATION, as_it_is=True), self._of(SIMULATION)
        seeds, in_all = _seeds(ours), _seeds(all_seeds)
        unmet = missing(_hits(ours), seeds)
        also = [name for name in missing(_hits(all_seeds), in_all) if name not in unmet]
        earlier = f"{in_all - seeds:,} of them of earlier sources, which may not have known it"
        return [
            *(f"never met in {seeds:,} seeds: {name}" for name in unmet),
            *(f"never met in {in_all:,} seeds, {earlier}: {name}" for name in also),
        ]

    def table(self) -> list[str]:
        """A line for each family."""
        heading = f"{'family':20s}{'slices':>7s}{'as it is':>10s}{'earlier':>9s}  {'on':25s}{'commits since':>13s}"
        heading += f"{'never run':>11s}{'failed':>8s}{'skipped':>9s}{'minutes':>9s}  counted"
        return [heading, *map(self._row, dict.fromkeys(each.family for each in self._slices))]

    def _row(self, family: str) -> str:
        known = [known for each, known in self._known if each.family == family]
        done = [each.newest for each in known]
        asked = sum(each.family == family for each in self._slices)
        outcomes = Counter(result.outcome for result in done)
        earlier = [each.newest for each in known if each.newest.outcome == "held" and not each.as_it_is]
        when = f"  {_days(earlier):25s}{self._commits(earlier):>13s}"
        left, skipped, failed = asked - len(known), outcomes["skipped"], outcomes["failed"]
        minutes = sum(result.duration_s for result in done) / 60
        counts = _added(result.counts for result in done)
        said = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in counts.items())
        row = f"{family:20s}{asked:>7d}{outcomes['held'] - len(earlier):>10d}{len(earlier):>9d}{when}"
        return f"{row}{left:>11d}{failed:>8d}{skipped:>9d}{minutes:>9.1f}  {said}"

    def _commits(self, earlier: Sequence[Result]) -> str:
        """The number of commits since the oldest of them."""
        if not earlier:
            return "–"
        count = self._commits_since(self._oldest(earlier).commit)
        return "unknown" if count is None else f"{count:,}"

    def _oldest(self, results: Iterable[Result]) -> Result:
        """By day; of one day, the one with the most commits since. What is unknown counts as the oldest."""
        return min(results, key=lambda result: (result.day, -self._distance(result)))

    def _distance(self, result: Result) -> float:
        count = self._commits_since(result.commit)
        return inf if count is None else count

    def _of(self, family: str, *, as_it_is: bool = False) -> list[Result]:
        """The newest results of a family: all, or those of the present sources."""
        return [
            known.newest for each, known in self._known if each.family == family and (known.as_it_is or not as_it_is)
        ]

    # The parts ---------------------------------------------------------------------------------------------------

    def _simulation(self) -> list[str]:
        done = [result for result in self._of(SIMULATION) if result.details]
        seeds = _seeds(done)
        rate = seeds / max(sum(result.duration_s for result in done), 0.1)
        hours = sum(result.details["simulated_s"] for result in done) / 3600
        columns = []
        for kind in _KINDS:
            met = sorted(
                (name.removeprefix(f"{kind} "), count) for name, count in _hits(done).items() if name.startswith(kind)
            )
            columns.append([f"{count:>12,}  {name}" for name, count in met])
        return [
            f"simulation: {seeds:,} seeds, {rate:.2f} a second, {hours:,.1f} simulated hours",
            f"{'times':>12s}  {'fault':44s}{'times':>12s}  branch",
            *(f"{fault:58s}{branch}" for fault, branch in zip_longest(*columns, fillvalue="")),
        ]

    def _mutants(self) -> list[str]:
        found = [mutant for result in self._of(MUTANTS) for mutant in result.details.get("mutants", ())]
        return [
            f"mutants: {'name':35s}{'class':46s}{'caught by':44s}{'in seed':>7s}",
            *(
                f"{each['name']:44s}{each['class']:46s}{each['invariant'] or 'MISSED':44s}{each['seed']:>7d}"
                for each in sorted(found, key=lambda each: (int(each["class"].split()[0]), each["name"]))
            ),
        ]

    def _corruption(self) -> list[str]:
        tables: defaultdict[str, defaultdict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        for result in self._of(CORRUPTION):
            for title, structures in result.details.get("table", {}).items():
                for structure, found in structures.items():
                    tables[title][structure].update(found)
        lines = []
        for title, table in tables.items():
            columns = list(dict.fromkeys(outcome for found in table.values() for outcome in found))
            heading = f"corruption, {title}"
            lines.append(f"{heading:60s}" + "".join(f"{column:>20s}" for column in columns))
            for structure, found in sorted(table.items()):
                lines.append(f"{structure:60s}" + "".join(f"{found[each] or '–':>20}" for each in columns))
        return lines

    def _fuzz(self) -> list[str]:
        outcomes = _added(result.details.get("outcomes", {}) for result in self._of(FUZZ))
        return ["protocol fuzz", *(f"{count:>12,}  {name}" for name, count in sorted(outcomes.items()))]


def _remarks(known: Known) -> list[str]:
    """What there is to say of a run that did not hold."""
    seeds = [f"seed {seed}: {invariant}" for seed, invariant in known.newest.details.get("failed", ())]
    of_earlier = [] if known.as_it_is else [f"of earlier sources: {known.newest.when}"]
    held = [] if known.held is None else [f"held last: {known.held.when}"]
    return [*seeds, *of_earlier, *held]


def _days(results: Iterable[Result]) -> str:
    """The first day and the last one."""
    days = sorted({result.day for result in results})
    return " – ".join(day or "unknown" for day in dict.fromkeys([*days[:1], *days[-1:]])) or "–"


def _seeds(results: Iterable[Result]) -> int:
    return sum(result.counts["passed"] for result in results if result.details)


def _hits(results: Iterable[Result]) -> Counter[str]:
    return _added(result.details.get("hits", {}) for result in results)


def _added(counts: Iterable[dict[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total
