"""The leader's EntryDispatchers, one for each follower that it has now: members come, go, and change their disks."""

from __future__ import annotations

from dledger.common.types import NodeId, Term
from dledger.group.context import GroupContext
from dledger.group.leader.entry_dispatcher import EntryDispatcher
from dledger.raft.leadership import Leadership


class Dispatchers(dict[NodeId, EntryDispatcher]):
    """Empty unless this node leads."""

    def __init__(self, context: GroupContext) -> None:
        super().__init__()
        self._context = context

    def follow(self, leadership: Leadership, term: Term) -> None:
        """Starts missing dispatchers, and ends a dispatcher if its follower is gone or is tracked anew."""
        followers = leadership.followers
        for peer, dispatcher in list(self.items()):
            if followers.get(peer) is not dispatcher.progress:
                dispatcher.stop()
                del self[peer]
        for peer, progress in followers.items():
            if peer not in self:
                self[peer] = EntryDispatcher(self._context, peer, term, progress)
                self[peer].start()

    def push(self) -> None:
        for dispatcher in self.values():
            dispatcher.push()

    def wake(self) -> None:
        """Wakes the dispatchers of followers that lack something: an answer may be overdue, or a pause over."""
        for dispatcher in self.values():
            if not dispatcher.is_level:
                dispatcher.wake()

    def stop(self) -> None:
        for dispatcher in self.values():
            dispatcher.stop()
        self.clear()
