"""Many keys, many leases that expire together, many watches on one node."""

from __future__ import annotations

import json
from statistics import median
from typing import Any

from bench.store.cluster import LONGEST_S, StoreCluster, Tell
from bench.store.loading import heard

WATCHED_PUTS = 5
WATCHED = 0
"""The node."""


def fill(running: StoreCluster, keys: int, size: int, tell: Tell) -> dict[str, Any]:
    """So many keys, and what each node has of memory then."""
    child = running.work("fill", keys, size)
    try:
        said = {"event": "filling"}
        while said["event"] != "filled":
            said = json.loads(child.hear(LONGEST_S))
            tell(f"keys: {said.get('done', keys):,}")
    finally:
        child.end()
    status = running.store.status()
    return {
        "keys": status.keys,
        "seconds": said["seconds"],
        "state_mb": round(status.size_bytes / 1e6, 1),
        "memory": running.memory_mb(),
    }


def leases(running: StoreCluster, count: int, ttl_s: int, tell: Tell) -> dict[str, Any]:
    """``gone_s``: from the first to the last that went; all were due at one moment."""
    child = running.work("leases", count, ttl_s)
    try:
        granted = heard(child, "granted", LONGEST_S)
        tell(f"{count:,} leases were granted in {granted['seconds']} s")
        gone = heard(child, "gone", LONGEST_S)
    finally:
        child.end()
    del gone["event"]
    gone_s = round(gone["last_s"] - gone["first_s"], 3)
    tell(f"all leases were gone {gone_s} s after the first one")
    return {"leases": count, "ttl_s": ttl_s, "granted_s": granted["seconds"], **gone, "gone_s": gone_s}


def watches(running: StoreCluster, count: int, tell: Tell) -> dict[str, Any]:
    """Seconds from a put to the first and to the last watch that told of it; and the node's memory."""
    before_mb = running.resident_mb(WATCHED)
    child = running.work("watches", count)
    try:
        streams = heard(child, "watching", LONGEST_S)["streams"]
        watching_mb = running.resident_mb(WATCHED)
        tell(f"{count:,} watches on {streams} streams: {watching_mb - before_mb:,.0f} MB")
        told = []
        for _ in range(WATCHED_PUTS):
            child.tell("put")
            told.append(heard(child, "told", LONGEST_S))
            tell(f"the last watch told of a put after {told[-1]['last_s']} s")
        told_mb = running.resident_mb(WATCHED)
    finally:
        child.end()
    return {
        "watches": count,
        "streams": streams,
        "memory_mb": round(watching_mb - before_mb, 1),
        "memory_mb_behind_puts": round(told_mb - before_mb, 1),
        **{name: median(each[name] for each in told) for name in ("put_s", "first_s", "last_s")},
        "worst_last_s": max(each["last_s"] for each in told),
    }
