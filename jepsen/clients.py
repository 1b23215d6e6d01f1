"""Clients that append and read, and say what came of it in the words of ``verdicts``."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

import grpc

from dledger.client import connect
from dledger.common.errors import DLedgerError, NotLeader
from dledger.rpc.client.failures import from_rpc
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.status import StatusCode
from dledger.v1 import log_pb2, log_pb2_grpc
from jepsen.verdicts import Acknowledged, Failed, Outcome, outcome_of_rpc, outcome_of_sdk


class Client(Protocol):
    """One client; one append at a time."""

    async def append(self, records: Sequence[bytes]) -> Outcome:
        """Appends them as one batch."""

    async def close(self) -> None: ...


class SdkClient:
    """As users have it: a producer that retries under its sequence until the timeout."""

    def __init__(self, endpoints: str, timeout_ms: float) -> None:
        self._endpoints = endpoints
        self._timeout_ms = timeout_ms

    async def open(self) -> SdkClient:
        self._log = await connect(self._endpoints, timeout_ms=self._timeout_ms).__aenter__()
        return self

    async def append(self, records: Sequence[bytes]) -> Outcome:
        try:
            if len(records) == 1:
                ack = await self._log.append(records[0])
                return Acknowledged(ack.index, ack.term)
            acks = await self._log.append_many(records)
        except DLedgerError as failure:
            return outcome_of_sdk(failure)
        return Acknowledged(acks.first_index, acks.term)

    async def close(self) -> None:
        await self._log.close()


class PlainClient:
    """The unary call of any language, without a producer: no retry, so nothing is ever appended twice."""

    def __init__(self, endpoints: str, timeout_ms: float, chance: random.Random) -> None:
        self._endpoints = endpoints.split(",")
        self._timeout_s = timeout_ms / 1000
        self._chance = chance
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._at = chance.choice(self._endpoints)

    async def append(self, records: Sequence[bytes]) -> Outcome:
        address = self._at
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = grpc.aio.insecure_channel(address)
        stub = log_pb2_grpc.LogServiceStub(channel)
        try:
            answer = await stub.Append(log_pb2.AppendRequest(records=records), timeout=self._timeout_s)
        except grpc.aio.AioRpcError as failure:
            return self._refused(from_rpc(_told(failure), address))
        return Acknowledged(answer.base_index, answer.term)

    def _refused(self, refusal: DLedgerError) -> Outcome:
        """The next call goes where the leader is said to be, or anywhere."""
        outcome = outcome_of_rpc(refusal)
        leader = refusal.metadata.get("leader_address", "") if isinstance(refusal, NotLeader) else ""
        self._at = leader or self._chance.choice(self._endpoints)
        return outcome

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()


def _told(failure: grpc.aio.AioRpcError) -> RpcFailure:
    """What gRPC's own library says, as our client would."""
    details = failure.details() or ""
    is_unsent = details.startswith("failed to connect")
    metadata = tuple((str(key), value) for key, value in failure.trailing_metadata() or ())
    return RpcFailure(StatusCode(failure.code().value[0]), details, metadata, was_sent=not is_unsent)


__all__ = ["Client", "Failed", "PlainClient", "SdkClient"]
