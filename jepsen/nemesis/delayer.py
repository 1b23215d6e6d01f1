"""``python -m jepsen.nemesis.delayer DELAY_MS JITTER_MS``: holds what NFQUEUE 0 of this namespace is given.

::

    message   nlmsghdr: len u32 | type u16 | flags u16 | seq u32 | pid u32; nfgenmsg: family u8 | version u8 | be16
    attribute len u16 | type u16 | payload, padded to 4
    config    1 command (u8, u8, be16) · 2 parameters (be32 range, u8 mode: 1 = no payload) · 3 longest queue (be32)
    packet    1 header (be32 id, be16 protocol, u8 hook)
    verdict   2 (be32 verdict: 1 = accept, be32 id)

Only packets' ids come here, and go back: nothing is copied. Ends with SIGTERM, and says what it held as one JSON line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import socket
import struct
import sys

_NETLINK_NETFILTER = 12
_QUEUE = 3 << 8
_PACKET, _VERDICT, _CONFIG = _QUEUE | 0, _QUEUE | 1, _QUEUE | 2
_REQUEST = 1
_ACCEPT = 1
_LONGEST_QUEUE = 100_000
_RECEIVE_BYTES = 8 << 20


class Delayer:
    """Lets each packet go after ``delay_ms`` ± ``jitter_ms``."""

    def __init__(self, delay_ms: float, jitter_ms: float) -> None:
        self._delay_ms = delay_ms
        self._jitter_ms = jitter_ms
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        self._socket.bind((0, 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        self._socket.setblocking(False)
        self._send(_CONFIG, 1, struct.pack(">BBH", 1, 0, socket.AF_INET))
        self._send(_CONFIG, 2, struct.pack(">IB", 0, 1))
        self._send(_CONFIG, 3, struct.pack(">I", _LONGEST_QUEUE))
        self._loop.add_reader(self._socket, self._on_packets)
        self._waiting: set[int] = set()
        self.packets = 0
        self.held_ms = 0.0

    def close(self) -> None:
        """Lets go what is still held."""
        self._loop.remove_reader(self._socket)
        for packet_id in list(self._waiting):
            self._let_go(packet_id)
        self._socket.close()

    def _on_packets(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    received = self._socket.recv(65536)
                except OSError as failure:
                    if failure.errno == 105:  # ENOBUFS: the kernel dropped some that we were too slow for
                        continue
                    raise
                self._take(received)

    def _take(self, received: bytes) -> None:
        """A datagram may hold several messages."""
        place = 0
        while place + 16 <= len(received):
            length, kind = struct.unpack_from("=IH", received, place)
            if kind == _PACKET:
                # The header is the first attribute, right behind nlmsghdr, nfgenmsg and its own four bytes.
                self._hold(struct.unpack_from(">I", received, place + 24)[0])
            place += (length + 3) & ~3

    def _hold(self, packet_id: int) -> None:
        wait_ms = max(0.0, self._delay_ms + random.uniform(-self._jitter_ms, self._jitter_ms))
        self.packets += 1
        self.held_ms += wait_ms
        self._waiting.add(packet_id)
        self._loop.call_later(wait_ms / 1000, self._let_go, packet_id)

    def _let_go(self, packet_id: int) -> None:
        if packet_id in self._waiting:
            self._waiting.discard(packet_id)
            self._send(_VERDICT, 2, struct.pack(">II", _ACCEPT, packet_id))

    def _send(self, kind: int, attribute: int, payload: bytes) -> None:
        length = 4 + len(payload)
        body = struct.pack(">BBH", 0, 0, 0) + struct.pack("=HH", length, attribute) + payload + b"\0" * (-length % 4)
        self._socket.send(struct.pack("=IHHII", 16 + len(body), kind, _REQUEST, 0, 0) + body)


async def main(delay_ms: float, jitter_ms: float) -> None:
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    delayer = Delayer(delay_ms, jitter_ms)
    await ending.wait()
    delayer.close()
    sys.stdout.write(json.dumps({"packets": delayer.packets, "held_ms": round(delayer.held_ms)}) + "\n")


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), float(sys.argv[2])))
