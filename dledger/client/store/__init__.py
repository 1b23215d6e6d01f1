"""The client of the store: ``cluster.store()``, its blocking form, and the words of transactions."""

from __future__ import annotations

from dledger.client.store.blocking import BlockingStore
from dledger.client.store.candidacy import Leadership, Lock
from dledger.client.store.election import Election
from dledger.client.store.lease import Lease
from dledger.client.store.results import (
    Deleted,
    KeyValue,
    LeaseTimes,
    Pairs,
    PutDone,
    StoreStatus,
    TxnDone,
    TxnResponse,
    WatchBatch,
    WatchEvent,
)
from dledger.client.store.store import Store
from dledger.client.store.txn import Compare, Is, Op
from dledger.client.store.watch import Watch

__all__ = [
    "BlockingStore",
    "Compare",
    "Deleted",
    "Election",
    "Is",
    "KeyValue",
    "Leadership",
    "Lease",
    "LeaseTimes",
    "Lock",
    "Op",
    "Pairs",
    "PutDone",
    "Store",
    "StoreStatus",
    "TxnDone",
    "TxnResponse",
    "Watch",
    "WatchBatch",
    "WatchEvent",
]
