"""One life of a node: its process, its disk as that sees it, the node itself, and an observer around its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dledger.common.errors import Code, DLedgerError
from dledger.common.types import DEFAULT_GROUP, NodeId, Position, Role, Term, TrimPoint
from dledger.group.hard_state import HardState
from dledger.group.replica import Replica
from dledger.log.damage.damaged_log import DamagedLog
from dledger.log.file_log import FileLog
from dledger.log.frame.frame import Frame
from dledger.node.node import Node
from dledger.node.opening import AnyReplica
from tests.simulation.disk import SimDisk
from tests.simulation.network import WatchedTransport
from tests.simulation.process import ProcessLoop
from tests.simulation.truth import LogTruth, promised

if TYPE_CHECKING:
    from tests.simulation.host import SimHost


class Life:
    """From a start to whatever ends it."""

    def __init__(self, host: SimHost, process: ProcessLoop, disk: SimDisk) -> None:
        self.host = host
        self.process = process
        self.disk = disk
        self.transport = WatchedTransport(host.cluster.network, host, self)
        self.node: Node | None = None
        self.is_open = False
        """Its log is there, and watched."""
        self.proven_term = Term(0)
        """The platter was found to hold this one."""
        self.is_stopping = False
        self.was_cut = False
        """A leader had its log cut, or begin anew."""
        self.cut_to: Position | None = None
        """A cut that goes so far is under way: nothing behind it is promised any more."""
        self.was_damaged = False
        """Its log was opened once a leader, and the others, had seen to what rotted."""
        self.role = Role.FOLLOWER
        self.replica: Replica
        """Once its log is open."""
        self.heard_ms: dict[NodeId, float] = {}
        """When, by its clock, it last took a message of each node."""
        self.met: dict[NodeId, str] = {}
        """The disk that each node said hello from last."""
        self.asked_ms: dict[NodeId, float] = {}
        """When, by its clock, it last sent each node, as a leader, anything of its log."""
        self.lagging_since_ms: dict[NodeId, float] = {}
        """Since when a follower that could be asked was seen, at every look, to lack some of this leader's log."""
        self.matched: dict[tuple[Term, NodeId], Position] = {}
        """How far what it counts for each node, as a leader, was found to be acknowledged."""
        self.stands_since: tuple[Position, float] | None = None
        """How far it was durable, and since when it was so at every look, while it led, there was more, and others went
        on."""
        self.others_held = 0
        """What a majority without it held, as far as it knew, when its disk was behind at the last look."""
        self.others_moved_ms = 0.0
        """When that was more than before, or all that there was."""
        self.unheard_since_ms: float | None = None
        """Since when it was seen to lead, at every look, without having heard a majority lately."""
        self.seen_members: object = None
        self.seen_membership: object = None
        """When they were looked at last, they were found to be the same."""
        self._hard_state = f"/data/{host.id}/groups/{DEFAULT_GROUP}/hard_state"

    @property
    def present(self) -> AnyReplica | None:
        """What runs of the group, also while its log is being repaired; None before anything does."""
        if self.node is None:
            return None
        return self.node.replicas.get(DEFAULT_GROUP) or self.node.recovering.get(DEFAULT_GROUP)

    @property
    def failure(self) -> DLedgerError | None:
        """Why its node cannot go on, also where nothing runs of the group: its process is to be ended."""
        failed = self.node._failed if self.node is not None else None
        return failed.result() if failed is not None and failed.done() else None

    def promises(self) -> HardState:
        """What a power cut now would leave of term and vote."""
        return promised(self.host.platter, self._hard_state)

    def observe(self, node: Node) -> None:
        """Shows the watch whatever ``node`` tells its log to do, once it has one. The product knows nothing of it."""
        self.node = node
        take = node._take

        def on_take(replica: AnyReplica) -> None:
            take(replica)
            if self.is_open:
                self.host.keep_promise(self)
                self.is_open = False
                self.host.cluster.trace.hit("branch stepped aside", self.host.id)
            if isinstance(replica, Replica):
                self._opened(replica)  # what was damaged was repaired at that moment
            else:
                self.was_damaged = True
                self._observe_cuts(replica.log)
                self.host.cluster.trace.hit("branch damaged start", self.host.id)

        node._take = on_take  # type: ignore[method-assign]

    def _observe_cuts(self, log: DamagedLog) -> None:
        cut = log.cut

        async def on_cut(after: Position) -> None:
            self.host.cluster.watch.cutting_damaged(self.host, after)
            await cut(after)

        log.cut = on_cut  # type: ignore[method-assign]

    def _opened(self, replica: Replica) -> None:
        log, cluster = replica.log, self.host.cluster
        assert isinstance(log, FileLog)
        self.replica = replica
        self.truth = LogTruth(self.host.platter, log, is_synced=cluster.is_synced)
        self.is_open = True
        Observer(self, log)
        cluster.trace.note("opened", self.host.id, log.last, replica.core.term)
        cluster.watch.restarted(self.host, self.host.promised)
        self.count_recovery()

    def count_recovery(self) -> None:
        log, hit = self.replica.log, self.host.cluster.trace.hit
        assert isinstance(log, FileLog)
        if log.recovery.torn_bytes:
            hit("branch tail cut", self.host.id, log.recovery.torn_bytes)
        if log.recovery.frames_replayed and not log.recovery.clean_stop:
            hit("branch recovery", self.host.id)


class Observer:
    """Stands around a log's methods: checks before, tells afterwards."""

    def __init__(self, life: Life, log: FileLog) -> None:
        self._life = life
        self._host = life.host
        self._watch = life.host.cluster.watch
        self._hit = life.host.cluster.trace.hit
        self._log = log
        self._append, self._truncate, self._reset, self._trim = log.append, log.truncate, log.reset, log.trim
        log.append = self._on_append  # type: ignore[method-assign]
        log.truncate = self._on_truncate  # type: ignore[method-assign]
        log.reset = self._on_reset  # type: ignore[method-assign]
        log.trim = self._on_trim  # type: ignore[method-assign]
        self._cut, self._begin_anew = log._truncate, log._reset
        log._truncate = self._on_cut  # type: ignore[method-assign]
        log._reset = self._on_begin_anew  # type: ignore[method-assign]
        replica = life.replica
        core, commits, appender = replica.core, log._commit, replica.appender
        self._commit, self._done, self._answer = core._commit, commits._done, appender._answer_duplicate
        self._begin_round = core.begin_read_round
        core.begin_read_round = self._on_round  # type: ignore[method-assign]
        core._commit = self._on_commit  # type: ignore[method-assign]
        commits._done = self._on_done  # type: ignore[assignment, method-assign]
        appender._answer_duplicate = self._on_duplicate  # type: ignore[method-assign]

    def _on_append(self, frames: Sequence[Frame], *, sync_after_turn: bool = False) -> None:
        log, watch = self._log, self._watch
        active, state = log._files.active, log.state
        end_before, members_before, changed = (active.path, active.end_offset), state.members, state.members_position
        facts = watch.trying(self._host, frames)
        try:
            self._append(frames, sync_after_turn=sync_after_turn)
        except DLedgerError as refusal:
            self._hit(f"branch append refused {refusal.code.name}", self._host.id)
            if refusal.code is not Code.TERM_CHANGED:
                watch.refused(facts)
            raise
        self._life.truth.appended(frames, end_before)
        watch.appended(self._host, facts, members_before, changed)

    async def _on_truncate(self, after: Position) -> None:
        self._watch.truncating(self._host, after)
        self._hit("branch truncate", self._host.id, after)
        if self._log.state.members_position > after:
            self._hit("branch members taken back", self._host.id)
        self._life.was_cut = True
        await self._truncate(after)
        self._watch.restated(self._host)

    async def _on_cut(self, after: Position) -> None:
        """In a task of the log's own, which goes on when whoever asked for it is gone."""
        self._life.cut_to = after
        self._host.cluster.on_cut(self._host)
        try:
            await self._cut(after)
        finally:
            if self._log._commit.failure is None:
                self._life.cut_to = None
        self._life.truth.cut(after)

    async def _on_reset(self, log_state: bytes) -> None:
        self._life.was_cut = True
        self._host.cluster.on_cut(self._host)
        await self._reset(log_state)
        self._hit("branch reset", self._host.id)
        self._watch.restated(self._host)

    async def _on_begin_anew(self, log_state: bytes) -> None:
        """As ``_on_cut``, of a log that is replaced."""
        await self._begin_anew(log_state)
        self._life.truth.begun_anew()

    async def _on_trim(self, to: TrimPoint) -> None:
        if to.point.position > self._log.state.start.position:
            self._watch.trimming(self._host, to)
            self._hit("branch trim", self._host.id)
        await self._trim(to)

    def _on_commit(self, position: Position) -> None:
        core = self._life.replica.core
        before = core.commit_position
        self._commit(position)
        if core.commit_position > before:
            self._watch.committed(self._host)

    def _on_done(self, generation: int, *rest: object) -> None:
        if generation != self._log._commit._generation:
            self._hit("branch stale completion", self._host.id)
        self._done(generation, *rest)  # type: ignore[arg-type]

    def _on_round(self, now_ms: float) -> int:
        self._hit("branch read-index round", self._host.id)
        return self._begin_round(now_ms)

    def _on_duplicate(self, batch: object, known: object) -> None:
        self._hit("branch duplicate answered", self._host.id)
        self._answer(batch, known)  # type: ignore[arg-type]
