"""A cut of ``python -m tests.fuzz``: real nodes under attack at every port, for seconds."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.ports import fuzz_ports


def test_nodes_refuse_what_is_thrown_at_their_ports_and_go_on(tmp_path: Path) -> None:
    outcomes = fuzz_ports(tmp_path, seed=1, count=2_000, progress=lambda _done: None, swarm=50)
    kinds = {outcome.split(": ")[0] for outcome in outcomes}
    assert {"Append", "AppendStream", "Read", "a member's session", "gRPC port noise", "HTTP port noise"} <= kinds
    assert outcomes["silent connections"] == 9 * 50
