"""Addresses of nodes, as people write them."""

from __future__ import annotations

import pytest

from dledger.common.config import split_address
from dledger.common.errors import ConfigError


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("http://127.0.0.1:20912", "leave http:// out, write 127.0.0.1:20912"),
        ("dledger://n0:20912/", "leave dledger:// out, write n0:20912"),
        ("::1:20912", r"write an IPv6 address in brackets, \[::1\]:20912"),
        ("127.0.0.1", "write host:port"),
        ("127.0.0.1:31012;127.0.0.1:31022", "write a comma between several"),
        ("127.0.0.1:31012 127.0.0.1:31022", "write a comma between several"),
    ],
)
def test_a_wrong_address_is_refused_with_the_right_one(address: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=advice):
        split_address(address)
