"""Unary gRPC calls from a client in C: nghttp2's h2load, which any HTTP/2 server can be loaded with."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.peers.api import require
from bench.processes import core_seconds
from bench.work import MeasurementFailed, Outcome
from dledger.cli.ports import LOOPBACK

STREAMS, MANY_STREAMS = 64, 256
WORK, MANY_WORK = (f"unary gRPC, {streams} streams" for streams in (STREAMS, MANY_STREAMS))
WARMUP_S = 1
GRACE_S = 30
"""For its start and its end."""
_DONE = re.compile(r"requests: .* (\d+) succeeded, (\d+) failed")
_DATA = re.compile(r"traffic: .*\((\d+)\) data")


def h2load(
    port: int,
    path: str,
    message: bytes,
    servers: Sequence[int],
    duration_s: float,
    *,
    streams: int = STREAMS,
    least_answer_bytes: int = 0,
) -> Outcome:
    """``streams`` calls at a time on one connection.

    HTTP/2 alone is counted: whether the calls did what they ask for, the caller must see. ``least_answer_bytes``: a
    refusal has no message, so the answers' mean size tells of some. Raises PeerMissing and MeasurementFailed.
    """
    program = require("h2load", "nghttp2-client")
    with tempfile.TemporaryDirectory(prefix="dledger-bench-") as folder:
        body, calls = Path(folder) / "body", Path(folder) / "calls"
        # A gRPC message: not compressed, its length, itself.
        body.write_bytes(struct.pack(">BI", 0, len(message)) + message)
        flags = ["-t", "1", "-c", "1", "-m", str(streams), "-d", str(body), f"--log-file={calls}"]
        counted_s = max(1, round(duration_s))
        flags += ["-D", str(counted_s), "--warm-up-time", str(WARMUP_S)]
        flags += ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        used, before, began = core_seconds(servers), os.times(), time.perf_counter()
        url = f"http://{LOOPBACK}:{port}{path}"
        command, limit_s = [program, *flags, url], counted_s + WARMUP_S + GRACE_S
        try:
            said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit_s).stdout
        except subprocess.TimeoutExpired:
            raise MeasurementFailed(f"h2load did not end within {limit_s:.0f} s") from None
        # With its warm-up: core-seconds are scaled to what was counted.
        spent, after, ended = time.perf_counter() - began, os.times(), core_seconds(servers)
        done = _DONE.search(said)
        if done is None:
            raise MeasurementFailed(f"h2load said nothing of its requests: {said.strip()[-200:]}")
        latencies_ms = _latencies_ms(calls.read_text())
    _check_answers(said, int(done[1]), least_answer_bytes)
    client = after.children_user + after.children_system - before.children_user - before.children_system
    share = counted_s / spent
    p50_ms, p99_ms = (latencies_ms[int(each * (len(latencies_ms) - 1))] for each in (0.5, 0.99))
    return Outcome(
        records=int(done[1]),
        errors=int(done[2]),
        duration_s=counted_s,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        server_core_s=(ended - used) * share,
        client_core_s=client * share,
    )


def _check_answers(said: str, answers: int, least_bytes: int) -> None:
    """Raises MeasurementFailed where the answers have fewer bytes of messages than that, each in the mean."""
    data = _DATA.search(said)
    if least_bytes and (data is None or int(data[1]) < answers * least_bytes):
        raise MeasurementFailed(f"h2load counts {answers} answers, and {data[1] if data else 'no'} bytes in them")


def _latencies_ms(log: str) -> list[float]:
    """In order, of the calls that were counted: a line each, with the start, the status, and microseconds."""
    return sorted(int(line.rpartition("\t")[2]) / 1000 for line in log.splitlines()) or [0.0]
