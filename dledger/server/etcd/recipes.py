"""What the services of locks and elections have in common: how they refuse.

In etcd they are clients of the server that they run in. What the store refuses reaches their callers with its text and
the status UNKNOWN. What passes by itself, as an election, keeps its own status here: then clients try again.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from dledger.server.etcd.refusals import EtcdError, Refusal
from dledger.server.etcd.turns import PlaceLost
from dledger.store.refusals import StoreRefused

Request = TypeVar("Request")
Response = TypeVar("Response")

SESSION_EXPIRED = EtcdError("UNKNOWN", "mutex: session is expired")
NOT_ELECTED = EtcdError("UNKNOWN", "election: not leader")
NOBODY_ELECTED = EtcdError("UNKNOWN", "election: no leader")
NO_LEADER_KEY = EtcdError("UNKNOWN", '"leader" field must be provided')


def recipe(
    if_lost: EtcdError,
) -> Callable[[Callable[[Any, Request], Awaitable[Response]]], Callable[[Any, Request], Awaitable[Response]]]:
    """``if_lost``: what a caller is told whose place was lost."""

    def of(method: Callable[[Any, Request], Awaitable[Response]]) -> Callable[[Any, Request], Awaitable[Response]]:
        @functools.wraps(method)
        async def call(self: Any, request: Request) -> Response:
            try:
                return await method(self, request)
            except PlaceLost:
                raise Refusal(if_lost) from None
            except StoreRefused as refused:
                raise Refusal(EtcdError("UNKNOWN", refused.code.text)) from refused

        return call

    return of
