"""What happened, as lines that are hashed as they come: two runs of a seed must give the same hash."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b

from dledger.raft.messages import PeerMessage


def told(message: PeerMessage) -> str:
    """All that a message says: of its frames which, and by the last one's chain what is in them."""
    frames = getattr(message, "frames", ())
    return f"{message!r} chain={frames[-1].header.chain}" if frames else repr(message)


class Trace:
    """``note`` everything that a run may differ in. Writes the lines too when it is to ``show`` them."""

    def __init__(self, *, show: bool = False) -> None:
        self._hash = blake2b(digest_size=8)
        self._show = show
        self.clock: Callable[[], float] = lambda: 0.0
        self.hits: Counter[str] = Counter()
        """How often each fault, and each named branch, was met."""

    def note(self, what: str, *details: object) -> None:
        line = f"{self.clock():.6f} {what} {' '.join(map(str, details))}\n"
        self._hash.update(line.encode())
        if self._show:
            sys.stdout.write(line)

    def hit(self, name: str, *details: object) -> None:
        """A fault bit, or a branch was taken."""
        self.hits[name] += 1
        self.note(name, *details)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
