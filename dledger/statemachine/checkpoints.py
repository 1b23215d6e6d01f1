"""One node's knowledge of the checkpoints in its log: the confirmed ones, the differing ones, and the log's growth
since the last one. No IO.

A node that differs from a checkpoint cannot tell which state is damaged, its own or the writer's. It builds its state
anew and comes to the same END again. If it differs once more, in the same way, two computations agree, and the
checkpoint is the damaged one. When a majority confirms a checkpoint that the node differs from, the node is wrong.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from dledger.statemachine.applier import Begun, Ended
from dledger.statemachine.finder import Checkpoint
from dledger.statemachine.records import Confirmed

MAX_REMEMBERED = 16


class Own(NamedTuple):
    """This node's own word on a checkpoint that ended: its digest, from applying its way to BEGIN."""

    id: int
    digest: bytes
    said: bytes
    """By the END."""


class Checkpoints:
    def __init__(self) -> None:
        self.confirmed_id = -1
        """The last confirmed checkpoint with a state that this node has, or had on its way; −1: none."""
        self.own: Own | None = None
        """On the last checkpoint that ended."""
        self.state_bytes = 0
        """Of the last complete checkpoint."""
        self._log_bytes = 0
        """Of the records that were applied, without the parts of checkpoints."""
        self._base_bytes = 0
        """``_log_bytes`` as of the BEGIN of the last complete checkpoint."""
        self._begun: OrderedDict[int, int] = OrderedDict()
        """By checkpoint that has not ended: the same as of its BEGIN."""
        self._digests: OrderedDict[int, bytes] = OrderedDict()
        """Own ones, of the last few checkpoints that ended."""
        self._differed: OrderedDict[int, bytes | None] = OrderedDict()
        """The checkpoints from which this node differed, and its digest of each. None: others said so, it is not to be
        asked again."""

    @property
    def behind_bytes(self) -> int:
        """The log's growth since the BEGIN of the last complete checkpoint, without the parts of checkpoints. With them
        it would always be longer than the state."""
        return self._log_bytes - self._base_bytes

    @property
    def is_one_left(self) -> bool:
        """Whether a checkpoint was begun, and not ended, behind the last complete one."""
        return bool(self._begun)

    def forget_state(self) -> None:
        """The state is built anew: from the log's first record, or as ``restored`` says. This node's own words on
        checkpoints stay, and so do the checkpoints from which it differed."""
        self.confirmed_id = -1
        self._log_bytes = self._base_bytes = 0
        self._begun.clear()

    def restored(self, found: Checkpoint, *, is_confirmed: bool) -> None:
        self.confirmed_id = found.id if is_confirmed else -1
        self.state_bytes = found.size_bytes

    def applied(self, log_bytes: int) -> None:
        """So much of the log is in the state, counted from where this state began."""
        self._log_bytes = log_bytes

    def begun(self, begun: Begun) -> None:
        self._begun[begun.id] = self._log_bytes
        _keep_few(self._begun)

    def ended(self, ended: Ended) -> bool:
        """False: the state differs from the checkpoint's and is to be built anew."""
        base_bytes = self._begun.pop(ended.id, None)
        if ended.digest:
            self.own = Own(ended.id, ended.digest, ended.said)
            self._digests[ended.id] = ended.digest
            _keep_few(self._digests)
            if ended.digest != ended.said:
                return self._has_differed_so(ended.id, ended.digest)
        if base_bytes is not None:
            self._base_bytes, self.state_bytes = base_bytes, ended.size_bytes
            for each in [each for each in self._begun if each < ended.id]:
                del self._begun[each]
        return True

    def _has_differed_so(self, checkpoint_id: int, digest: bytes) -> bool:
        if checkpoint_id in self._differed and self._differed[checkpoint_id] in (digest, None):
            return True
        self._differed[checkpoint_id] = digest
        _keep_few(self._differed)
        return False

    def confirmed(self, record: Confirmed) -> bool:
        """False: a majority has another state than this node."""
        if self._digests.get(record.id, record.digest) != record.digest:
            return False
        self.confirmed_id = max(self.confirmed_id, record.id)
        return True

    def contradicted(self, checkpoint_id: int) -> None:
        """A majority came to another digest than this node, and than the checkpoint says: that one is damaged."""
        self._differed[checkpoint_id] = None
        self._digests.pop(checkpoint_id, None)
        self.own = None


def _keep_few(remembered: OrderedDict[int, Any]) -> None:
    while len(remembered) > MAX_REMEMBERED:
        remembered.popitem(last=False)
