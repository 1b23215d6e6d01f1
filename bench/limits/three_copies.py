"""The least that any log with three synced copies must do, without elections, checks or an interface.

    client ──bytes──▶ leader ──the same bytes──▶ follower, follower
                        each: pwrite; one fdatasync at a time, what arrives meanwhile rides on the next
    client ◀──offset── leader ◀──offset──

An offset is acknowledged when two of the three have synced it. What a log does in bulk stands as a share of this: of
one file over and over, whose blocks and pages are there, for a moment; of a file behind another, as large as our
segments and as little of them in the page cache, for as long as one likes.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Queue

from bench.limits.disk import FILE_BYTES, prepared_file
from bench.limits.roles import accept, connect, end_with, server
from bench.processes import core_seconds
from bench.work import MeasurementFailed, Outcome
from dledger.common.config import Limits

BUFFER_BYTES = 1 << 20
WINDOW_BYTES = 8 << 20
RECORD_BYTES = 128 + 4
"""A record of 128 B and its offset in the body."""
BATCH_RECORDS = 1000
WARMUP_S = 0.5
OURS = Limits()
_OFFSET = struct.Struct("<Q")
_ENDED = "the leader of three synced copies has ended before the measurement: see above"


class _FollowerEnded(Exception):
    """Before the measurement was over."""


def _in_a_thread(work: Callable[..., None], *arguments: object) -> None:
    """A copy whose thread fails, as on a disk that is full, ends: or who waits for the thread would wait for ever."""

    def run() -> None:
        try:
            work(*arguments)
        except ConnectionError:
            pass  # the measurement is over, or another copy has ended, and told
        except (OSError, _FollowerEnded) as failure:
            end_with(failure)

    threading.Thread(target=run, daemon=True).start()


class Overwritten:
    """One file, over and over."""

    file_bytes = FILE_BYTES

    def __init__(self, path: Path) -> None:
        self._descriptor = prepared_file(path)

    def write(self, data: memoryview, offset: int) -> None:
        at = offset % self.file_bytes
        fits = min(len(data), self.file_bytes - at)
        os.pwrite(self._descriptor, data[:fits], at)
        if at + fits == self.file_bytes:
            self._roll()
            os.pwrite(self._descriptor, data[fits:], 0)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def _roll(self) -> None:
        """It is full: what comes is written from its beginning on."""


class Kept(Overwritten):
    """A file behind another, none written twice. Each has its room before it is needed, is synced with the last, and
    leaves the page cache when ``cached_bytes`` of younger ones lie behind the one that is written."""

    file_bytes = OURS.segment_max_bytes
    cached_bytes = OURS.page_cache_bytes

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unsynced: list[int] = []
        self._synced: deque[int] = deque()
        self._ready: Queue[int] = Queue(maxsize=1)
        self._done: Queue[int] = Queue()
        for work in (self._prepare_for_ever, self._drop_for_ever):
            _in_a_thread(work)
        self._roll()

    def sync(self) -> None:
        """By one thread alone."""
        begun = len(self._unsynced)
        for descriptor in self._unsynced[:begun]:
            os.fdatasync(descriptor)
        self._synced += self._unsynced[: begun - 1]
        del self._unsynced[: begun - 1]
        while len(self._synced) * self.file_bytes > self.cached_bytes:
            self._done.put(self._synced.popleft())

    def _roll(self) -> None:
        self._descriptor = self._ready.get()
        self._unsynced.append(self._descriptor)

    def _prepare_for_ever(self) -> None:
        for number in count():
            descriptor = os.open(f"{self._path}.{number}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            os.posix_fallocate(descriptor, 0, self.file_bytes)
            self._ready.put(descriptor)

    def _drop_for_ever(self) -> None:
        """Beside the syncs, as our storage does it (dledger/log/segment/sealer.py)."""
        while True:
            descriptor = self._done.get()
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


class _Copy:
    """``synced`` is told of every offset that an fdatasync has reached."""

    def __init__(self, files: Overwritten) -> None:
        self._files = files
        self._written = 0
        self._changed = threading.Condition()

    def write(self, data: memoryview) -> None:
        self._files.write(data, self._written)
        with self._changed:
            self._written += len(data)
            self._changed.notify()

    def sync_for_ever(self, synced: _Acks | socket.socket) -> None:
        done = 0
        while True:
            with self._changed:
                while self._written == done:
                    self._changed.wait()
                done = self._written
            self._files.sync()
            if isinstance(synced, socket.socket):
                synced.sendall(_OFFSET.pack(done))
            else:
                synced.note(0, done)


class _Acks:
    """The second of three marks is what a majority has; the client is told when it rises."""

    def __init__(self, client: socket.socket) -> None:
        self._marks = [0, 0, 0]
        self._told = 0
        self._client = client
        self._lock = threading.Lock()

    def note(self, copy: int, offset: int) -> None:
        with self._lock:
            self._marks[copy] = offset
            reached = sorted(self._marks)[1]
            if reached > self._told:
                self._told = reached
                self._client.sendall(_OFFSET.pack(reached))

    def hear_for_ever(self, copy: int, follower: socket.socket) -> None:
        with suppress(ConnectionResetError):
            for offset in _offsets(follower):
                self.note(copy, offset)
        raise _FollowerEnded(f"follower {copy} has ended")


def _offsets(connection: socket.socket) -> Iterator[int]:
    """The last of those that each read brings."""
    rest = b""
    while data := connection.recv(4096):
        rest += data
        whole = len(rest) // _OFFSET.size * _OFFSET.size
        if whole:
            yield _OFFSET.unpack_from(rest, whole - _OFFSET.size)[0]
            rest = rest[whole:]


def _follow(listening: socket.socket, files: type[Overwritten], path: Path) -> None:
    copy = _Copy(files(path))
    buffer = memoryview(bytearray(BUFFER_BYTES))
    with accept(listening) as leader:
        _in_a_thread(copy.sync_for_ever, leader)
        with suppress(ConnectionResetError):  # the measurement is over
            while received := leader.recv_into(buffer):
                copy.write(buffer[:received])


def _lead(listening: socket.socket, followers: list[int], files: type[Overwritten], path: Path) -> None:
    copy = _Copy(files(path))
    buffer = memoryview(bytearray(BUFFER_BYTES))
    links = [connect(port) for port in followers]
    with accept(listening) as client:
        acks = _Acks(client)
        _in_a_thread(copy.sync_for_ever, acks)
        for number, link in enumerate(links, 1):
            _in_a_thread(acks.hear_for_ever, number, link)
        while received := client.recv_into(buffer):
            for link in links:
                link.sendall(buffer[:received])
            copy.write(buffer[:received])


class _Client:
    """Keeps a window of bytes under way."""

    def __init__(self, leader: socket.socket) -> None:
        self._leader = leader
        self._sent = 0
        self._acked = 0
        self._is_over = False
        self._heard = threading.Condition()
        self._hearing = threading.Thread(target=self._hear_for_ever, daemon=True)
        self._hearing.start()

    def close(self) -> None:
        """Its thread ends with it, also when the leader has ended before: the socket is closed only behind this."""
        with suppress(OSError):  # not connected any more: the thread has heard that, or will
            self._leader.shutdown(socket.SHUT_RDWR)
        self._hearing.join()

    def send_for(self, duration_s: float) -> int:
        """Returns how many bytes it sent, when all of them are acknowledged. Raises MeasurementFailed."""
        batch = os.urandom(RECORD_BYTES * BATCH_RECORDS)
        before = self._sent
        end = time.perf_counter() + duration_s
        while time.perf_counter() < end:
            self._wait_until_under_way(WINDOW_BYTES)
            try:
                self._leader.sendall(batch)
            except ConnectionError as failure:
                raise MeasurementFailed(_ENDED) from failure
            self._sent += len(batch)
        self._wait_until_under_way(0)
        return self._sent - before

    def _wait_until_under_way(self, most_bytes: int) -> None:
        with self._heard:
            self._heard.wait_for(lambda: self._is_over or self._sent - self._acked <= most_bytes)
            if self._is_over:
                raise MeasurementFailed(_ENDED)

    def _hear_for_ever(self) -> None:
        with suppress(ConnectionError):
            for offset in _offsets(self._leader):
                with self._heard:
                    self._acked = offset
                    self._heard.notify()
        with self._heard:
            self._is_over = True
            self._heard.notify()


def three_copies(data: Path, duration_s: float, files: type[Overwritten] = Overwritten) -> Outcome:
    """``records`` are of 128 B, in batches of 1,000; a batch's latency is not measured. Raises MeasurementFailed where
    a copy cannot be written."""
    with ExitStack() as stack:
        followers = [stack.enter_context(server(_follow, files, data / f"copy{number}")) for number in (1, 2)]
        leader, port = stack.enter_context(server(_lead, [port for _, port in followers], files, data / "copy0"))
        nodes = [leader, *(process for process, _ in followers)]
        try:
            client = _Client(stack.enter_context(connect(port)))
        except ConnectionError as failure:
            raise MeasurementFailed(_ENDED) from failure
        client.send_for(WARMUP_S)
        used, own = _used(nodes), time.process_time()
        began = time.perf_counter()
        acked = client.send_for(duration_s)
        spent = time.perf_counter() - began
        servers, client_s = _used(nodes) - used, time.process_time() - own
        client.close()
    for path in data.glob("copy*"):
        path.unlink()
    return Outcome(acked // RECORD_BYTES, 0, spent, 0.0, 0.0, servers, client_s)


def _used(nodes: list[BaseProcess]) -> float:
    return core_seconds(node.pid for node in nodes if node.pid)
