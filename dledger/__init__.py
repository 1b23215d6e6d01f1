"""A replicated commitlog: Raft decides the order and keeps it; the log is the state.

::

    async with dledger.connect("127.0.0.1:20912") as log:
        ack = await log.append(b"hello")
        entry = await log.get(ack.index)

``connect`` reaches one group of a cluster, ``connect_cluster`` all of them; each has a blocking form. ``Node`` is a
cluster's member inside your own program. What is raised is in ``dledger.common.errors``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dledger.common.errors import (
    ChangePending,
    ChangeRefused,
    Compacted,
    ConfigError,
    CorruptLog,
    DeadlineExceeded,
    DiskError,
    DiskFull,
    DLedgerError,
    FutureRevision,
    GroupExists,
    InternalError,
    InvalidRequest,
    LeaseLost,
    LeaseNotFound,
    NewerFormat,
    NoSpace,
    NotLeader,
    OutcomeUnknown,
    OutOfRange,
    PeerRefused,
    PendingFull,
    ProducersFull,
    SequenceError,
    TransferFailed,
    Unavailable,
    UnknownGroup,
    UnknownMember,
    Unsupported,
    WrongExpectedIndex,
)
from dledger.common.memory import keep_freed_memory
from dledger.common.types import Ack, Consistency, Durability, Entry, Role
from dledger.version import __version__

if TYPE_CHECKING:
    from dledger.client import (
        Acks,
        Batch,
        BlockingCluster,
        BlockingLog,
        BlockingStore,
        Cluster,
        Compare,
        GroupInfo,
        Log,
        Metadata,
        Op,
        Store,
        connect,
        connect_blocking,
        connect_cluster,
        connect_cluster_blocking,
    )
    from dledger.common.config import Limits, NodeConfig, Timings
    from dledger.server.embedded import Node
    from dledger.statemachine.api import Refused, StateMachine
    from dledger.statemachine.replicated import replicate

__all__ = [
    "Ack",
    "Acks",
    "Batch",
    "BlockingCluster",
    "BlockingLog",
    "BlockingStore",
    "ChangePending",
    "ChangeRefused",
    "Cluster",
    "Compacted",
    "Compare",
    "ConfigError",
    "Consistency",
    "CorruptLog",
    "DLedgerError",
    "DeadlineExceeded",
    "DiskError",
    "DiskFull",
    "Durability",
    "Entry",
    "FutureRevision",
    "GroupExists",
    "GroupInfo",
    "InternalError",
    "InvalidRequest",
    "LeaseLost",
    "LeaseNotFound",
    "Limits",
    "Log",
    "Metadata",
    "NewerFormat",
    "NoSpace",
    "Node",
    "NodeConfig",
    "NotLeader",
    "Op",
    "OutOfRange",
    "OutcomeUnknown",
    "PeerRefused",
    "PendingFull",
    "ProducersFull",
    "Refused",
    "Role",
    "SequenceError",
    "StateMachine",
    "Store",
    "Timings",
    "TransferFailed",
    "Unavailable",
    "UnknownGroup",
    "UnknownMember",
    "Unsupported",
    "WrongExpectedIndex",
    "__version__",
    "connect",
    "connect_blocking",
    "connect_cluster",
    "connect_cluster_blocking",
    "keep_freed_memory",
    "replicate",
]

# Loaded at first use: a host of a Node does not pay for the client, nor a client for the server.
_LAZY = {
    "replicate": "dledger.statemachine.replicated",
    "Acks": "dledger.client",
    "Batch": "dledger.client",
    "BlockingCluster": "dledger.client",
    "BlockingLog": "dledger.client",
    "BlockingStore": "dledger.client",
    "Cluster": "dledger.client",
    "Compare": "dledger.client",
    "GroupInfo": "dledger.client",
    "Limits": "dledger.common.config",
    "Log": "dledger.client",
    "Metadata": "dledger.client",
    "Op": "dledger.client",
    "Store": "dledger.client",
    "Node": "dledger.server.embedded",
    "NodeConfig": "dledger.common.config",
    "Timings": "dledger.common.config",
    "Refused": "dledger.statemachine.api",
    "StateMachine": "dledger.statemachine.api",
    "connect": "dledger.client",
    "connect_blocking": "dledger.client",
    "connect_cluster": "dledger.client",
    "connect_cluster_blocking": "dledger.client",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'dledger' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    """What is loaded at first use is there for completion too, and nothing that this module only uses."""
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
