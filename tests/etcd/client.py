"""A client of one server: carries out one operation after the other, and keeps what differs between two servers to
itself."""

from __future__ import annotations

import queue
from typing import Any

import grpc

from tests.etcd.answers import Answer, comparable, refused
from tests.etcd.operations import Operation
from tests.etcd.relative import resolved, without_ids
from tests.etcd.stubs import kv, rpc
from tests.etcd.watching import Watching

TIMEOUT_S = 20
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
SERVICES = ("KV", "Lease", "Cluster", "Maintenance")
_METHODS = {
    method.name: (f"/{service.full_name}/{method.name}", method)
    for service in (rpc.DESCRIPTOR.services_by_name[name] for name in SERVICES)
    for method in service.methods
}


class Client:
    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=OPTIONS)
        self._calls: dict[str, Any] = {}
        self._leases: list[int] = []
        self._numbers: dict[int, int] = {}
        """Of the leases that the server has named: as its how manieth, by id."""
        self.revision = 1
        self.now = Watching(self._channel, self._common)
        """Watches of the past and the present."""
        self.later = Watching(self._channel, self._common)
        """Watches that begin with a revision that is not there yet: they keep a stream from having progress."""
        self._keep_alives: queue.Queue[rpc.LeaseKeepAliveRequest | None] = queue.Queue()
        self._kept_alive = self._stream("LeaseKeepAlive")(iter(self._keep_alives.get, None))

    def _common(self, event: kv.Event) -> kv.Event:
        return without_ids(event, self._numbers)

    def close(self) -> None:
        self.now.close()
        self.later.close()
        self._keep_alives.put(None)
        self._channel.close()

    def begin(self, operation: Operation) -> Any:
        """What ``end`` wants to have."""
        request: Any = resolved(operation.request, self.revision, self._leases)
        if operation.kind == "LeaseKeepAlive":
            self._keep_alives.put(request)
            return self._kept_alive
        if operation.kind == "RangeStream":
            return self._stream("RangeStream")(request, timeout=TIMEOUT_S)
        return self._unary(operation.kind).future(request, timeout=TIMEOUT_S)

    def end(self, operation: Operation, begun: Any) -> Answer:
        try:
            if operation.kind == "LeaseKeepAlive":
                message = next(begun)
            elif operation.kind == "RangeStream":
                message = _joined(begun)
            else:
                message = begun.result()
        except grpc.RpcError as failure:
            return refused(failure)
        if operation.kind == "LeaseGrant" and not operation.request.ID:  # type: ignore[attr-defined]
            self._numbers[message.ID] = len(self._leases)
            self._leases.append(message.ID)
        self.revision = max(self.revision, message.header.revision)
        return comparable(operation, message, self._numbers)

    def watch(self, operation: Operation) -> None:
        """Returns when it is answered."""
        request: Any = resolved(operation.request, self.revision, self._leases)
        if operation.kind == "WatchCreate":
            (self.later if request.start_revision > self.revision else self.now).create(request)
            if 0 < request.start_revision <= self.revision:
                self.now.catch_up(self.revision)  # one that wants what is compacted goes, and its id is free
        else:
            self.now.cancel(request.watch_id)
            self.later.cancel(request.watch_id)

    def _unary(self, name: str) -> Any:
        if name not in self._calls:
            path, method = _METHODS[name]
            request, response = _types(method)
            self._calls[name] = self._channel.unary_unary(path, request.SerializeToString, response.FromString)
        return self._calls[name]

    def _stream(self, name: str) -> Any:
        path, method = _METHODS[name]
        request, response = _types(method)
        make = self._channel.stream_stream if name == "LeaseKeepAlive" else self._channel.unary_stream
        return make(path, request.SerializeToString, response.FromString)


def _types(method: Any) -> tuple[Any, Any]:
    return getattr(rpc, method.input_type.name), getattr(rpc, method.output_type.name)


def _joined(parts: Any) -> rpc.RangeResponse:
    """How an answer is cut is the server's affair; its header comes with one part."""
    whole = rpc.RangeResponse()
    for part in parts:
        whole.MergeFrom(part.range_response)
    return whole
