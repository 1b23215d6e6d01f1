"""From a run's directory to its verdict: the checks, what the faults proved, how available the log was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dledger.common.errors import ConfigError
from dledger.kernels.checks import check_history, verdict
from dledger.kernels.history import Column
from dledger.kernels.kernel import Findings, whole_partial
from dledger.kernels.rates import SLOT_NS, RateKernel, acknowledged_slots
from jepsen.history import read_history
from jepsen.nemesis.api import majority_connected
from jepsen.nemesis.catalogue import ALL, EVERY, NEMESES
from jepsen.nemesis.members import Churn
from jepsen.nemesis.schedule import Window, read_windows
from jepsen.workloads import WORKLOADS

VIOLATIONS = (
    "lost",
    "unexpected",
    "vanished",
    "duplicated",
    "conflicts",
    "out_of_order",
    "reordered",
    "stale",
    "premature",
    "two_terms",
    "falling_terms",
    "gaps",
    "incomplete",
    "overfull",
    "copies_unread",
    "unrecovered",
)
"""The numbers in a verdict that must be 0."""
SECOND_NS = 1_000_000_000
SECOND_SLOTS = SECOND_NS // SLOT_NS
AFTERMATH_NS = 3_000_000_000
"""What a fault's end may cost belongs to the fault."""


def judge(history: Path) -> dict[str, Any]:
    """Reads the history; writes verdict.json and rates.parquet beside it. Raises CONFIG_ERROR.

    ``history`` is a run's directory, the history.parquet in one, or another file of that form: of that no more is known
    than what it holds, neither faults nor how many copies of the log there were."""
    run_dir = run_dir_of(history)
    findings, rates = findings_of(run_dir)
    windows = read_windows(run_dir / "faults.jsonl")
    plan = read_json(run_dir / "plan.json", {})
    told = verdict(findings)
    slots = acknowledged_slots(rates)
    told |= availability(slots, windows, plan.get("time_limit_s", 0.0), plan.get("nodes", 5))
    end = read_json(run_dir / "end.json", {"copies": [], "unrecovered": []})
    copies = max(plan.get("nodes", 0), len(end["copies"]))
    told |= {
        "copies_unread": max(0, copies + 1 - told["final_reads"]),
        "unrecovered": len(end["unrecovered"]),
        "faults": len(windows),
        "faults_that_did_not_bite": [window.fault for window in windows if not window.bit],
        "nemeses_that_never_struck": never_struck(plan, windows),
    }
    told["reasons"] = list(reasons_against(told))
    told["valid"] = bool(told["valid"] and not told["reasons"])
    told["examples"] = [example for found in findings.values() for example in found.examples]
    if run_dir.is_dir():
        (run_dir / "verdict.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
        pq.write_table(rates, run_dir / "rates.parquet")
    return told


def run_dir_of(history: Path) -> Path:
    """The run that a history.parquet belongs to; else what was given."""
    is_in_run = history.name == "history.parquet" and (history.parent / "plan.json").exists()
    return history.parent if is_in_run else history


def never_struck(plan: Mapping[str, Any], windows: Sequence[Window]) -> list[str]:
    """Faults that the plan asks for one by one, and of which none came."""
    asked = [name for name in plan.get("nemeses", ()) if name not in ("none", ALL)]
    asked = list(NEMESES) if EVERY in asked else asked
    if plan and WORKLOADS[plan["workload"]].churns_members:
        asked.append(Churn.name)
    if ALL in plan.get("nemeses", ()) and not windows:
        asked.append(ALL)
    struck = {window.fault for window in windows}
    return [name for name in dict.fromkeys(asked) if name not in struck]


def reasons_against(told: Mapping[str, Any]) -> Iterator[str]:
    """Why the run is not valid, as people read it."""
    if not told["acknowledged"]:
        yield "nothing was acknowledged"
    if not told["final_reads"]:
        yield "the log was not read at the end"
    for name in VIOLATIONS:
        if told[name]:
            yield f"{name.replace('_', ' ')}: {told[name]}"
    yield from reasons_against_faults(told)


def reasons_against_faults(told: Mapping[str, Any]) -> Iterator[str]:
    """The same of the faults alone."""
    for fault in dict.fromkeys(told["faults_that_did_not_bite"]):
        yield f"{fault} did not bite"
    for nemesis in told["nemeses_that_never_struck"]:
        yield f"{nemesis} never struck: give the run more time"


def findings_of(history: Path) -> tuple[dict[str, Findings], pa.Table]:
    """Every check's findings, and the merged partial of the rates."""
    found = check_history(lambda: read_history(history))
    return found, whole_partial(RateKernel(), read_history(history))


def availability(slots: Column, windows: list[Window], time_limit_s: float, nodes: int = 5) -> dict[str, Any]:
    """The share of the seconds with acknowledgements, and the longest time without, in all and for each fault.

    Only seconds in which a majority was connected count, and faults that left one so.
    """
    seconds = np.arange(int(time_limit_s))
    founders = [f"n{number}" for number in range(nodes)]
    bounds_ns = [(int(second) * SECOND_NS, (int(second) + 1) * SECOND_NS) for second in seconds]
    connected = np.array([_connected(windows, *bounds, founders) for bounds in bounds_ns], dtype=np.bool_)
    busy = np.isin(seconds, slots // SECOND_SLOTS)
    counted = int(connected.sum())
    begins_ns = sorted(window.began_ns for window in windows)
    waits, kept = {}, []
    for window in windows:
        next_ns = min([*(ns for ns in begins_ns if ns > window.began_ns), int(time_limit_s * 1e9)])
        waits[window.key] = _longest_wait_s(slots, window, next_ns)
        # Another fault may have been there, too, or just over.
        if window.majority and _connected(windows, window.began_ns, max(next_ns, window.began_ns + 1), founders):
            kept.append(waits[window.key])
    return {
        "seconds_with_majority": counted,
        "seconds_with_acks": int((busy & connected).sum()),
        "availability": round(float((busy & connected).sum()) / counted, 4) if counted else None,
        "longest_unavailability_s": max(kept, default=0.0),
        "unavailability_s": waits,
    }


def _longest_wait_s(slots: Column, window: Window, next_ns: int) -> float:
    """The longest time without an acknowledgement from the fault's begin until the next one's: its aftermath is its."""
    begin, end = window.began_ns // SLOT_NS, next_ns // SLOT_NS
    within = slots[(slots >= begin) & (slots <= end)]
    waits = np.diff(np.concatenate([[begin], within, [max(begin, end)]]))
    return round(float(waits.max()) * SLOT_NS / 1e9, 2)


def _connected(windows: list[Window], begin_ns: int, end_ns: int, founders: list[str]) -> bool:
    """Whether a majority was connected all through this time, for all that was cut and down then.

    Members may come and go: they are who they were as the last of these faults began."""
    now = [window for window in windows if window.began_ns < end_ns and begin_ns <= window.ended_ns + AFTERMATH_NS]
    cut = frozenset((sender, receiver) for window in now for sender, receiver in window.cut)
    down = frozenset(name for window in now for name in window.down)
    members = max(now, key=lambda window: window.began_ns).members if now else ()
    return majority_connected(members or founders, cut, down)


def read_json(file: Path, otherwise: Any) -> Any:
    """What the file holds; ``otherwise`` where there is none. Raises CONFIG_ERROR."""
    try:
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else otherwise
    except ValueError as failure:
        raise ConfigError(f"{file} is damaged: {failure}") from None
