"""etcd's API on one node, of etcd or of ours."""

from __future__ import annotations

from typing import Any

import grpc

from bench.processes import DIRECT
from dledger.cli.ports import LOOPBACK
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.etcdpb import rpc_pb2_grpc as stubs

ANSWER_S = 10.0


class NodeApi:
    """A channel to the node, for as long as it is asked. A node that was started again is asked by the same one."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._channel = grpc.insecure_channel(f"{LOOPBACK}:{port}", options=(*DIRECT, *_IMPATIENT))
        self._kv: Any = stubs.KVStub(self._channel)
        self._maintenance: Any = stubs.MaintenanceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def status(self) -> rpc.StatusResponse | None:
        """None where the node does not answer."""
        try:
            answer: rpc.StatusResponse = self._maintenance.Status(rpc.StatusRequest(), timeout=ANSWER_S)
        except grpc.RpcError:
            return None
        return answer

    def leads(self) -> bool:
        status = self.status()
        return status is not None and status.leader == status.header.member_id

    def put(self, key: bytes, value: bytes) -> int:
        """The revision of it. Raises grpc.RpcError."""
        return int(self._kv.Put(rpc.PutRequest(key=key, value=value), timeout=ANSWER_S).header.revision)


_IMPATIENT = (("grpc.initial_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 100))
"""A node that is started again is found soon."""
