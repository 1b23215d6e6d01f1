"""Who calls, as a line of the log names it."""

from __future__ import annotations

import pytest

from dledger.rpc.server.refusals import caller_of


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.1:5000", "10.0.0.1:5000"),
        ("ipv6:%5B::1%5D:5000", "[::1]:5000"),
        ("unix:/run/dledger.sock", "unix:/run/dledger.sock"),
    ],
)
def test_a_caller_is_named_by_address(peer: str, address: str) -> None:
    assert caller_of(peer) == address
