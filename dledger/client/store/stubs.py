"""The calls of the store on one channel, built by ``Endpoint.stub(StoreStubs)``: etcd's services, and StoreService."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dledger.client.stubs import ServiceStub
from dledger.etcdpb import rpc_pb2
from dledger.v1 import store_service_pb2

if TYPE_CHECKING:
    from dledger.rpc.client.channel import Channel


class StoreStubs:
    def __init__(self, channel: Channel) -> None:
        etcd = rpc_pb2.DESCRIPTOR.services_by_name
        self.kv: Any = ServiceStub(channel, etcd["KV"])
        self.watch: Any = ServiceStub(channel, etcd["Watch"])
        self.lease: Any = ServiceStub(channel, etcd["Lease"])
        self.maintenance: Any = ServiceStub(channel, etcd["Maintenance"])
        self.store: Any = ServiceStub(channel, store_service_pb2.DESCRIPTOR.services_by_name["StoreService"])
