"""Appends records exactly once and reads them back, over plain gRPC: python main.py ENDPOINTS COUNT NAME."""

import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import grpc

from dledger.v1 import log_pb2, log_pb2_grpc

ATTEMPT_S = 5.0
PATIENCE_S = 30.0
PASSING = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INTERNAL,
}


def passes(failure: Any) -> bool:
    """Whether the same request may succeed in a moment, at this node or another."""
    no_leader = any(key == "dledger-leader-id" for key, _ in failure.trailing_metadata() or ())
    return no_leader or failure.code() in PASSING


class Cluster:
    """Any node takes any call. After a failure the next node is asked."""

    def __init__(self, endpoints: list[str]) -> None:
        channels = [grpc.insecure_channel(endpoint) for endpoint in endpoints]
        self._nodes: Iterator[Any] = cycle(log_pb2_grpc.LogServiceStub(channel) for channel in channels)
        self.node = next(self._nodes)

    def again(self, failure: Any, deadline: float) -> None:
        """Raises what will not pass, or has lasted for too long."""
        if not passes(failure) or time.monotonic() > deadline:
            raise failure
        self.node = next(self._nodes)
        time.sleep(0.1)

    def call(self, ask: Callable[[Any], Any]) -> Any:
        """The answer to a request that may be sent twice."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask(self.node)
            except grpc.RpcError as failure:
                self.again(failure, deadline)


class Producer:
    """A record that is sent twice under one sequence number is appended once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        request = log_pb2.InitProducerRequest()
        self._id = cluster.call(lambda node: node.InitProducer(request, timeout=ATTEMPT_S)).producer_id
        self._sequence = 0

    def append(self, record: bytes) -> int:
        """The record's index, once it is on a majority's disks."""
        request = log_pb2.AppendRequest(records=[record], producer_id=self._id, base_sequence=self._sequence)
        answer = self._cluster.call(lambda node: node.Append(request, timeout=ATTEMPT_S))
        self._sequence += 1
        return answer.base_index


def follow(cluster: Cluster, index: int) -> Iterator[Any]:
    """Every record from ``index`` on, and every new one. Goes on at another node where a stream broke."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            request = log_pb2.ReadRecordsRequest(start_index=index, follow=True)
            for answer in cluster.node.ReadRecords(request):
                yield answer.entry
                index = answer.entry.index + 1
                deadline = time.monotonic() + PATIENCE_S
        except grpc.RpcError as failure:
            cluster.again(failure, deadline)


def main(endpoints: str, count: int, name: str) -> None:
    cluster = Cluster(endpoints.split(","))
    producer = Producer(cluster)
    indexes = [producer.append(f"{name} {number}".encode()) for number in range(count)]
    for entry in follow(cluster, indexes[0]):
        if entry.value.startswith(f"{name} ".encode()):
            print(entry.index, entry.value.decode())
        if entry.index == indexes[-1]:
            break


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
