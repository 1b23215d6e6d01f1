"""What the processes of a run do: who appends, who reads what, and whether members come and go.

============  ==========================================================================================
set           clients append distinct values; everything is read once, at the end
set-full      … and readers look at the log all along, and must see what was acknowledged before
log           … and others get single records, and read every node's own committed prefix
local-reads   … mostly that: a reader for every node, learners too
membership    as set-full, while a node more joins, is promoted, and another one is removed
kv            of the store: clients get, put, delete, and compare and set keys, and append to lists, at every node
watch         of the store: clients write, and as many watch
lease         of the store: clients grant leases, keep them alive or not, and look when they are gone
lock          of the store: clients take locks, and write under their tokens, also when they have lost them
============  ==========================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

APPENDERS = range(100)
"""Process numbers of clients; the others' follow."""
READERS = range(100, 200)
GETTERS = range(200, 300)
LOCAL_READERS = range(300, 400)
FINAL_READER = 1000
"""At the end, of the leader; the next ones read every node's copy."""


@dataclass(frozen=True, slots=True)
class Workload:
    """How many of each; ``local_readers`` is a number for every node."""

    name: str
    readers: int = 0
    getters: int = 0
    local_readers: int = 0
    churns_members: bool = False
    has_learner: bool = False
    is_of_store: bool = False


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("set"),
        Workload("set-full", readers=2),
        Workload("log", readers=2, getters=6, local_readers=1),
        Workload("local-reads", readers=1, local_readers=2, has_learner=True),
        Workload("membership", readers=2, churns_members=True),
        Workload("kv", is_of_store=True),
        Workload("watch", is_of_store=True),
        Workload("lease", is_of_store=True),
        Workload("lock", is_of_store=True),
    )
}
