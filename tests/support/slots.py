"""Which files of a node have two slots, and how large those are."""

from __future__ import annotations

from typing import NamedTuple

from dledger.disk.record import RecordKind
from dledger.disk.two_slot import SLOT_BYTES
from dledger.group.group_record import GROUP_RECORD_NAME, GROUP_RECORD_SLOT_BYTES
from dledger.node.identity import IDENTITY_SLOT_BYTES
from dledger.node.peer_book import PEER_BOOK_SLOT_BYTES


class Slots(NamedTuple):
    kind: RecordKind
    slot_bytes: int


TWO_SLOTS = {
    "identity": Slots(RecordKind.IDENTITY, IDENTITY_SLOT_BYTES),
    "peers": Slots(RecordKind.PEER_BOOK, PEER_BOOK_SLOT_BYTES),
    GROUP_RECORD_NAME: Slots(RecordKind.GROUP, GROUP_RECORD_SLOT_BYTES),
    "hard_state": Slots(RecordKind.HARD_STATE, SLOT_BYTES),
}
"""By name."""
