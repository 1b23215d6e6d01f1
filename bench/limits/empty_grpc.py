"""A grpc.aio service that answers at once: what that library leaves to any server of ours.

It runs as a node does: on uvloop, with the same settings of gRPC, the collector and the allocator.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from pathlib import Path

from bench.h2load import h2load
from bench.processes import ANSWER_S, DIRECT, Child, answers, free_ports, wait_until
from bench.work import MeasurementFailed, Outcome
from dledger.cli.ports import LOOPBACK

FIRST_INDEX = 1
GRPC_ENGINE = "-event_engine_fork,-event_engine_client,-event_engine_listener,-event_engine_callback_cq"
"""Has gRPC poll in the thread that completes calls instead of a pool of threads of its own: 40 % of a round trip on a
small machine. Read by gRPC when it is first imported."""
METHOD = "/dledger.v1.LogService/Append"


def append_message(size_bytes: int = 128) -> bytes:
    """An AppendRequest with one record."""
    from dledger.v1 import log_pb2  # noqa: PLC0415  # only who asks for it needs protobuf

    return log_pb2.AppendRequest(records=[os.urandom(size_bytes)]).SerializeToString()


def empty_grpc(data: Path, duration_s: float) -> Outcome:
    """Unary calls from h2load."""
    (port,) = free_ports(1)
    server = Child([sys.executable, "-m", "bench.limits.empty_grpc", str(port)], data / "empty_grpc.log")
    try:
        wait_until(lambda: answers(port), "the empty service serves", children=[server])
        _check(port)
        return h2load(port, METHOD, append_message(), [server.pid], duration_s)
    finally:
        server.end()


def _check(port: int) -> None:
    """h2load takes a refusal for a success, too."""
    import grpc  # noqa: PLC0415

    from dledger.v1 import log_pb2, log_pb2_grpc  # noqa: PLC0415

    with grpc.insecure_channel(f"{LOOPBACK}:{port}", options=DIRECT) as channel:
        answer = log_pb2_grpc.LogServiceStub(channel).Append(log_pb2.AppendRequest(records=[b"one"]), timeout=ANSWER_S)
    if answer.base_index != FIRST_INDEX:
        raise MeasurementFailed(f"the empty service does not answer as it should: {answer}")


async def _serve(port: int) -> None:
    import grpc.aio  # noqa: PLC0415  # behind the switches

    from dledger.server.grpc_port import GRPC_OPTIONS  # noqa: PLC0415
    from dledger.v1 import log_pb2  # noqa: PLC0415

    async def append(_request: log_pb2.AppendRequest, _context: object) -> log_pb2.AppendResponse:
        return log_pb2.AppendResponse(base_index=FIRST_INDEX, count=1, term=1, timestamp_ms=1)

    server = grpc.aio.server(options=GRPC_OPTIONS)
    handler = grpc.unary_unary_rpc_method_handler(
        append, log_pb2.AppendRequest.FromString, log_pb2.AppendResponse.SerializeToString
    )
    service, method = METHOD[1:].split("/")
    server.add_registered_method_handlers(service, {method: handler})
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    server.add_insecure_port(f"{LOOPBACK}:{port}")
    await server.start()
    gc.collect()
    gc.freeze()
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    from dledger.cli.runtime import run
    from dledger.common.memory import keep_freed_memory

    os.environ.setdefault("GRPC_EXPERIMENTS", GRPC_ENGINE)
    keep_freed_memory()
    run(_serve(int(sys.argv[1])))
