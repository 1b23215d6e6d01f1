"""The client: ``connect`` and ``connect_cluster`` for asyncio, their blocking forms for everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.client.admin_calls import Admin
from dledger.client.admin_results import GroupInfo, MembershipChange, RetentionChange, TrimResult
from dledger.client.arguments import check_group
from dledger.client.blocking import BlockingLog, BlockingNamedProducer
from dledger.client.blocking_admin import BlockingAdmin
from dledger.client.blocking_cluster import BlockingCluster, BlockingGroups
from dledger.client.client_options import (
    DEFAULT_BATCHES_IN_FLIGHT,
    DEFAULT_MAX_PENDING_BYTES,
    DEFAULT_TIMEOUT_MS,
    ClientOptions,
    given_endpoints,
)
from dledger.client.cluster import Cluster
from dledger.client.cluster_status import ClusterStatus, DiskInfo, FollowerInfo, NodeStatus, PeerRefusal
from dledger.client.groups import Groups
from dledger.client.log import Log
from dledger.client.metadata import MemberInfo, Metadata
from dledger.client.named_producer import NamedProducer
from dledger.client.results import FORGOTTEN_INDEX, Acks, AckSpan, Batch, SegmentInfo
from dledger.client.store import BlockingStore, Compare, Op, Store
from dledger.common.config import Limits
from dledger.common.types import DEFAULT_GROUP

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from dledger.client.waits import OnWait

__all__ = [
    "FORGOTTEN_INDEX",
    "AckSpan",
    "Acks",
    "Admin",
    "Batch",
    "BlockingAdmin",
    "BlockingCluster",
    "BlockingGroups",
    "BlockingLog",
    "BlockingNamedProducer",
    "BlockingStore",
    "ClientOptions",
    "Cluster",
    "ClusterStatus",
    "Compare",
    "DiskInfo",
    "FollowerInfo",
    "GroupInfo",
    "Groups",
    "Log",
    "MemberInfo",
    "MembershipChange",
    "Metadata",
    "NamedProducer",
    "NodeStatus",
    "Op",
    "PeerRefusal",
    "RetentionChange",
    "SegmentInfo",
    "Store",
    "TrimResult",
    "connect",
    "connect_blocking",
    "connect_cluster",
    "connect_cluster_blocking",
]


def connect(
    endpoints: str | Sequence[str] | None = None,
    *,
    group: str = DEFAULT_GROUP,
    cluster_id: str | None = None,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    max_pending_bytes: int = DEFAULT_MAX_PENDING_BYTES,
    max_batches_in_flight: int = DEFAULT_BATCHES_IN_FLIGHT,
    limits: Limits | None = None,
    rng: random.Random | None = None,
    on_wait: OnWait | None = None,
) -> Log:
    """A client of one group of the cluster at ``endpoints`` (host:port, comma-separated or a list), for ``async with``.

    Without ``endpoints`` they are those of the variable DLEDGER_ENDPOINTS, as on the command line.

    Nothing is sent before the first use, so it raises only CONFIG_ERROR, and UNEXPECTED_ARGUMENT for what is of a
    wrong type. One reachable endpoint is enough: the others are learned from it. ``timeout_ms`` is every call's default
    deadline. ``on_wait`` is called with the reason why calls wait, once a second at most. See ``ClientOptions`` for the
    rest.

    Endpoints of two clusters are refused by the calls (UNKNOWN_CLUSTER), as soon as both have answered. With a
    ``cluster_id`` (``(await log.metadata()).cluster_id`` tells it) nobody else is ever talked to: nodes of another are
    passed over, and refused where there are no others.
    """
    group = DEFAULT_GROUP if group is None or group == "" else group
    check_group(group)
    options = ClientOptions(
        group=group,
        cluster_id="" if cluster_id is None else cluster_id,
        timeout_ms=timeout_ms,
        max_pending_bytes=max_pending_bytes,
        max_batches_in_flight=max_batches_in_flight,
        limits=Limits() if limits is None else limits,
        rng=rng,
        on_wait=on_wait,
    )
    return Log(given_endpoints(endpoints), options)


def connect_cluster(
    endpoints: str | Sequence[str] | None = None,
    *,
    cluster_id: str | None = None,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    max_pending_bytes: int = DEFAULT_MAX_PENDING_BYTES,
    max_batches_in_flight: int = DEFAULT_BATCHES_IN_FLIGHT,
    limits: Limits | None = None,
    rng: random.Random | None = None,
    on_wait: OnWait | None = None,
) -> Cluster:
    """A client of all groups of the cluster at ``endpoints``, for ``async with``: ``cluster.log("orders")``,
    ``cluster.groups``.

    The arguments are those of ``connect``. Each log has them for itself: ``max_pending_bytes`` bounds one log.
    """
    options = ClientOptions(
        cluster_id="" if cluster_id is None else cluster_id,
        timeout_ms=timeout_ms,
        max_pending_bytes=max_pending_bytes,
        max_batches_in_flight=max_batches_in_flight,
        limits=Limits() if limits is None else limits,
        rng=rng,
        on_wait=on_wait,
    )
    return Cluster(given_endpoints(endpoints), options)


def connect_blocking(
    endpoints: str | Sequence[str] | None = None,
    *,
    group: str = DEFAULT_GROUP,
    cluster_id: str | None = None,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    max_pending_bytes: int = DEFAULT_MAX_PENDING_BYTES,
    max_batches_in_flight: int = DEFAULT_BATCHES_IN_FLIGHT,
    limits: Limits | None = None,
    rng: random.Random | None = None,
    on_wait: OnWait | None = None,
) -> BlockingLog:
    """As ``connect``, for ``with``: every call blocks until it has its outcome. Safe to share between threads."""
    log = connect(
        endpoints,
        group=group,
        cluster_id=cluster_id,
        timeout_ms=timeout_ms,
        max_pending_bytes=max_pending_bytes,
        max_batches_in_flight=max_batches_in_flight,
        limits=limits,
        rng=rng,
        on_wait=on_wait,
    )
    return BlockingLog(log)


def connect_cluster_blocking(
    endpoints: str | Sequence[str] | None = None,
    *,
    cluster_id: str | None = None,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    max_pending_bytes: int = DEFAULT_MAX_PENDING_BYTES,
    max_batches_in_flight: int = DEFAULT_BATCHES_IN_FLIGHT,
    limits: Limits | None = None,
    rng: random.Random | None = None,
    on_wait: OnWait | None = None,
) -> BlockingCluster:
    """As ``connect_cluster``, for ``with``: every call blocks until it has its outcome. Safe to share between
    threads."""
    cluster = connect_cluster(
        endpoints,
        cluster_id=cluster_id,
        timeout_ms=timeout_ms,
        max_pending_bytes=max_pending_bytes,
        max_batches_in_flight=max_batches_in_flight,
        limits=limits,
        rng=rng,
        on_wait=on_wait,
    )
    return BlockingCluster(cluster)
