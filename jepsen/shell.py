"""Commands as the control node runs them."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence


class CommandFailedError(Exception):
    """A command ended with another code than 0; the message is what it said."""

    def __init__(self, command: Sequence[str], code: int, said: str) -> None:
        self.code = code
        self.said = said.strip() or "it said nothing"
        super().__init__(f"{shlex.join(command)} ended with {code}: {self.said}")


def run(*command: str) -> str:
    """What the command prints; for setting up and tearing down. Raises CommandFailedError."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandFailedError(command, done.returncode, done.stderr)
    return done.stdout
