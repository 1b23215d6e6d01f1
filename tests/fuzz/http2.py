"""The client port's engine, without a socket: good conversations in HTTP/2, mutated until they are not.

A connection may end a stream, or itself, with a code of HTTP/2. It may not fail of a bug, hold anything behind its end,
carry out what nobody asked for, or touch another connection: one that behaves is asked all along.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from dledger.common import http2_frames as frames
from dledger.common.http2_frames import END_HEADERS, END_STREAM, ErrorCode, frame, literal
from dledger.rpc.http2.limits import Http2Limits
from dledger.rpc.server.connection import ServerConnection
from dledger.rpc.server.dispatch import Dispatch, quick
from dledger.rpc.server.held import HeldLimits
from tests.fuzz.mutate import HOSTILE_UNSIGNED, mutated_bytes

FRAMES_A_CONNECTION = 12
LOOK_EVERY = 1_000
"""Connections."""
MAX_GROWTH_BLOCKS = 10_000
"""Of Python's memory, from the second look to any later one: a few for each connection would be seen."""
LIMITS = Http2Limits(max_streams=20, connection_window_bytes=200_000, max_frame_bytes=32_768)
HELLO = frames.PREFACE + frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 100_000}) + frame(frames.SETTINGS, 1, 0)
PATHS = (b"/fuzz/Echo", b"/fuzz/Slow", b"/fuzz/Collect", b"/fuzz/Talk", b"/fuzz/None", b"")
_FIELDS = (
    *((b"grpc-timeout", b"1S"), (b"grpc-timeout", b"99999999H"), (b"grpc-timeout", b"-1S"), (b"te", b"trailers")),
    *((b"grpc-encoding", b"gzip"), (b"x-bin", b"AAE=,,"), (b"content-length", b"7"), (b"content-length", b"-1")),
    *((b"user-agent", b"fuzz"), (b"Upper", b"x"), (b"connection", b"close"), (b"x", b"\xff\x00"), (b"", b"")),
)


class _Method(NamedTuple):
    """As ``grpc.RpcMethodHandler``."""

    unary_unary: Any = None
    unary_stream: Any = None
    stream_unary: Any = None
    stream_stream: Any = None
    request_streaming: bool = False
    response_streaming: bool = False
    request_deserializer: Any = None
    response_serializer: Any = None


class Service:
    """What can be called. ``effects``: the requests that were carried out."""

    def __init__(self) -> None:
        self.effects = 0

    @quick
    async def echo(self, request: bytes, _context: Any) -> bytes:
        self.effects += 1
        return request

    async def slow(self, request: bytes, _context: Any) -> bytes:
        self.effects += 1
        await asyncio.sleep(0)
        return request * 3

    async def collect(self, requests: AsyncIterator[bytes], _context: Any) -> bytes:
        return b"".join([request async for request in requests])

    async def talk(self, requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    def methods(self) -> dict[str, _Method]:
        return {
            "Echo": _Method(unary_unary=self.echo),
            "Slow": _Method(unary_unary=self.slow),
            "Collect": _Method(stream_unary=self.collect, request_streaming=True),
            "Talk": _Method(stream_stream=self.talk, request_streaming=True, response_streaming=True),
        }


class _Bugs(logging.Handler):
    """What the engine has to say of itself is a failure."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class _Counted(ServerConnection):
    looked_at = 0
    """Frames."""
    requests = 0
    """Header blocks that began a stream: no more can be carried out."""

    def _on_frame(self, kind: int, stream_id: int, flags: int, payload: bytes) -> None:
        self.looked_at += 1
        super()._on_frame(kind, stream_id, flags, payload)

    def _on_new_stream(self, stream_id: int, block: bytes, *, is_end: bool) -> None:
        self.requests += 1
        super()._on_new_stream(stream_id, block, is_end=is_end)


class Http2:
    """The cases, and how each ended."""

    def __init__(self, seed: int) -> None:
        self.outcomes: Counter[str] = Counter()
        """Frames that were looked at, by how their connection ended."""
        self._random = Random(seed)
        self._service = Service()
        self._dispatch = Dispatch(max_message_bytes=50_000, held_limits=HeldLimits(500_000, 100_000, 100_000))
        self._dispatch.add_methods("fuzz", self._service.methods())
        self._good = self._connection()
        self._good_id = 1

    def run(self, frames_in_all: int) -> None:
        """Raises AssertionError for what must not be."""
        asyncio.run(self._run(frames_in_all))

    async def _run(self, frames_in_all: int) -> None:
        loop = asyncio.get_running_loop()
        lost: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _loop, context: lost.append(context))
        bugs = _Bugs()
        logger = logging.getLogger("dledger.rpc")
        logger.addHandler(bugs)
        try:
            self._good.receive(HELLO, 0.0)
            done, connections, looks = 0, 0, list[int]()
            while done < frames_in_all:
                done += await self._one(loop.time())
                connections += 1
                if connections % LOOK_EVERY == 0:
                    gc.collect()
                    looks.append(sys.getallocatedblocks())
                    assert looks[-1] - looks[:2][-1] < MAX_GROWTH_BLOCKS, f"it grows: {looks}"
                assert not bugs.records, bugs.records[0].getMessage()
                assert not lost, lost[0]
        finally:
            logger.removeHandler(bugs)

    def _connection(self) -> _Counted:
        return _Counted(LIMITS, lambda: None, 0.0, self._dispatch, "ipv4:127.0.0.1:1")

    async def _one(self, now_s: float) -> int:
        """One connection from its hello to its end. Returns how many frames were looked at."""
        random, connection = self._random, self._connection()
        data = HELLO + conversation(random, PATHS)
        if random.random() < 0.5:
            data = (
                mutated_bytes(random, data)
                if random.random() < 0.1
                else HELLO + mutated_bytes(random, data[len(HELLO) :])
            )
        effects = self._service.effects
        for piece in _pieces(random, data):
            connection.receive(piece, now_s)
            if random.random() < 0.1:
                connection.set_paused(is_paused=random.random() < 0.5)
            if random.random() < 0.3:
                await asyncio.sleep(0)
            connection.take_output()
            connection.pump()
        await asyncio.sleep(0)
        self._check_end(connection)
        connection.end(ErrorCode.CANCEL, "the fuzz goes on")
        for _ in range(3):
            await asyncio.sleep(0)  # what was cancelled ends
        self._check_nothing_is_left(connection)
        assert self._service.effects - effects <= connection.requests
        self._ask_another(now_s)
        return connection.looked_at

    def _check_end(self, connection: _Counted) -> None:
        fault = connection.fault
        if fault is None:
            self.outcomes["goes on"] += connection.looked_at
            return
        assert fault.code is not ErrorCode.INTERNAL_ERROR, repr(fault.__cause__)
        assert str(fault).isprintable()
        assert not connection.streams
        self.outcomes[fault.code.name] += connection.looked_at

    def _check_nothing_is_left(self, connection: ServerConnection) -> None:
        held = self._dispatch.held
        assert not connection.streams
        assert not connection._blocked
        assert connection.unfinished_bytes == 0
        left = (held.request_bytes, held.answer_bytes, held.turns.held_bytes, held.calls)
        assert left == (0, 0, 0, 0), left

    def _ask_another(self, now_s: float) -> None:
        """A connection that behaves is answered."""
        good, stream_id = self._good, self._good_id
        self._good_id += 2
        good.take_output()
        good.receive(_call(stream_id, b"/fuzz/Echo", b"good") + frames.window_update(0, 9), now_s + stream_id)
        answer = good.take_output()
        self._service.effects -= 1
        assert b"good" in answer, f"another connection was answered {answer!r}"
        assert not good.streams


def conversation(random: Random, paths: Sequence[bytes]) -> bytes:
    """Frames that are good where they stand, but for one now and then."""
    said, next_id, open_ids = [], 1, [1]
    for _ in range(random.randint(1, FRAMES_A_CONNECTION)):
        chance = random.random()
        if chance < 0.3:
            said.append(_headers(random, next_id, paths))
            open_ids.append(next_id)
            next_id += 2
        elif chance < 0.4:
            said.append(_call(next_id, random.choice(paths), b"x" * random.choice((0, 1, 5_000))))
            next_id += 2
        elif chance < 0.75:
            said.append(_data(random, random.choice(open_ids)))
        elif chance < 0.97:
            said.append(random.choice(_GOOD)(random, random.choice(open_ids)))
        else:
            stream_id = random.choice((*open_ids, 0, 2, next_id, 2**31 - 1))
            said.append(random.choice(_ANY)(random, stream_id))
    return b"".join(said)


def _headers(random: Random, stream_id: int, paths: Sequence[bytes] = PATHS) -> bytes:
    flags = random.choice((*(END_HEADERS,) * 12, END_HEADERS | END_STREAM, 0))
    block = _block(random, paths)
    if flags & END_HEADERS:
        return frame(frames.HEADERS, flags, stream_id, block)
    at = random.randrange(len(block))
    rest = frame(frames.CONTINUATION, END_HEADERS, stream_id, block[at:])
    return frame(frames.HEADERS, flags, stream_id, block[:at]) + rest


def _block(random: Random, paths: Sequence[bytes]) -> bytes:
    path = random.choice(paths)
    block = b"\x83\x86" + (literal(b":path", path) if random.random() < 0.7 else b"\x44" + bytes((len(path),)) + path)
    block += literal(b"content-type", b"application/grpc")
    for _ in range(random.choice((0, 0, 1, 3))):
        block += literal(*random.choice(_FIELDS))
    odd = (block + b"\xbe", b"\xbe\xbf", b"\x3f\xe1\x1f" + block, b"\x20" + block)
    return block if random.random() < 0.9 else random.choice(odd)


def _data(random: Random, stream_id: int) -> bytes:
    size = random.choice((0, 1, 10, 1_000, 20_000))
    said = size if random.random() < 0.8 else random.choice(HOSTILE_UNSIGNED)
    message = bytes((random.random() < 0.1,)) + said.to_bytes(4, "big") + bytes(size)
    flags = random.choice((0, 0, 0, END_STREAM, END_STREAM, frames.PADDED, frames.PADDED | END_STREAM))
    padded = bytes((random.choice((0, 1, 4, 200)),)) + message if flags & frames.PADDED else message
    return frame(frames.DATA, flags, stream_id, padded)


def _call(stream_id: int, path: bytes, message: bytes) -> bytes:
    block = b"\x83\x86" + literal(b":path", path) + literal(b"content-type", b"application/grpc")
    data = b"\0" + len(message).to_bytes(4, "big") + message
    return frame(frames.HEADERS, END_HEADERS, stream_id, block) + frame(frames.DATA, END_STREAM, stream_id, data)


def _settings(random: Random, _stream_id: int) -> bytes:
    values = {random.randint(0, 8): random.choice(HOSTILE_UNSIGNED) for _ in range(random.randint(0, 4))}
    return frames.settings_frame(values)


def _window(random: Random, stream_id: int) -> bytes:
    return frames.window_update(stream_id, random.choice(HOSTILE_UNSIGNED))


def _other(random: Random, stream_id: int) -> bytes:
    kind = random.choice((*range(10), 10, 0x42, 0xFF))
    size = random.choice((0, 4, 5, 6, 8, 12))
    return frame(kind, random.choice((0, 1, 4, 5, 8, 0x20, 0xFF)), stream_id, random.randbytes(size))


_GOOD: tuple[Callable[[Random, int], bytes], ...] = (
    lambda random, stream_id: frames.reset(stream_id, random.choice(list(ErrorCode))),
    lambda random, _: frame(frames.PING, random.choice((0, 1)), 0, random.randbytes(8)),
    lambda random, stream_id: frames.window_update(random.choice((0, stream_id)), random.randint(1, 100_000)),
    lambda random, _: frames.settings_frame({frames.INITIAL_WINDOW_SIZE: random.choice((0, 1, 70_000, 1 << 20))}),
    lambda random, _: frames.goaway(0, ErrorCode.NO_ERROR, "x" * random.choice((0, 100))),
    lambda _random, stream_id: frame(frames.PRIORITY, 0, stream_id, bytes(5)),
    lambda random, stream_id: frame(random.choice((10, 0x42, 0xFF)), 0, stream_id, random.randbytes(9)),
    lambda _random, stream_id: frame(frames.HEADERS, END_HEADERS | END_STREAM, stream_id, literal(b"x", b"y")),
)
_ANY: tuple[Callable[[Random, int], bytes], ...] = (_headers, _data, _settings, _window, _other)


def _pieces(random: Random, data: bytes) -> list[bytes]:
    """As they arrive."""
    if random.random() < 0.6:
        return [data]
    size = random.choice((1, 7, 100, 5_000)) if len(data) < 2_000 else random.choice((500, 5_000))
    return [data[at : at + size] for at in range(0, len(data), size)]
