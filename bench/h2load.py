"""Unary gRPC calls from a client in C: nghttp2's h2load, which any HTTP/2 server can be loaded with."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence

from bench.peers.api import require
from bench.processes import LOOPBACK, core_seconds
from bench.work import MeasurementFailed, Outcome

WORK = "unary gRPC, 64 streams"
STREAMS = 64
WARMUP_S = 1
GRACE_S = 30
"""For its start and its end."""
_TIMES = re.compile(r"time for request:\s+\S+\s+\S+\s+(\S+)")
_DONE = re.compile(r"requests: .* (\d+) succeeded, (\d+) failed")
_UNITS_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


def h2load(port: int, path: str, message: bytes, servers: Sequence[int], duration_s: float) -> Outcome:
    """64 calls at a time on one connection. ``p50_ms`` is the mean: h2load tells no percentile.

    HTTP/2 alone is counted: whether the calls did what they ask for, the caller must see. Raises PeerMissing.
    """
    program = require("h2load", "nghttp2-client")
    with tempfile.NamedTemporaryFile(prefix="dledger-bench-") as body:
        # A gRPC message: not compressed, its length, itself.
        body.write(struct.pack(">BI", 0, len(message)) + message)
        body.flush()
        flags = ["-t", "1", "-c", "1", "-m", str(STREAMS), "-d", body.name]
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
    done, times = _DONE.search(said), _TIMES.search(said)
    if done is None or times is None:
        raise MeasurementFailed(f"h2load said nothing of its requests: {said.strip()[-200:]}")
    mean_ms = _milliseconds(times[1])
    client = after.children_user + after.children_system - before.children_user - before.children_system
    share = counted_s / spent
    return Outcome(int(done[1]), int(done[2]), counted_s, mean_ms, 0.0, (ended - used) * share, client * share)


def _milliseconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()  # type: ignore[union-attr]
    return float(number) * _UNITS_MS[unit]
