"""From the history of a store's clients to the verdict of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from dledger.kernels.history import FAIL, INFO, OK
from dledger.kernels.kernel import Findings
from dledger.kernels.rates import OUTCOMES, acknowledged_slots, rates_of
from dledger.kernels.store.appends import AppendCheck
from dledger.kernels.store.leases import LeaseCheck, check_ends
from dledger.kernels.store.linearizable import RegisterCheck
from dledger.kernels.store.locks import check_locks
from dledger.kernels.store.register import FOREVER
from dledger.kernels.store.timeline import check_causes, timeline_of
from dledger.kernels.store.watches import WatchCheck
from jepsen.analysis import availability, never_struck, read_json, reasons_against_faults
from jepsen.nemesis.schedule import Window, read_windows
from jepsen.store import kv, leases, lists, locks
from jepsen.store.copies import COPY, check_copies
from jepsen.store.journal import Call, History, read_history
from jepsen.store.load import HISTORY
from jepsen.store.watchers import COMPACT
from jepsen.store.watching import watches_of
from jepsen.store.writes import PREFIXES, writes_of

ALL_KEYS = ("\0", "\0")
FIRST_CHANGE = 2
"""The revision of an empty store is 1."""


def judge(run_dir: Path) -> dict[str, Any]:
    """Reads the history; writes verdict.json and rates.parquet beside it. Raises CONFIG_ERROR."""
    history = read_history(run_dir)
    plan = read_json(run_dir / "plan.json", {})
    end = read_json(run_dir / "end.json", {"copies": [], "unrecovered": []})
    windows = read_windows(run_dir / "faults.jsonl")
    nodes = max(plan.get("nodes", 0), len(end["copies"]))
    findings = findings_of(history, plan, nodes, windows)
    rates = _rates(history.calls)
    told: dict[str, Any] = {"valid": False, "reasons": [], **_outcomes(history.calls)}
    for found in findings.values():
        told |= {**found.counts, **found.violations}
    told |= availability(acknowledged_slots(rates), windows, plan.get("time_limit_s", 0.0), plan.get("nodes", 5))
    told |= {
        "unrecovered": len(end["unrecovered"]),
        "checks": {name: {**found.counts, **found.violations} for name, found in findings.items()},
        "violations": [*(name for found in findings.values() for name in found.violations), "unrecovered"],
        "faults": len(windows),
        "faults_that_did_not_bite": [window.fault for window in windows if not window.bit],
        "nemeses_that_never_struck": never_struck(plan, windows),
    }
    told["reasons"] = list(_reasons_against(told))
    told["valid"] = not told["reasons"]
    told["examples"] = [example for found in findings.values() for example in found.examples]
    (run_dir / "verdict.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    pq.write_table(rates, run_dir / "rates.parquet")
    return told


def findings_of(
    history: History, plan: Mapping[str, Any], nodes: int, windows: Sequence[Window]
) -> dict[str, Findings]:
    """Of the workload's checks. ``nodes``: how many copies there are to be at the end."""
    workload = plan.get("workload", "kv")
    found: dict[str, Findings] = {}
    if workload in ("kv", "watch"):
        found["registers"] = RegisterCheck(kv.operations_of(history.of(*kv.OPS))).findings
    if workload == "kv":
        found["lists"] = AppendCheck(lists.transactions_of(history.of(lists.OP))).findings
    if workload in ("lease", "lock"):
        disturbances = leases.disturbances_of(windows, history.calls)
        operations = leases.lease_operations_of(history.of(*leases.OPS))
        found["leases"] = LeaseCheck(operations, disturbances, leases.bounds_of(plan.get("nemeses", ()))).findings
    if workload == "lock":
        found["locks"] = check_locks(locks.holdings_of(history), locks.fenced_writes_of(history))
    if workload != "kv":
        found |= _watch_findings(history, nodes)
    found["copies"] = check_copies(history.about(COPY), nodes)
    return found


def _watch_findings(history: History, nodes: int) -> dict[str, Findings]:
    """Of the total history of events, and of all watches."""
    watches = list(watches_of(history))
    ends = [note.told["revision"] for note in history.about(HISTORY)]
    stories = [watch.seen for watch in watches if (watch.key, watch.end) == ALL_KEYS]
    timeline, merged = timeline_of(stories, FIRST_CHANGE, max(ends, default=0))
    compacted = [call.told["at"] for call in history.of(COMPACT)]
    compacted += [note.told["compact_revision"] for note in history.about(COPY)]
    read = Findings({"histories": len(ends)}, {"histories_unread": max(0, nodes - len(ends))})
    return {
        "history": merged,
        "histories": read,
        "causes": check_causes(timeline, writes_of(history), PREFIXES),
        "ends": check_ends(timeline, leases.leases_of_keys(history)),
        "watches": WatchCheck(watches, timeline, max(compacted, default=0)).findings,
    }


def _outcomes(calls: list[Call]) -> dict[str, int]:
    count = {outcome: sum(call.outcome == outcome for call in calls) for outcome in (OK, FAIL, INFO)}
    return {"attempts": len(calls), "acknowledged": count[OK], "unknown": count[INFO], "failed": count[FAIL]}


def _rates(calls: list[Call]) -> Any:
    """Of the operations that need a leader."""
    ended = [call for call in calls if call.completed_ns < FOREVER and not call.told.get("serializable")]
    return rates_of(
        np.array([OUTCOMES.index(call.outcome) for call in ended], dtype=np.int64),
        np.array([call.invoked_ns for call in ended], dtype=np.int64),
        np.array([call.completed_ns for call in ended], dtype=np.int64),
    )


def _reasons_against(told: Mapping[str, Any]) -> Iterator[str]:
    """Why the run is not valid, as people read it."""
    if not told["acknowledged"]:
        yield "nothing was acknowledged"
    if not told["final_reads"]:
        yield "the copies were not read at the end"
    for name in told["violations"]:
        if told[name]:
            yield f"{name.replace('_', ' ')}: {told[name]}"
    yield from reasons_against_faults(told)
