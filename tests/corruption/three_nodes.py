"""Three real nodes on simulated disks, whose segments are as small as those of the node that is damaged alone."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from dledger.common.config import NodeConfig
from dledger.log.file_log import FileLog
from dledger.log.verify import _Verifier
from tests.corruption.expected import Outcome
from tests.corruption.outcome import everything
from tests.crashes.medium import Image, RecordedPlatter, RecordingDisk
from tests.crashes.promises import DATA, GROUP, LIMITS
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.host import SimHost
from tests.simulation.process import WorldLoop
from tests.simulation.trace import Trace
from tests.simulation.violation import Violation
from tests.support.virtual_time import run_virtual
from tests.unit.group.rot import until

SEED = 1
IDLE_S = 0.5
"""Longer than a log waits before it writes a mark alone."""


def three_nodes() -> SimulatedCluster:
    """To be called inside a ``WorldLoop``."""
    cluster = SimulatedCluster(3, SEED, Trace(), lease_reads=False)
    config_of = cluster.config_of

    def small(host: SimHost) -> NodeConfig:
        return replace(config_of(host), limits=LIMITS)

    cluster.config_of = small  # type: ignore[method-assign]
    return cluster


async def started(cluster: SimulatedCluster) -> SimHost:
    """Starts it; its leader."""
    await cluster.start()
    await until(lambda: any(host.leads and host.replica.core.is_ready for host in cluster.up()))
    return cluster.leaders()[0]


def log_of(host: SimHost) -> FileLog:
    log = host.replica.log
    assert isinstance(log, FileLog)
    return log


def image_of(host: SimHost) -> Image:
    """Its files, where a node that is alone has them."""
    own = f"{DATA}/{host.id}"
    found = {path: bytes(host.platter.find(path).data) for path in host.platter.paths()}
    files = [(path.replace(own, str(DATA), 1), content) for path, content in found.items()]
    return Image(tuple(sorted(files)), (str(DATA), str(GROUP.parent), str(GROUP)))


def judged(case: Coroutine[Any, Any, tuple[Outcome, str]]) -> tuple[Outcome, str]:
    """What ``case`` comes to, in a world of its own, and what is wrong, if anything is."""
    try:
        return run_virtual(case, loop_factory=WorldLoop)
    except Violation as broken:
        return Outcome.WRONG, f"{type(broken).__name__}: {broken}"


async def check_logs(cluster: SimulatedCluster) -> tuple[bytes, ...]:
    """All three hold the same frames, and give all of them; and nothing that they store is damaged."""
    held = {}
    for host in cluster.hosts.values():
        log = log_of(host)
        held[host.id] = await host.ask(lambda log=log: everything(log)), log.state.encode()  # type: ignore[misc]
        report = _Verifier(RecordingDisk(RecordedPlatter(image_of(host))), GROUP).run()
        assert report.ok, f"{host.id} has everything, and a verify finds {report.bad}"
    assert len(set(held.values())) == 1, f"of {', '.join(held)} one holds something else"
    return next(iter(held.values()))[0]
