"""What the disk does: one file, written from its beginning over and over, so that its blocks are there."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench.work import Outcome

FILE_BYTES = 256 << 20
CHUNK_BYTES = 1 << 20
SMALL_BYTES = 4096


def prepared_file(path: Path, size_bytes: int = FILE_BYTES) -> int:
    """A descriptor of a file whose blocks are written and synced."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    zeros = bytes(CHUNK_BYTES)
    for offset in range(0, size_bytes, CHUNK_BYTES):
        os.pwrite(descriptor, zeros, offset)
    os.fsync(descriptor)
    return descriptor


def synced_writes(data: Path, write_bytes: int, duration_s: float) -> Outcome:
    """pwrite of ``write_bytes`` and fdatasync, one behind the other. ``records`` are the writes."""
    path = data / "limit.bin"
    descriptor = prepared_file(path)
    chunk = os.urandom(write_bytes)
    latencies: list[float] = []
    used, began = os.times(), time.perf_counter()
    now, offset = began, 0
    while now < began + duration_s:
        os.pwrite(descriptor, chunk, offset)
        os.fdatasync(descriptor)
        offset = (offset + write_bytes) % FILE_BYTES
        since, now = now, time.perf_counter()
        latencies.append(now - since)
    spent = os.times()
    os.close(descriptor)
    path.unlink()
    latencies.sort()
    return Outcome(
        records=len(latencies),
        errors=0,
        duration_s=now - began,
        p50_ms=latencies[len(latencies) // 2] * 1000,
        p99_ms=latencies[len(latencies) * 99 // 100] * 1000,
        server_core_s=spent.user + spent.system - used.user - used.system,
        client_core_s=0.0,
    )
