"""The systems that speak gRPC, loaded with unary calls by a client in C."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.h2load import MANY_STREAMS, MANY_WORK, STREAMS, WARMUP_S, WORK, h2load
from bench.limits.empty_grpc import METHOD, append_message
from bench.peers.api import Peer
from bench.peers.dledger_python import DLedgerPython
from bench.peers.etcd import Etcd
from bench.work import MeasurementFailed, Outcome
from dledger.cli.ports import LOOPBACK
from dledger.client import connect_blocking

ETCD_PUT = "/etcdserverpb.KV/Put"
KEY = b"key"
SHORT = 0.8
"""Of the calls that h2load counts, so many must be in the log, with those of its warm-up."""


WORKS = {WORK: STREAMS, MANY_WORK: MANY_STREAMS}


def unary(peer: Peer, duration_s: float) -> Iterator[tuple[str, Callable[[], Outcome]]]:
    """The measurements, where there are any."""
    if isinstance(peer, DLedgerPython | Etcd):
        for work in WORKS:
            yield work, lambda work=work: measure(peer, work, duration_s)  # type: ignore[misc]


def measure(peer: DLedgerPython | Etcd, work: str, duration_s: float) -> Outcome:
    """One of ``WORKS``. Raises PeerMissing and MeasurementFailed."""
    if isinstance(peer, DLedgerPython):
        return _ours(peer, WORKS[work], duration_s)
    message = b"\x0a" + bytes([len(KEY)]) + KEY + b"\x12\x80\x01" + bytes(128)  # PutRequest(key=1, value=2)
    outcome = _load(
        peer, peer.leader_port, ETCD_PUT, message, streams=WORKS[work], duration_s=duration_s, done=peer.puts
    )
    peer.require_leader()
    return outcome


def _ours(peer: DLedgerPython, streams: int, duration_s: float) -> Outcome:
    with connect_blocking(peer.endpoints) as log:
        log.append(b"first")  # waits for a leader
        status = log.status()
        leader = status.node(status.leader or "")
        if leader is None:
            raise MeasurementFailed("the leader was lost")
        host, _, port = leader.address.rpartition(":")
        assert host == LOOPBACK
        return _load(
            peer,
            int(port),
            METHOD,
            append_message(),
            streams=streams,
            duration_s=duration_s,
            done=lambda: log.bounds()[1],
        )


def _load(
    peer: Peer, port: int, method: str, message: bytes, *, streams: int, duration_s: float, done: Callable[[], int]
) -> Outcome:
    """``done`` counts what the system did so far: h2load sees HTTP alone, in which a refusal is a success too."""
    before = done()
    outcome = _checked(
        h2load(port, method, message, [server.pid for server in peer.servers], duration_s, streams=streams)
    )
    for server in peer.servers:
        server.raise_if_ended()
    counted = done() - before
    if counted < SHORT * outcome.records * (WARMUP_S + outcome.duration_s) / outcome.duration_s:
        raise MeasurementFailed(f"h2load counts {outcome.records} calls, and {peer.title} did {counted}")
    return outcome


def _checked(outcome: Outcome) -> Outcome:
    if not outcome.records:
        raise MeasurementFailed(f"none of h2load's calls succeeded, {outcome.errors} failed")
    return outcome
