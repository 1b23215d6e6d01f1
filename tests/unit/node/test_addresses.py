"""What nodes tell of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.node.groups import IDS, machines


async def test_two_nodes_that_tell_clients_one_address_are_said_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with machines(tmp_path) as running:
        node, other = (running.nodes[each] for each in IDS[:2])
        identity = other.local_identity()
        node.check_peer(identity)
        assert "tell clients one address" not in caplog.text
        node.check_peer(identity._replace(client_address=node.config.client_address))
        assert "tell clients one address" in caplog.text
