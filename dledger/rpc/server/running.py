"""Handlers at work: each in a task, which begins at once or with the handler's first wait."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any

logger = logging.getLogger(__name__)

_running: set[asyncio.Task[None]] = set()
"""The loop alone does not keep tasks alive."""


def in_a_task(run: Coroutine[Any, Any, None], work: Any) -> asyncio.Task[None]:
    """The task of ``run``, in which ``work`` is awaited. A failure that ``run`` lets out is a bug, and is logged."""
    task = asyncio.get_running_loop().create_task(run)
    _running.add(task)
    task.add_done_callback(_ended)
    if inspect.iscoroutine(work):
        # A task that is cancelled before it begins leaves it where it is.
        task.add_done_callback(lambda _: work.close())
    return task


def _ended(task: asyncio.Task[None]) -> None:
    """Of a handler's task: its failure was told to the client, and to the log."""
    _running.discard(task)
    if not task.cancelled() and (failure := task.exception()) is not None:
        logger.error("a call ended in a bug", exc_info=failure)


class Begun:
    """A coroutine that has run up to its first wait, with the object it waits for: awaiting this goes on with it."""

    def __init__(self, work: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        work, waits_for = self._work, self._waits_for
        while True:
            try:
                sent = yield waits_for
            except BaseException as thrown:  # noqa: BLE001  # also a cancellation is the coroutine's to handle
                step: Callable[[], Any] = partial(work.throw, thrown)
            else:
                step = partial(work.send, sent)
            try:
                waits_for = step()
            except StopIteration as end:
                return end.value
