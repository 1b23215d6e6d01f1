"""Calls that the leader of one group carries out: asked until it is done, refused, or the time is up."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, TypeVar

from dledger.client.arguments import check_timeout_ms
from dledger.client.stubs import LogStubs
from dledger.rpc.client.attempts import Attempts
from dledger.rpc.client.failures import unary

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from dledger.client.leader_locator import LeaderLocator
    from dledger.client.waits import Waits
    from dledger.rpc.client.channels import Endpoint
    from dledger.v1.admin_pb2_grpc import AdminServiceAsyncStub

Request = TypeVar("Request")
Response = TypeVar("Response")

ATTEMPT_TIMEOUT_MS = 6_000
"""How long one node may take: a little more than a leader gives a change to be committed."""


class LeaderCalls:
    """What ``Admin`` and ``Groups`` stand on."""

    def __init__(
        self,
        leaders: LeaderLocator,
        timeout_ms: float,
        rng: random.Random,
        *,
        waits: Waits,
        check_open: Callable[[], None],
    ) -> None:
        self._leaders = leaders
        self._group = leaders.group
        self._timeout_ms = timeout_ms
        self._rng = rng
        self._check_open = check_open
        self._waits = waits

    def attempts(self, timeout_ms: float | None, *, repeatable: bool = True) -> Attempts:
        """What is ``repeatable`` may be asked again although it may have been done. Raises UNEXPECTED_ARGUMENT."""
        if timeout_ms is None:
            timeout_ms = self._timeout_ms
        check_timeout_ms(timeout_ms)
        return Attempts(timeout_ms, self._rng, repeatable=repeatable, on_wait=self._waits.refused)

    async def ask(
        self,
        method_of: Callable[[AdminServiceAsyncStub], Callable[..., Awaitable[Response]]],
        request: Request,
        attempts: Attempts,
    ) -> Response:
        """One answer of the leader's."""
        self._check_open()

        async def call(endpoint: Endpoint, timeout_ms: float) -> Response:
            return await unary(endpoint, method_of(endpoint.stub(LogStubs).admin), request, timeout_ms)

        attempt_ms = ATTEMPT_TIMEOUT_MS if attempts.repeatable else inf
        return await attempts.ask(self._leaders, self._find, call, attempt_ms=attempt_ms)

    async def _find(self) -> Endpoint:
        """The leader. Raises as ``LeaderLocator.find``."""
        return await self._leaders.find()
