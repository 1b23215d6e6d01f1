"""A member that sends nonsense: its messages are well-formed, and what they say cannot be.

Where the line is drawn. Raft trusts what members say within its rules: a node that claims to lead a term that is not
over, grants votes twice, acknowledges what it does not hold, or raises the term by a few, is believed, and mutual TLS
is what keeps such a node out. Everything else that a member may send must do nothing: values that no sane node has,
answers to what nobody asked, a leader's word of a term that is over, replays of anything that was said, in any order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from random import Random
from typing import NamedTuple

from dledger.common.errors import DLedgerError
from dledger.common.types import LogPoint, NodeId, Position, Term
from dledger.raft import codec
from dledger.raft.messages import (
    Append,
    AppendResponse,
    Compare,
    Heartbeat,
    HeartbeatBatch,
    HeartbeatResponse,
    HeartbeatResponseBatch,
    Message,
    Reset,
    TakeLeadership,
    Truncate,
    VoteResponse,
    VoteResult,
)
from dledger.v1 import raft_pb2 as pb
from tests.fuzz.mutate import mutate_message
from tests.fuzz.recorded import Recorded, record
from tests.support.cluster import SimCluster, SimNode
from tests.support.virtual_time import run_virtual

OF_A_LEADER = (Heartbeat, Append, Compare, Truncate, Reset, TakeLeadership)
BATCHES = ("HeartbeatBatch", "HeartbeatResponseBatch")
"""A node takes them apart before it looks at what they say."""
BURST = 50
"""Messages at once, before time goes on."""
REACH = 1 << 32
"""A term this far away, or further, is nonsense."""


class Promises(NamedTuple):
    """What a node has told others, or counts on."""

    term: Term
    vote: NodeId
    matched: Position
    committed: Position
    end: LogPoint
    acknowledged: dict[NodeId, Position]
    """To it as a leader, by follower."""

    @classmethod
    def of(cls, node: SimNode) -> Promises:
        core = node.replica.core
        followers = core.leadership.followers if core.leadership is not None else {}
        return cls(
            core.term,
            core.vote,
            core.matched_position,
            core.commit_position,
            node.log.last,
            {peer: progress.match for peer, progress in followers.items()},
        )


class NonsenseMember:
    """One of five, in memory; the other four go on as if it were silent."""

    def __init__(self, seed: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self._random = Random(seed)
        self._seed = seed
        recorded = record()
        self._kinds = {kind: recorded[kind] for kind in recorded if kind not in BATCHES}

    def run(self, count: int) -> None:
        """Raises AssertionError when a node stops, a log differs, or appends do not go on."""
        run_virtual(self._run(count), limit_s=10 * count)

    async def _run(self, count: int) -> None:
        appended: list[bytes] = []
        async with SimCluster(5, seed=self._seed) as cluster:
            mouth = cluster[4]
            await cluster.leader()
            for burst in range(0, count, BURST):
                said = 0
                while said < min(BURST, count - burst):
                    target = self._random.choice([node for node in cluster.up() if node is not mouth])
                    said += self._say(mouth, target)
                await asyncio.sleep(self._random.choice((0.0, 0.001, 0.05)))
                await self._append(cluster, b"%d" % burst, appended)
                cluster.check()
            await cluster.level(within_s=60)
            for node in cluster.up():
                assert node.records() == appended, f"{node.id} does not have what was appended"

    async def _append(self, cluster: SimCluster, record_: bytes, appended: list[bytes]) -> None:
        """One record, however often a leader is replaced meanwhile; by its place the retry is told from the first."""
        async with asyncio.timeout(60):
            while True:
                leader = await cluster.leader(within_s=60)
                if leader.log.state.last_index >= len(appended):  # an attempt of unknown outcome is there
                    break
                try:
                    await leader.append(record_)
                except DLedgerError:
                    await asyncio.sleep(0.1)
                else:
                    break
        appended.append(record_)

    def _say(self, mouth: SimNode, target: SimNode) -> bool:
        """False: what came of it would be a member's word, and was not sent."""
        chosen = self._random.choice(self._kinds[self._random.choice(sorted(self._kinds))])
        try:
            message = self._nonsense(chosen, mouth)
        except DLedgerError as refusal:
            self.outcomes[refusal.code.value] += 1
            return True
        if is_believed(message, target):
            return False
        self.outcomes[type(message).__name__] += 1
        before = Promises.of(target)
        target.on_message(mouth.id, message)
        if message.term < before.term:
            after = Promises.of(target)
            assert after == before, f"{message} is of a term that is over, and made of {before} {after}"
        return True

    def _nonsense(self, chosen: Recorded, mouth: SimNode) -> Message:
        fields = pb.PeerMessage.FromString(chosen.header)
        fields.ClearField("cluster_id")
        if self._random.random() < 0.9:
            mutate_message(self._random, fields)
        fields.group = "default"
        if fields.leader_id:
            fields.leader_id = mouth.id
        message = codec.decode(fields.SerializeToString(), chosen.body, cluster_id="", sender=mouth.id)
        assert not isinstance(message, HeartbeatBatch | HeartbeatResponseBatch)
        term = self._term(message, mouth.replica.core.term)
        if isinstance(message, Heartbeat | HeartbeatResponse):
            return message._replace(term=term)
        return replace(message, term=term)

    def _term(self, message: Message, present: Term) -> Term:
        """The present one most often, for the rules behind it to be looked at; a leader's word is of one that is over,
        or out of reach."""
        random = self._random
        over = Term(random.randrange(present))
        if isinstance(message, OF_A_LEADER):
            return over if random.random() < 0.8 else Term(random.choice((present + REACH, 2**63, 2**64 - 1)))
        if random.random() < 0.02:
            return Term(present + random.choice((1, 2, 1000)))
        return random.choice((present, present, present, over, Term(2**64 - 1)))


def is_believed(message: Message, target: SimNode) -> bool:
    """Whether this is within Raft's rules, as far as the target can know: see above."""
    core = target.replica.core
    if message.term - core.term >= REACH:
        return False
    if isinstance(message, OF_A_LEADER):
        return message.term >= core.term
    if isinstance(message, AppendResponse):
        return message.term == core.term and message.position <= target.log.last.position
    return isinstance(message, VoteResponse) and message.result is VoteResult.ACCEPT
