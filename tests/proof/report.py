"""What is proved, for a reader: a line for each family, and behind it what some of them have to show."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from tests.proof.registry import CORRUPTION, FUZZ, MUTANTS, SIMULATION, Slice
from tests.proof.results import Result, Results
from tests.simulation.branches import missing

_KINDS = ("fault", "branch")


class Report:
    """Of these slices, and of what is known of them."""

    def __init__(self, slices: Sequence[Slice], results: Results) -> None:
        self._slices = slices
        self._done = [(each, result) for each in slices if (result := results.of(each)) is not None]
        done = {each.name for each, _ in self._done}
        left = [each for each in slices if each.name not in done]
        self._outdated = [result for each in left if (result := results.of_any_sources(each)) is not None]

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
        """Why this does not count as proved: what failed, was skipped, is yet to be run, or was never met."""
        names: defaultdict[str, list[str]] = defaultdict(list)
        for each, result in self._done:
            seeds = (f"seed {seed}: {invariant}" for seed, invariant in result.details.get("failed", ()))
            names[result.outcome].append("; ".join([each.name, *seeds]))
        left = len(self._slices) - len(self._done)
        return [
            *(f"failed: {name}" for name in names["failed"]),
            *(f"skipped, as this machine cannot do it: {name}" for name in names["skipped"]),
            *([f"{left} slices are yet to be run: make proof"] if left else []),
            *self._of_other_sources(),
            *(f"never met in {self._seeds:,} seeds: {name}" for name in missing(self._hits, self._seeds)),
        ]

    def _of_other_sources(self) -> list[str]:
        counts = Counter(result.commit for result in self._outdated).most_common()
        commits = ", ".join(f"{count} of {commit}" for commit, count in counts)
        said = f"{len(self._outdated)} of them have results that do not count, for their sources were others"
        failed = sum(result.outcome == "failed" for result in self._outdated)
        return [f"{said}: {commits}" + (f"; {failed} had failed" if failed else "")] if commits else []

    def table(self) -> list[str]:
        """A line for each family."""
        lines = [f"{'family':20s}{'slices':>12s}{'skipped':>9s}{'failed':>8s}{'minutes':>9s}  counted"]
        for family in dict.fromkeys(each.family for each in self._slices):
            done = self._of(family)
            counts = _added(result.counts for result in done)
            outcomes = Counter(result.outcome for result in done)
            minutes = sum(result.duration_s for result in done) / 60
            said = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in counts.items())
            progress = f"{outcomes['held']} of {sum(each.family == family for each in self._slices)}"
            skipped, failed = outcomes["skipped"], outcomes["failed"]
            lines.append(f"{family:20s}{progress:>12s}{skipped:>9d}{failed:>8d}{minutes:>9.1f}  {said}")
        return lines

    def _of(self, family: str) -> list[Result]:
        return [result for each, result in self._done if each.family == family]

    # The parts ---------------------------------------------------------------------------------------------------

    @property
    def _seeds(self) -> int:
        return sum(result.counts["passed"] for result in self._of(SIMULATION) if result.details)

    @property
    def _hits(self) -> Counter[str]:
        return _added(result.details.get("hits", {}) for result in self._of(SIMULATION))

    def _simulation(self) -> list[str]:
        done = [result for result in self._of(SIMULATION) if result.details]
        rate = self._seeds / max(sum(result.duration_s for result in done), 0.1)
        hours = sum(result.details["simulated_s"] for result in done) / 3600
        columns = []
        for kind in _KINDS:
            met = sorted(
                (name.removeprefix(f"{kind} "), count) for name, count in self._hits.items() if name.startswith(kind)
            )
            columns.append([f"{count:>12,}  {name}" for name, count in met])
        return [
            f"simulation: {self._seeds:,} seeds, {rate:.2f} a second, {hours:,.1f} simulated hours",
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


def _added(counts: Iterable[dict[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total
