"""What a client can be told."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dledger.client.arguments import check_endpoints, check_text, is_int, is_timeout_ms
from dledger.common.config import MAX_IN_ONE_MESSAGE_BYTES, MAX_STREAM_BATCHES, MIB, Limits, split_address
from dledger.common.errors import ConfigError, InvalidRequest
from dledger.common.types import DEFAULT_GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.client.waits import OnWait

ENDPOINTS_VARIABLE = "DLEDGER_ENDPOINTS"
DEFAULT_TIMEOUT_MS = 10_000
DEFAULT_MAX_PENDING_BYTES = 64 * MIB
DEFAULT_BATCHES_IN_FLIGHT = 8
"""Measured: single appends gather into one batch a round trip at any setting; ready-made batches gain up to here."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Every default is one to run in production."""

    group: str = DEFAULT_GROUP
    cluster_id: str = ""
    """The only cluster to be used; empty: the cluster of the endpoints."""
    timeout_ms: float = DEFAULT_TIMEOUT_MS
    """The default deadline of every call."""
    max_pending_bytes: int = DEFAULT_MAX_PENDING_BYTES
    """PendingFull above: appends without an outcome, each charged its length and 64 bytes."""
    max_batches_in_flight: int = DEFAULT_BATCHES_IN_FLIGHT
    """How many batches travel at once. More hide a longer way, fewer gather larger batches."""
    limits: Limits = field(default_factory=Limits)
    """The servers' limits, checked before anything is sent; the server has the last word."""
    rng: random.Random | None = None
    """Where jitter comes from; one of its own by default."""
    on_wait: OnWait | None = None
    """Called with the reason why calls wait: a refusal that passes by itself, or no answer for a second. It is called
    once a second at most, in the client's loop or thread, and must not block."""

    def __post_init__(self) -> None:
        self._check_types()
        self._check_limits()
        if not is_timeout_ms(self.timeout_ms):
            raise ConfigError(f"timeout_ms is {self.timeout_ms}: it must be positive, and a year at most")
        if not 1 <= self.max_batches_in_flight <= self.limits.max_stream_batches:
            most = self.limits.max_stream_batches
            raise ConfigError(f"max_batches_in_flight is {self.max_batches_in_flight}: it must be from 1 to {most}")
        if self.max_pending_bytes < self.limits.max_batch_bytes:
            raise ConfigError(f"max_pending_bytes is {self.max_pending_bytes}: it must hold one batch at least")

    def _check_limits(self) -> None:
        """A size that no server can be told to take is sent to none. Beyond it the log does not know a retry for one,
        and gRPC ends a whole stream for one message."""
        for name, most in (
            ("max_record_bytes", MAX_IN_ONE_MESSAGE_BYTES),
            ("max_batch_bytes", MAX_IN_ONE_MESSAGE_BYTES),
            ("max_stream_batches", MAX_STREAM_BATCHES),
        ):
            if getattr(self.limits, name) > most:
                raise ConfigError(f"{name} is {getattr(self.limits, name)}: no server takes more than {most}")

    def _check_types(self) -> None:
        check_text("group", self.group)
        check_text("cluster_id", self.cluster_id)
        if isinstance(self.timeout_ms, bool) or not isinstance(self.timeout_ms, int | float):
            raise InvalidRequest(f"timeout_ms is {self.timeout_ms!r}: give a number of milliseconds")
        for name in ("max_pending_bytes", "max_batches_in_flight"):
            if not is_int(getattr(self, name)):
                raise InvalidRequest(f"{name} is {getattr(self, name)!r}: give an int")
        if not isinstance(self.limits, Limits):
            raise InvalidRequest(f"limits is {self.limits!r}: give a dledger.Limits")
        if self.rng is not None and not isinstance(self.rng, random.Random):
            raise InvalidRequest(f"rng is {self.rng!r}: give a random.Random")
        if self.on_wait is not None and not callable(self.on_wait):
            raise InvalidRequest(f"on_wait is {self.on_wait!r}: give a function that takes the reason")


def given_endpoints(endpoints: str | Sequence[str] | None) -> str | Sequence[str]:
    """``endpoints``, or those of the environment for None. Raises CONFIG_ERROR if there are none either."""
    if endpoints is not None:
        return endpoints
    found = os.environ.get(ENDPOINTS_VARIABLE, "")
    if not found:
        raise ConfigError(f"no endpoint is given: name at least one as host:port, or set {ENDPOINTS_VARIABLE}")
    return found


def parse_endpoints(endpoints: str | Sequence[str]) -> list[str]:
    """host:port, comma-separated or in a list. Raises UNEXPECTED_ARGUMENT unless it is text, CONFIG_ERROR for text that
    is no address."""
    check_endpoints(endpoints)
    listed = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
    for address in listed:
        check_text("one of the endpoints", address)
    addresses = list(dict.fromkeys(address.strip() for address in listed if address.strip()))
    if not addresses:
        raise ConfigError("no endpoint is given: name at least one as host:port")
    for address in addresses:
        split_address(address)
    return addresses
