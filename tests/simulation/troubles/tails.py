"""Rot in what was just acknowledged, and no mark covers yet: a start takes it for a torn write, and asks the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dledger.log.segment.segment import FIRST_PAGE_BYTES, unpack_mark
from dledger.raft.state import VoteBlocker
from tests.simulation.host import SimHost
from tests.simulation.seat import Seat
from tests.simulation.troubles.scene import Scene, Trouble

LOOKS = 100
"""For a tail without a mark, ``LOOK_S`` apart: it is one for a few milliseconds."""
LOOK_S = 0.002
ANSWERED_S = 10.0
AWAY_S = 0.3
ALONE_S = 3.0
"""Longer than a node waits for the last voters, and than one stands that hears no leader."""
FEWEST_VOTERS = 4
"""With fewer, two are a majority, or all there are."""
KILLED_SHARE = 0.5
"""Of these nodes: before they have asked."""


class TailTroubles:
    def __init__(self, scene: Scene, may_forget: Callable[[SimHost], bool]) -> None:
        """``may_forget``: whether the others could do without the disk."""
        self._scene = scene
        self._cluster = scene.cluster
        self._random = scene.random
        self._may_forget = may_forget

    def all(self) -> list[Trouble]:
        return [Trouble(3, self.rot_of_the_tail), Trouble(2, self.rot_that_a_minority_is_asked_of)]

    async def rot_of_the_tail(self) -> None:
        """All the others answer, or the disk is replaced: where one does not, "the majority that holds such a frame may
        have no other node in common with the one that answered" is the documented limit (tail_query.py)."""
        group = self._scene.pick()
        self._scene.make_peace()
        seat = await self._spoiled(group.seats)
        if seat is not None:
            host = seat.host
            host.crash()
            await host.start()
            if seat.is_up and self._random.random() < KILLED_SHARE:
                host.crash(power=self._random.random() < KILLED_SHARE)
                await host.start()
            await self._see_to(seat)

    async def rot_that_a_minority_is_asked_of(self) -> None:
        """For as long as the node hears one other voter alone, which was away when the others acknowledged what rotted:
        what that one says is not enough to vote by. Then it is killed, and may ask all."""
        group = self._scene.pick()
        voters = [self._cluster.hosts[member.id].seat(group.name) for member in group.members() if member.voter]
        followers = [voter for voter in voters if not voter.leads]
        if len(voters) < FEWEST_VOTERS or not followers:
            return
        self._scene.make_peace()
        away = self._random.choice(followers)
        self._scene.cut_off([away.host])
        await asyncio.sleep(AWAY_S)
        seat = await self._spoiled([voter for voter in voters if voter is not away])
        if seat is not None:
            is_minority = _are_a_minority(seat, away)
            seat.host.crash()
            if is_minority:
                await self._be_alone(seat.host, away.host)
        self._scene.make_peace()
        if seat is not None:
            await seat.host.start()
            await self._see_to(seat)

    async def _be_alone(self, host: SimHost, away: SimHost) -> None:
        self._scene.cut_off([host, away])
        await host.start()
        await asyncio.sleep(ALONE_S)
        self._scene.hit("minority asked", host.id, away.id)
        if not host.is_down:
            host.crash(power=False)

    async def _spoiled(self, seats: list[Seat]) -> Seat | None:
        """One of them, that has just acknowledged what rots now; None where there is none for a while."""
        for _ in range(LOOKS):
            seat = self._random.choice(seats)
            is_fit = seat.is_up and self._is_whole(seat) and self._may_forget(seat.host)
            extent = _unmarked(seat) if is_fit else None
            if extent is not None:
                self._spoil(seat, *extent)
                return seat
            await asyncio.sleep(LOOK_S)
        return None

    def _is_whole(self, seat: Seat) -> bool:
        """All other members can answer."""
        group, hosts = seat.group, self._cluster.hosts
        others = [hosts[member.id].seat(group.name) for member in group.members() if member.id != seat.id]
        return bool(others) and all(
            other.is_up and not other.host.is_paused and not other.is_rotten for other in others
        )

    def _spoil(self, seat: Seat, path: str, begin: int, end: int) -> None:
        self._scene.flip_a_bit(seat.host, path, begin, end)
        seat.lost_tail = True
        self._scene.hit("rotten tail", seat.name, path)

    async def _see_to(self, seat: Seat) -> None:
        """Until it has asked, may vote, and a leader has compared its log. Where something was missing that it had
        acknowledged, a leader may have begun to doubt it, and lead no more: then no readmit tells him (a known gap),
        and the disk is replaced, as everybody notices."""
        deadline_s = self._cluster.world.time() + ANSWERED_S
        while (
            seat.is_up
            and not seat.group.is_removed
            and self._is_whole(seat)
            and self._cluster.world.time() < deadline_s
        ):
            is_settled = VoteBlocker.UNKNOWN_TAIL not in seat.replica.core.vote_blockers and self._is_compared(seat)
            if is_settled and not seat.group.watch.debts.has_lost(seat):
                seat.lost_tail = False
                return
            if is_settled:
                break
            await asyncio.sleep(LOOK_S)
        if self._scene.forgetful is None and seat.group.names(seat.id):
            seat.host.crash()
            seat.host.wipe()
            self._scene.doubt(seat.host)

    def _is_compared(self, seat: Seat) -> bool:
        for leader in seat.group.leaders():
            leadership = leader.replica.core.leadership
            progress = leadership.followers.get(seat.id) if leadership is not None else None
            if leader is seat or (progress is not None and progress.is_compared):
                return True
        return False


def _are_a_minority(seat: Seat, away: Seat) -> bool:
    """As ``seat`` knows the voters: there may be others than when ``away`` was chosen."""
    membership = seat.replica.core.membership
    return not membership.is_quorum({seat.id, away.id})


def _unmarked(seat: Seat) -> tuple[str, int, int] | None:
    """Which bytes are durable, and behind the last mark."""
    log = seat.replica.log
    active = log._files.active  # type: ignore[attr-defined]
    file = seat.host.platter.find(active.path)
    mark = unpack_mark(bytes(file.medium[:FIRST_PAGE_BYTES]))
    if mark is None or mark.point.position <= active.previous.position or log.durable_position != log.last.position:
        return None
    begin, end = mark.offset, active.end_offset
    return (active.path, begin, end) if begin < end and file.holds(begin, end) else None
