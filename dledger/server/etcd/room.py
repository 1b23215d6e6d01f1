"""What is refused before it is submitted, because the store would grow beyond this node's quota."""

from __future__ import annotations

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.server.etcd.backend import StoreBackend
from dledger.store.commands import command
from dledger.store.quota import has_room
from dledger.store.refusals import StoreCode, StoreRefused


async def ensure_room(backend: StoreBackend, cost_bytes: int) -> None:
    """Raises StoreRefused: NO_SPACE; the alarm is raised first, so that all nodes refuse until somebody takes it
    back."""
    if has_room(backend.store.pairs.size_bytes, cost_bytes, backend.quota_bytes):
        return
    if rpc.NOSPACE not in backend.store.alarms:
        alarm = rpc.AlarmRequest(
            action=rpc.AlarmRequest.ACTIVATE, memberID=backend.member_id, alarm=rpc.AlarmType.NOSPACE
        )
        await backend.submit(command(alarm))
    raise StoreRefused(StoreCode.NO_SPACE)
