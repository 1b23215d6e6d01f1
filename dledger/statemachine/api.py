"""What a program writes to have its state replicated.

::

    class Counter(StateMachine):
        def __init__(self):
            self.value = 0

        def apply(self, command):
            if not command.isdigit() or len(command) > 18:
                raise Refused("a step is 1 to 18 digits")
            self.value += int(command)
            return self.value

        def checkpoint(self):
            return iter([b"%d" % self.value])

        async def restore(self, parts):
            self.value = int(b"".join([part async for part in parts]))
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from functools import reduce
from hashlib import blake2b
from typing import Any

MAX_PART_BYTES = 512 << 10
"""Of one part of a checkpoint: it is one record of the log."""
DIGEST_BYTES = 16


class Refused(Exception):
    """Raised by ``StateMachine.apply`` for a command that it does not carry out. The state must be as it was before.
    The submitter of the command gets this exception; the log and the state machine go on."""


class StateMachine(ABC):
    """State that changes by commands alone.

    ``apply`` must be deterministic: no clock, no randomness, no iteration over the order of hashes. All methods run on
    the event loop and must not block it.
    """

    version = 1
    """The latest version of commands that this program knows. A state machine stops at a command of a later one."""

    @abstractmethod
    def apply(self, command: bytes) -> Any:
        """Changes the state, and returns the submitter's answer: a value that ``encode_answer`` can encode. Raises
        Refused, and changes nothing. Any other exception stops the state machine on every node, as the command may be
        carried out in part."""

    @abstractmethod
    def checkpoint(self) -> Iterator[bytes]:
        """The whole state in parts of at most 512 KiB. Returns soon, for a state of any size: the iterator is over a
        view that later commands do not change. The same state gives the same parts on every node.

        An empty part counts as none. Where the next part takes long, empty ones before it give others their turn."""

    @abstractmethod
    async def restore(self, parts: AsyncIterator[bytes]) -> None:
        """Replaces the state by the one that ``checkpoint`` gave these parts of."""

    def digest(self) -> bytes:
        """Of the whole state: what ``fold`` makes of all parts of a checkpoint taken now. A state machine with much
        state overrides both and keeps the digest up to date as it applies commands."""
        return reduce(self.fold, filter(None, self.checkpoint()), b"")

    def fold(self, digest: bytes, part: bytes) -> bytes:
        """The digest of the parts before, which is empty for none, and of ``part``."""
        return blake2b(digest + part, digest_size=DIGEST_BYTES).digest()

    # Answers are kept until their submitter has them, in the state and in its checkpoints: as bytes.

    def encode_answer(self, answer: Any) -> bytes:
        """Of what ``apply`` returned; equal answers give equal bytes on every node. By default it takes None, bytes,
        and what JSON has: str, int, float, bool, and lists and dicts of these. Raises TypeError for anything else."""
        if answer is None:
            return b""
        if isinstance(answer, bytes):
            return _BYTES + answer
        return _JSON + json.dumps(answer, sort_keys=True, separators=(",", ":")).encode()

    def decode_answer(self, data: bytes) -> Any:
        """What the submitter gets, once and at every retry."""
        if not data:
            return None
        return data[1:] if data.startswith(_BYTES) else json.loads(data[1:])

    def encode_refusal(self, refusal: Refused) -> bytes:
        """Equal refusals give equal bytes on every node."""
        return str(refusal).encode()

    def decode_refusal(self, data: bytes) -> Refused:
        """What is raised to the submitter."""
        return Refused(data.decode())


_BYTES = b"b"
_JSON = b"j"
