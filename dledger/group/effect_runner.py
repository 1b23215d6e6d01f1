"""The core's clock and hard state: arms one timer, runs effects in order, and persists before it speaks.

::

    core.take_effects()   …  Send  Persist  Send  RoleChanged  Send  …
                             done  ───┬───  held until both slots are synced
                                      ▼
                             HardStateStore.save
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Protocol

from dledger.common.errors import Code, DLedgerError, error
from dledger.group.hard_state import HardState
from dledger.raft.effects import Effect, Persist, RoleChanged
from dledger.raft.raft_node import RaftNode


class HardStateSaver(Protocol):
    async def save(self, state: HardState) -> None: ...


class EffectRunner:
    """Owns the order of effects. While a save is under way, or somebody works ``exclusive``-ly, all later effects,
    deferred work and the timer are held."""

    def __init__(
        self,
        core: RaftNode,
        saver: HardStateSaver,
        execute: Callable[[Effect], None],
        guard: Callable[[Callable[[], None]], None],
        fail: Callable[[DLedgerError], None],
    ) -> None:
        self._core = core
        self._saver = saver
        self._execute = execute
        self._guard = guard
        self._fail = fail
        self._held: deque[Effect | Callable[[], object]] = deque()
        self._is_running = False
        self._barrier: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms = 0.0
        self._loop = asyncio.get_running_loop()

    @property
    def is_holding(self) -> bool:
        return self._barrier is not None

    @property
    def is_behind(self) -> bool:
        """Whether effects still wait, a ``Persist`` perhaps among them: what is sent now must go behind them."""
        return self._barrier is not None or bool(self._held)

    def start(self) -> None:
        self.run()

    async def settle(self) -> None:
        """Returns when no save is under way."""
        while self._barrier is not None:
            await asyncio.wait([self._barrier])

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._barrier is not None:
            self._barrier.cancel()
        self._held.clear()

    def run(self) -> None:
        """Does what the core wants done, as far as it may be done now, and arms the timer."""
        if self._core.has_effects:
            self._held.extend(self._core.take_effects())
        if self._held:
            self._drain()
        self._arm()

    def send(self, send: Callable[[], bool]) -> bool:
        """Sends now, or behind every effect that still waits for a ``Persist``. False: it was dropped."""
        if not self.is_behind:
            return send()
        self.defer(send)
        return True

    def defer(self, work: Callable[[], object]) -> None:
        """Does ``work`` behind every effect that is held; at once when none is."""
        if self.is_behind:
            self._held.append(work)
        else:
            work()

    def _drain(self) -> None:
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._held and self._barrier is None:
                item = self._held.popleft()
                if isinstance(item, Persist):
                    self._begin_save(item)
                elif callable(item):
                    item()
                else:
                    self._execute(item)
                if self._core.has_effects:
                    self._held.extend(self._core.take_effects())
        finally:
            self._is_running = False

    def _with_vote(self, effect: Persist) -> Persist:
        """A term that is taken for the sake of a vote is saved once, with the vote: nobody is told of it in between."""
        for at, item in enumerate(self._held):
            if isinstance(item, Persist) and item.term == effect.term:
                del self._held[at]
                return item
            if not isinstance(item, RoleChanged):
                break
        return effect

    def _begin_save(self, effect: Persist) -> None:
        effect = self._with_vote(effect)
        state = HardState(effect.term, effect.vote)
        save = self._loop.create_task(self._saver.save(state), name="elector-save")
        save.add_done_callback(self._saved)
        self._barrier = save

    def _saved(self, task: asyncio.Task[None]) -> None:
        self._barrier = None
        if task.cancelled():
            return
        failure = task.exception()
        if isinstance(failure, DLedgerError):
            self._fail(failure)
        elif failure is not None:
            self._fail(error(Code.DISK_ERROR, f"term and vote cannot be made durable: {failure}"))
        else:
            self._guard(self.run)

    @contextlib.asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """The log is being cut: no message, timer or effect comes in between, as during a save."""
        while self._barrier is not None:
            await asyncio.wait([self._barrier])
        barrier = self._barrier = self._loop.create_future()
        try:
            yield
        finally:
            self._barrier = None
            if not barrier.done():
                barrier.set_result(None)
                self._guard(self.run)

    # The clock ---------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """One timer. It is moved forward only when it fires, so that every heartbeat does not cost a timer."""
        deadline_ms = self._core.deadline_ms
        if self._timer is not None:
            if self._armed_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._armed_ms = deadline_ms
        self._timer = self._loop.call_at(deadline_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._barrier is not None:
            return  # the timer is armed again when the barrier falls
        # A loop may fire a timer early by a rounding error. Taken for an early call, the timer would be armed again at
        # once. That would never end if the clock moves with the timers alone.
        now_ms = max(self._loop.time() * 1000, self._armed_ms)
        if now_ms < self._core.deadline_ms:
            self._arm()
        else:
            self._guard(partial(self._core.tick, now_ms))
