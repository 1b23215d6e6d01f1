"""All services of etcd's API that are there, for one server."""

from __future__ import annotations

from random import Random
from typing import Any

from dledger.etcdpb import election_pb2_grpc, lock_pb2_grpc, rpc_pb2_grpc
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.server.etcd.backend import StoreBackend
from dledger.server.etcd.cluster_service import ClusterService
from dledger.server.etcd.election_service import ElectionService
from dledger.server.etcd.kv_service import KVService
from dledger.server.etcd.lease_service import LeaseService
from dledger.server.etcd.lock_service import LockService
from dledger.server.etcd.maintenance_service import MaintenanceService
from dledger.server.etcd.watch_service import PROGRESS_INTERVAL_S, WatchService

SERVICE_NAMES = (
    *(f"{rpc.DESCRIPTOR.package}.{name}" for name in ("KV", "Watch", "Lease", "Cluster", "Maintenance")),
    "v3lockpb.Lock",
    "v3electionpb.Election",
)
"""For reflection."""


def add_etcd_services(
    backend: StoreBackend, random: Random, registry: Any, *, progress_interval_s: float = PROGRESS_INTERVAL_S
) -> None:
    """``registry``: a server, or what stands in its place where services are added (TypedRegistry)."""
    rpc_pb2_grpc.add_KVServicer_to_server(KVService(backend), registry)
    watches = WatchService(backend, random, progress_interval_s=progress_interval_s)
    rpc_pb2_grpc.add_WatchServicer_to_server(watches, registry)
    rpc_pb2_grpc.add_LeaseServicer_to_server(LeaseService(backend), registry)
    rpc_pb2_grpc.add_ClusterServicer_to_server(ClusterService(backend), registry)
    rpc_pb2_grpc.add_MaintenanceServicer_to_server(MaintenanceService(backend), registry)
    lock_pb2_grpc.add_LockServicer_to_server(LockService(backend), registry)
    election_pb2_grpc.add_ElectionServicer_to_server(ElectionService(backend), registry)
