"""A run's samples as tables: medians and ranges over the rounds, ratios, shares of the limits, core-seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.h2load import MANY_WORK as UNARY_MANY
from bench.h2load import WORK as UNARY
from bench.limits import EMPTY_GRPC, FSYNC, LIMITS, LIMITS_TURN, PING_PONG, THREE_COPIES
from bench.machine import sentence
from bench.peers import OURS
from bench.work import BULK, SINGLE_WORKS

WORKS = (*(work.name for work in SINGLE_WORKS), BULK, UNARY, UNARY_MANY)
ONE = SINGLE_WORKS[0].name
NONE = "–"
SHARE_HEAD = """## dledger's share

How many times a system's rate ours is; with 1 in flight, how many times our p50 its p50 is: the median of the rounds
(lowest – highest). Above 1 we are ahead.
"""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median and the range of what the rounds gave."""

    middle: float
    low: float
    high: float
    is_steady: bool = True
    """Whether all were warm whom it is of."""

    @property
    def remark(self) -> str:
        return "" if self.is_steady else " · not steady"

    @classmethod
    def of(cls, values: Sequence[float], *, is_steady: bool = True) -> Spread:
        return cls(median(values), min(values), max(values), is_steady)


class Figures:
    """Looks up what a run measured."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.result = result

    def spread(self, system: str, work: str, key: str = "records_per_s") -> Spread | None:
        values = [sample[key] for sample in self._samples(system, work)]
        return Spread.of(values, is_steady=self._is_steady(system, work)) if values else None

    def middle(self, system: str, work: str, key: str = "records_per_s") -> float | None:
        found = self.spread(system, work, key)
        return found.middle if found else None

    def ratio(self, system: str, work: str, *, our_work: str = "") -> Spread | None:
        """How many times what the system does ours does, round by round; with one call in flight it is the system's
        p50 over ours. ``our_work``: what ours does, where that is another work."""
        ours, theirs = self._by_round(OURS, our_work or work), self._by_round(system, work)
        both = sorted(ours.keys() & theirs.keys())
        if work == ONE:
            ours, theirs = theirs, ours
        ratios = [ours[number] / theirs[number] for number in both]
        return Spread.of(ratios, is_steady=self._is_steady(system, work)) if both else None

    def cost(self, system: str, work: str) -> tuple[float, float] | None:
        """Microseconds of processor time a record, of the servers and of the client: medians over the rounds."""
        samples = [sample for sample in self._samples(system, work) if sample["records"]]
        if not samples:
            return None
        server, client = (
            median(sample[key] / sample["records"] * 1e6 for sample in samples)
            for key in ("server_core_s", "client_core_s")
        )
        return server, client

    def share(self, work: str, limit: str) -> Spread | None:
        """Our rate as per cent of the limit's, round by round."""
        ours, limits = self._by_round(OURS, work), self._by_round(LIMITS_TURN, limit)
        both = ours.keys() & limits.keys()
        return Spread.of([ours[number] / limits[number] * 100 for number in both]) if both else None

    def one_append(self) -> Spread | None:
        """Our p50 over what one append cannot do without: an fdatasync, and two hops there and back."""
        ours = self._by_round(OURS, ONE)
        sync, ping = (self._by_round(LIMITS_TURN, limit.name, "p50_ms") for limit in (FSYNC, PING_PONG))
        both = ours.keys() & sync.keys() & ping.keys()
        return Spread.of([ours[number] / (sync[number] + 2 * ping[number]) for number in both]) if both else None

    def errors(self, system: str, work: str) -> int:
        return int(sum(sample["errors"] for sample in self._samples(system, work)))

    def _is_steady(self, system: str, work: str) -> bool:
        """Whether it was warm in every round."""
        return all(sample.get("is_steady", True) for sample in self._samples(system, work))

    def _by_round(self, system: str, work: str, key: str = "") -> dict[int, float]:
        key = key or ("p50_ms" if work == ONE else "records_per_s")
        return {sample["round"]: sample[key] for sample in self._samples(system, work) if sample[key]}

    def _samples(self, system: str, work: str) -> list[dict[str, Any]]:
        return [each for each in self.result["samples"] if (each["system"], each.get("work")) == (system, work)]


def as_markdown(result: dict[str, Any]) -> str:
    """The whole report."""
    figures = Figures(result)
    parts = [
        _head(result),
        "## Rates\n\nThousand records a second: median (lowest – highest) of the rounds · p50 / p99 in ms.\n",
        _rates(figures),
        SHARE_HEAD,
        _ratios(figures),
        "## Seconds of processor time for a million records: servers + client\n",
        _cores(figures),
        "## Memory of the largest server, MB, the most up to the end of each work in any round\n",
        _memory(figures),
        "## The machine's limits, in the same run\n",
        _limits(figures),
        _shares(figures),
        _missing(result),
    ]
    return "\n".join(part for part in parts if part)


def _head(result: dict[str, Any]) -> str:
    machine, plan = result["machine"], result["plan"]
    return (
        f"# {machine['started']}: {plan['rounds']} rounds, {plan['duration_s']:g} s a measurement\n\n"
        f"{sentence(machine)} Three nodes and the client on this machine; records of 128 B. "
        f"Load average before the run: {machine['load_before']:.1f}.\n"
    )


def _rates(figures: Figures) -> str:
    def cell(system: str, work: str) -> str:
        rate = figures.spread(system, work)
        if rate is None:
            return NONE
        text = f"**{_thousands(rate.middle)}** ({_thousands(rate.low)} – {_thousands(rate.high)})"
        if errors := figures.errors(system, work):
            text += f" · **{errors} errors**"
        p50, p99 = (figures.middle(system, work, key) for key in ("p50_ms", "p99_ms"))
        return f"{text}{rate.remark} · {p50:.2f} / {p99:.1f}"

    return _system_table(
        figures, cell, ("acknowledged when", "bulk is"), lambda about: (about["promise"], about["bulk"])
    )


def _ratios(figures: Figures) -> str:
    def cell(system: str, work: str) -> str:
        ratio = figures.ratio(system, work)
        if ratio is None or system == OURS:
            return NONE
        return f"**{_times(ratio.middle)} ×** ({_times(ratio.low)} – {_times(ratio.high)}){ratio.remark}"

    return _system_table(figures, cell)


def _cores(figures: Figures) -> str:
    def cell(system: str, work: str) -> str:
        cost = figures.cost(system, work)
        return f"{cost[0]:.3g} + {cost[1]:.3g}" if cost else NONE

    return _system_table(figures, cell)


def _memory(figures: Figures) -> str:
    def cell(system: str, work: str) -> str:
        most = figures.spread(system, work, "largest_server_mb")
        return f"{most.high:,.0f}" if most else NONE

    return _system_table(figures, cell)


def _limits(figures: Figures) -> str:
    rows = []
    for limit in LIMITS:
        rate = figures.spread(LIMITS_TURN, limit.name)
        if rate is not None:
            low, middle, high = (each * limit.scale for each in (rate.low, rate.middle, rate.high))
            p50 = figures.middle(LIMITS_TURN, limit.name, "p50_ms") if limit.tells_p50 else None
            rows.append(
                (limit.name, f"{middle:,.0f} {limit.unit} ({low:,.0f} – {high:,.0f})", f"{p50:.3f}" if p50 else NONE)
            )
    return table(("limit", "rate", "p50 ms"), rows)


def _shares(figures: Figures) -> str:
    """Ours as shares of the limits."""
    lines = []
    in_a_frame = tuple((work.name, work.name, THREE_COPIES) for work in SINGLE_WORKS[1:])
    for name, work, limit in (("bulk", BULK, THREE_COPIES), *in_a_frame, ("unary gRPC", UNARY, EMPTY_GRPC)):
        if share := figures.share(work, limit.name):
            lines.append(f"- {name}: {share.middle:.3g} % ({share.low:.3g} – {share.high:.3g}) of: {limit.name}")
    if one := figures.one_append():
        lines.append(
            f"- 1 in flight: p50 is {one.middle:.1f} × ({one.low:.1f} – {one.high:.1f}) an fdatasync and two hops "
            "there and back"
        )
    return "dledger beside them, round by round:\n\n" + "\n".join(lines) + "\n" if lines else ""


def _missing(result: dict[str, Any]) -> str:
    failures = [
        f"- {each['system']}, round {each['round'] + 1}: {each['failure']}"
        for each in result["samples"]
        if "failure" in each
    ]
    lines = [f"- {name}: {reason}" for name, reason in result["missing"].items()] + failures
    return "## Missing, and failed\n\n" + "\n".join(lines) + "\n" if lines else ""


def _system_table(
    figures: Figures,
    cell: Callable[[str, str], str],
    more: Sequence[str] = (),
    about: Callable[[dict[str, Any]], Sequence[str]] = lambda _: (),
) -> str:
    systems = figures.result["systems"]
    rows = [
        (f"{each['title']} {each['version']}", *(cell(name, work) for work in WORKS), *about(each))
        for name, each in systems.items()
    ]
    return table(("", *WORKS, *more), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _times(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def _thousands(rate: float) -> str:
    return f"{rate / 1000:,.0f}" if rate >= 99_500 else f"{rate / 1000:.1f}" if rate >= 1_000 else f"{rate / 1000:.2f}"
