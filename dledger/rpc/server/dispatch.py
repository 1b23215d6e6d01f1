"""The handler of each path, and how it is run: shared by a server's connections."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dledger.common.config import MIB
from dledger.rpc.server.held import Held, HeldLimits

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 16 * MIB
MAX_KNOWN_PATHS = 4_096
"""A generic handler may serve every path there is."""


class Handler(NamedTuple):
    """One method: what ``grpc.RpcMethodHandler`` says, looked up once."""

    takes_stream: bool
    gives_stream: bool
    behaviour: Callable[..., Any]
    decode: Callable[[bytes], Any] | None
    encode: Callable[[Any], bytes] | None
    is_quick: bool
    """It may be begun outside of a task, as it nearly always ends without waiting (``quick``)."""


class _Details(NamedTuple):
    """As ``grpc.HandlerCallDetails``."""

    method: str
    invocation_metadata: Sequence[tuple[str, str | bytes]] = ()


def quick(behaviour: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a unary method with a coroutine that nearly always ends without waiting. Up to its first wait it runs in no
    task, so it may not use anything that needs a task, such as ``asyncio.timeout``."""
    behaviour.is_quick = True  # type: ignore[attr-defined]
    return behaviour


class Dispatch:
    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES, held_limits: HeldLimits | None = None) -> None:
        self.max_message_bytes = max_message_bytes
        self.held = Held(held_limits)
        self._generic: list[Any] = []
        self._handlers: dict[str, Handler] = {}

    def add_generic(self, handlers: Sequence[Any]) -> None:
        """``grpc.GenericRpcHandler``\\s."""
        self._generic += handlers

    def add_methods(self, service: str, handlers: Mapping[str, Any]) -> None:
        """``grpc.RpcMethodHandler``\\s by the name of their method."""
        for name, handler in handlers.items():
            self._handlers[f"/{service}/{name}"] = _handler(handler)

    def find(self, path: str) -> Handler | None:
        known = self._handlers.get(path)
        if known is not None:
            return known
        for generic in self._generic:
            if (found := generic.service(_Details(path))) is not None:
                handler = _handler(found)
                if len(self._handlers) < MAX_KNOWN_PATHS:
                    self._handlers[path] = handler
                return handler
        return None


def _handler(handler: Any) -> Handler:
    takes, gives = handler.request_streaming, handler.response_streaming
    kinds = {
        (False, False): "unary_unary",
        (False, True): "unary_stream",
        (True, False): "stream_unary",
        (True, True): "stream_stream",
    }
    behaviour = getattr(handler, kinds[takes, gives])
    is_quick = bool(getattr(behaviour, "is_quick", False))
    return Handler(takes, gives, behaviour, handler.request_deserializer, handler.response_serializer, is_quick)
