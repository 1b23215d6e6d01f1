"""What both systems are given to do, by the same client where there is one: h2load, with requests encoded before.

h2load sends one request over and over, so its puts are all of one key. The systems' own clients put new keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.h2load import WARMUP_S, h2load
from bench.store.systems import System
from bench.unary import SHORT
from bench.work import MeasurementFailed, Outcome, Work
from dledger.etcdpb import rpc_pb2 as rpc

PUT, RANGE = "/etcdserverpb.KV/Put", "/etcdserverpb.KV/Range"
KEY = b"bench/key"
VALUE_BYTES = 128
PUT_MESSAGE = rpc.PutRequest(key=KEY, value=bytes(VALUE_BYTES)).SerializeToString()
GET_MESSAGE = rpc.RangeRequest(key=KEY).SerializeToString()


@dataclass(frozen=True, slots=True)
class StoreWork:
    """``is_by_c``: h2load does it, else the system's own client. ``p50``: the latency is what is compared."""

    name: str
    inflight: int
    is_by_c: bool = True
    is_get: bool = False
    p50: bool = False


ONE_PUT = StoreWork("1 put in flight, h2load", 1, p50=True)
PUTS_64, PUTS_256 = (StoreWork(f"puts, h2load, {streams} streams", streams) for streams in (64, 256))
GETS_64, GETS_256 = (StoreWork(f"gets, h2load, {streams} streams", streams, is_get=True) for streams in (64, 256))
OWN_ONE_PUT = StoreWork("1 put in flight, own client", 1, is_by_c=False, p50=True)
OWN_PUTS_256 = StoreWork("puts, own client, 256 in flight", 256, is_by_c=False)
WORKS = (ONE_PUT, PUTS_64, PUTS_256, GETS_64, GETS_256, OWN_ONE_PUT, OWN_PUTS_256)
"""In this order: the first puts the key that the gets are of."""


def measure(system: System, work: StoreWork, duration_s: float) -> Outcome:
    """Raises PeerMissing and MeasurementFailed."""
    if not work.is_by_c:
        return system.load(Work(work.name, work.inflight, size_bytes=VALUE_BYTES), duration_s).without_errors()
    before = system.puts()
    outcome = _by_h2load(system, work, duration_s).without_errors()
    system.require_leader()
    for server in system.servers:
        server.raise_if_ended()
    counted = system.puts() - before
    if not work.is_get and counted < SHORT * outcome.records * (WARMUP_S + outcome.duration_s) / outcome.duration_s:
        raise MeasurementFailed(f"h2load counts {outcome.records} puts, and {system.title} did {counted}")
    return outcome


def _by_h2load(system: System, work: StoreWork, duration_s: float) -> Outcome:
    """A get that was refused would have no value in its answer."""
    method, message = (RANGE, GET_MESSAGE) if work.is_get else (PUT, PUT_MESSAGE)
    return h2load(
        system.leader_port,
        method,
        message,
        [server.pid for server in system.servers],
        duration_s,
        streams=work.inflight,
        least_answer_bytes=VALUE_BYTES if work.is_get else 1,
    )
