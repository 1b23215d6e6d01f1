"""``python -m tests.power.slow_syncs serve …``: ``dledger``, on a disk that is slow to begin an fdatasync.

A machine's own disk is done with most syncs before a cut can find anything that waits for one. Here there nearly always
is a tail that was written and not synced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from dledger.cli.main import main
from dledger.disk.disk import OsDisk
from dledger.disk.syncer import Handle, OnSynced, Syncer

DELAY_S = 0.008


class SlowSyncer:
    """Asks another one, a little later."""

    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer

    def sync(self, handles: Sequence[Handle], directories: Sequence[str], on_done: OnSynced) -> None:
        later = partial(self._syncer.sync, handles, directories, on_done)
        asyncio.get_running_loop().call_later(DELAY_S, later)

    def close(self) -> None:
        self._syncer.close()


def _slow_syncer(disk: OsDisk, make: Callable[[OsDisk], Syncer] = OsDisk.syncer) -> Syncer:
    return SlowSyncer(make(disk))


if __name__ == "__main__":
    OsDisk.syncer = _slow_syncer  # type: ignore[assignment, method-assign]
    main()
