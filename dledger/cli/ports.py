"""Free ports for nodes on this machine."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

from dledger.cli.options import DEV_PORT_STEP
from dledger.common.config import GRPC_PORT_OFFSET, HTTP_PORT_OFFSET
from dledger.common.errors import ConfigError

LOOPBACK = "127.0.0.1"
LOWEST, HIGHEST = 10_000, 32_000
"""Below the ports that Linux hands to outgoing connections, so none of those can take one between look and use."""
ATTEMPTS = 200


def ports_of(base: int, nodes: int) -> list[int]:
    """Every port that ``nodes`` nodes use from ``base`` on."""
    offsets = (0, GRPC_PORT_OFFSET, HTTP_PORT_OFFSET)
    return [base + DEV_PORT_STEP * node + offset for node in range(nodes) for offset in offsets]


def busy_port(ports: list[int]) -> int | None:
    """The first of ``ports`` that somebody listens on, if any."""
    with ExitStack() as opened:
        for port in ports:
            probe = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                return port
    return None


def free_base(nodes: int, chance: random.Random | None = None) -> int:
    """A base port with its whole block free now. Raises CONFIG_ERROR when none was found."""
    chance = chance or random.SystemRandom()
    span = DEV_PORT_STEP * nodes
    for _ in range(ATTEMPTS):
        base = chance.randrange(LOWEST, HIGHEST - span, DEV_PORT_STEP)
        if busy_port(ports_of(base, nodes)) is None:
            return base
    raise ConfigError(f"no {nodes} free blocks of ports between {LOWEST} and {HIGHEST}: choose one with --port")
