"""How a transport turns a message into bytes and back. The codec is handed in by the maker of the transport."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from dledger.common.batch import Buffer
from dledger.common.types import NodeId

M = TypeVar("M")


class Encoded(NamedTuple):
    """One message on the wire: a header of at most ``framing.MAX_HEADER_BYTES``, and raw bytes that follow it."""

    header: bytes
    body: list[Buffer]


class Codec(Protocol[M]):
    """Both directions for one set of messages. A module with these two functions is a codec."""

    def encode(self, message: M, *, cluster_id: str, sender: NodeId) -> Encoded:
        """What ``sender`` puts on the wire: the same bytes for every peer."""
        ...

    def decode(self, header: Buffer, body: Buffer, *, cluster_id: str, sender: NodeId) -> M:
        """The message that ``sender`` sent. Raises DLedgerError for bytes that a sound peer does not send."""
        ...
