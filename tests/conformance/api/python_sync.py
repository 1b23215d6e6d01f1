"""The node's API through grpcio's blocking client: ``python -m tests.conformance.api.python_sync HOST:PORT``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from dledger.v1 import log_pb2, log_pb2_grpc

TIMEOUT_S = 10.0
SOON_S = 0.3
LARGE = bytes(1 << 20)
FAR_INDEX = 1_000_000_000


class Checks:
    def __init__(self, channel: grpc.Channel) -> None:
        self._stub: Any = log_pb2_grpc.LogServiceStub(channel)

    def _append(self, *records: bytes) -> Any:
        return self._stub.Append(log_pb2.AppendRequest(records=records), timeout=TIMEOUT_S)

    def append(self) -> None:
        assert self._append(b"a", b"b", b"c").count == 3

    def _same(self, record: bytes) -> None:
        index = self._append(record).base_index
        assert self._stub.Get(log_pb2.GetRequest(index=index), timeout=TIMEOUT_S).entry.value == record

    def get(self) -> None:
        self._same(b"python")

    def large(self) -> None:
        self._same(LARGE)

    def read_follow(self) -> None:
        index = self._append(b"one").base_index
        call = self._stub.Read(log_pb2.ReadRequest(start_index=index, follow=True), timeout=TIMEOUT_S)
        assert next(call).batches[-1].body.endswith(b"one")
        self._append(b"two")
        assert next(call).batches[-1].body.endswith(b"two")
        call.cancel()

    def metadata(self) -> None:
        metadata = (("x-text", "some text"), ("x-raw-bin", b"\x00\x01\xff"))
        answer = self._stub.GetMetadata(log_pb2.GetMetadataRequest(), timeout=TIMEOUT_S, metadata=metadata)
        assert answer.leader_id

    def _followed(self, timeout_s: float) -> Any:
        end = self._append(b"end").base_index + 1
        return self._stub.Read(log_pb2.ReadRequest(start_index=end, follow=True), timeout=timeout_s)

    def deadline(self) -> None:
        assert _failure(lambda: next(self._followed(SOON_S))).code() is grpc.StatusCode.DEADLINE_EXCEEDED

    def cancel(self) -> None:
        call = self._followed(TIMEOUT_S)
        threading.Timer(SOON_S, call.cancel).start()
        assert _failure(lambda: next(call)).code() is grpc.StatusCode.CANCELLED

    def refusal(self) -> None:
        check_refusal(_failure(lambda: self._stub.Get(log_pb2.GetRequest(index=FAR_INDEX), timeout=TIMEOUT_S)))


def _failure(call: Callable[[], object]) -> Any:
    try:
        answer = call()
    except grpc.RpcError as failure:
        return failure
    raise AssertionError(f"it was answered: {answer!r:.60}")


def check_refusal(failure: Any) -> None:
    """Of an index that no log reaches: with an ErrorInfo that Google's own library understands."""
    assert failure.code() is grpc.StatusCode.OUT_OF_RANGE, failure
    status = rpc_status.from_call(failure)
    assert status is not None
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.domain, info.reason) == ("dledger", "INDEX_OUT_OF_RANGE")
    assert "commit_index" in info.metadata


def main(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        checks = Checks(channel)
        for name in ("append", "get", "read_follow", "large", "metadata", "deadline", "cancel", "refusal"):
            try:
                getattr(checks, name)()
            except Exception as failure:  # noqa: BLE001  # whatever it is, the judge is told
                print(f"failed {name}: {type(failure).__name__}: {' '.join(str(failure).split())}")
            else:
                print(f"ok {name}")


if __name__ == "__main__":
    main(sys.argv[1])
