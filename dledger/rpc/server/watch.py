"""How long a server bears with a connection that does not go on. It decides; the shell asks once a second.

A client must say hello, and must end each frame and each header block in time. The server asks a silent client by a
PING: its machine may be gone without a word. Idle connections may stay.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dledger.common.http2_frames import ConnectionFault, ErrorCode
from dledger.rpc.http2.blocks import OpenBlock

HELLO_S = 10.0
"""From the connection on: the preface, SETTINGS, and the acknowledgement of the server's."""
HEADERS_S = 10.0
"""From the first frame of a header block to its last."""
FRAME_S = 30.0
"""From the first byte of a frame to its last."""
SILENT_S = 20.0
"""With calls under way: then it is asked."""
IDLE_SILENT_S = 300.0
"""Without."""
ANSWER_S = 10.0
"""From the question on."""


class Timeouts(NamedTuple):
    hello_s: float = HELLO_S
    headers_s: float = HEADERS_S
    frame_s: float = FRAME_S
    silent_s: float = SILENT_S
    idle_silent_s: float = IDLE_SILENT_S
    answer_s: float = ANSWER_S


class Watched(Protocol):
    """The parts of a connection that a watch looks at."""

    has_settings: bool
    has_acknowledged: bool

    @property
    def open_block(self) -> OpenBlock | None: ...

    @property
    def frame_began_s(self) -> float | None: ...

    @property
    def has_streams(self) -> bool: ...

    def ping(self) -> None: ...


class Watch:
    """Of one connection."""

    __slots__ = ("_asked_s", "_made_s", "_timeouts")

    def __init__(self, now_s: float, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._made_s = now_s
        self._asked_s = now_s

    def look(self, connection: Watched, heard_s: float, now_s: float) -> ConnectionFault | None:
        """Why the connection must end now; None: it need not. ``heard_s``: when the client said something last. Asks a
        silent client by a PING."""
        return self._unfinished(connection, now_s) or self._silent(connection, heard_s, now_s)

    def _unfinished(self, connection: Watched, now_s: float) -> ConnectionFault | None:
        timeouts = self._timeouts
        if not connection.has_acknowledged and now_s >= self._made_s + timeouts.hello_s:
            what = "an acknowledgement of SETTINGS" if connection.has_settings else "HTTP/2's first words"
            return ConnectionFault(ErrorCode.SETTINGS_TIMEOUT, f"{timeouts.hello_s:g} s without {what}")
        block = connection.open_block
        if block is not None and now_s >= block.began_s + timeouts.headers_s:
            return ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a header block was not ended in time")
        began_s = connection.frame_began_s
        if began_s is not None and now_s >= began_s + timeouts.frame_s:
            return ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a frame was not ended in time")
        return None

    def _silent(self, connection: Watched, heard_s: float, now_s: float) -> ConnectionFault | None:
        timeouts = self._timeouts
        if self._asked_s > heard_s:
            if now_s >= self._asked_s + timeouts.answer_s:
                return ConnectionFault(ErrorCode.NO_ERROR, f"no answer to a PING within {timeouts.answer_s:g} s")
            return None
        bears_s = timeouts.silent_s if connection.has_streams else timeouts.idle_silent_s
        if now_s >= heard_s + bears_s:
            self._asked_s = now_s
            connection.ping()
        return None
