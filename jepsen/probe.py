"""Asks every node a few times a second what it is: who leads in which term, and how far each node's log reaches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import grpc

from dledger.common.types import DEFAULT_GROUP
from dledger.v1 import admin_pb2, admin_pb2_grpc

INTERVAL_S = 0.2
TIMEOUT_S = 0.5


@dataclass(slots=True)
class Seen:
    """What a node said last; ``role`` is empty while it says nothing."""

    role: str = ""
    term: int = 0
    commit_index: int = -1
    disk: str = ""
    log_size_bytes: int = 0


class Probe:
    """Writes a line for every change of a node's role or term::

    {"ns": 1200000000, "node": "n1", "role": "leader", "term": 3}
    """

    def __init__(
        self, addresses: dict[str, str], file: Path, now_ns: Callable[[], int], *, group: str = DEFAULT_GROUP
    ) -> None:
        """``addresses``: gRPC addresses by node."""
        self._request = admin_pb2.StatusRequest(group=group)
        self._now_ns = now_ns
        self._out: TextIO = file.open("w", encoding="ascii")
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()
        self.seen: dict[str, Seen] = {}
        self.elections = 0
        """Terms in which somebody was seen to lead."""
        self._newest_term = 0
        for node, address in addresses.items():
            self.watch(node, address)

    def watch(self, node: str, address: str) -> None:
        """A node more."""
        channel = self._channels[node] = grpc.aio.insecure_channel(
            address, options=(("grpc.max_reconnect_backoff_ms", 500), ("grpc.initial_reconnect_backoff_ms", 100))
        )
        self.seen[node] = Seen()
        self._tasks.append(asyncio.create_task(self._follow(node, channel), name=f"probe {node}"))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for channel in self._channels.values():
            await channel.close()
        self._out.close()

    async def _follow(self, node: str, channel: grpc.aio.Channel) -> None:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        while True:
            try:
                answer = await stub.Status(self._request, timeout=TIMEOUT_S)
            except grpc.aio.AioRpcError:
                now = Seen(term=self.seen[node].term, commit_index=self.seen[node].commit_index)
            else:
                size = answer.log_size_bytes
                now = Seen(answer.role, answer.term, answer.commit_index, answer.disk.state, size)
            self.note(node, now)
            await asyncio.sleep(INTERVAL_S)

    def note(self, node: str, now: Seen) -> None:
        """What the node says now."""
        before, self.seen[node] = self.seen[node], now
        if (before.role, before.term) != (now.role, now.term):
            self._write(node)
        if now.role == "leader" and now.term > self._newest_term:
            self._newest_term = now.term
            self.elections += 1
        self._news.set()
        self._news = asyncio.Event()

    def begin(self) -> None:
        """Time is 0 now: writes down what each node is, as it had no reason to be written since."""
        for node in self.seen:
            self._write(node)

    def _write(self, node: str) -> None:
        seen = self.seen[node]
        line = {"ns": self._now_ns(), "node": node, "role": seen.role, "term": seen.term}
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()

    @property
    def leader(self) -> str | None:
        """Who says so in the newest term."""
        leading = [node for node, seen in self.seen.items() if seen.role == "leader"]
        return max(leading, key=lambda node: self.seen[node].term, default=None)

    def disk_of(self, node: str) -> str:
        return self.seen[node].disk

    async def wait_for_leader(self, within_s: float, *, other_than: str | None = None) -> str | None:
        await self._until(lambda: self.leader not in (None, other_than), within_s)
        return self.leader if self.leader != other_than else None

    async def wait_for_caught_up(self, node: str, within_s: float) -> bool:
        goal = max(seen.commit_index for seen in self.seen.values())
        return await self._until(lambda: bool(self.seen[node].role) and self.seen[node].commit_index >= goal, within_s)

    async def _until(self, holds: Callable[[], bool], within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                while not holds():
                    await self._news.wait()
        except TimeoutError:
            return holds()
        return True
