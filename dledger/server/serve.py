"""A node as a process: gRPC and /metrics in front, signals, health, and a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator

from dledger.common.config import NodeConfig
from dledger.common.http2_refusal import wrong_port
from dledger.common.open_files import keep_files_back
from dledger.common.own_name import check_own_name
from dledger.metrics.collector import GroupCollector, make_registry
from dledger.metrics.server import start_metrics_server
from dledger.metrics.store import StoreCollector
from dledger.server.client_port import ClientPort
from dledger.server.cluster_node import ClusterNode

logger = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.001
"""The event loop waits at most so long for a thread that computes, as a scrape of many groups does for half a second.
The interpreter's own interval is five times as long, each time the loop wants to go on."""


async def serve(config: NodeConfig, *, on_ready: Callable[[ClusterNode], None] | None = None) -> None:
    """Runs the node until SIGTERM or SIGINT, and stops it cleanly; a second signal ends the process at once.

    Raises the errors of ``Node.start``, CONFIG_ERROR for a port in use, and the failure that ended the node.
    """
    keep_files_back()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    stopping = asyncio.Event()
    with _signals(stopping):
        node = ClusterNode(config)
        await check_own_name(config.listen_host, config.peer_port)  # before the data directory is made
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(node.stop)
            await node.open()
            # Every port is taken before it joins: a node that nobody can ask must not stand for election.
            port = await ClientPort.take(node)
            if config.metrics_port:
                registry = make_registry(
                    GroupCollector(node.groups.metrics.values(), node.refresh_metrics),
                    StoreCollector(config.id, node.meta.figures),
                )
                told = wrong_port(config.id, "metrics", config.client_address)
                metrics_server = start_metrics_server(
                    registry, config.listen_host, config.metrics_port, told_to_clients=told
                )
                stack.push_async_callback(metrics_server.close)
            await node.join()
            await port.open()
            stack.push_async_callback(port.close)
            # Clients that are told so move to the next leader; a client with a cut stream would have to look for one.
            stack.push_async_callback(node.leave)
            _calm_collector()
            if on_ready is not None:
                on_ready(node)
            logger.info("serving", extra={"node": config.id, "address": config.client_address, "pid": os.getpid()})
            await _until_stopped(node, stopping)
            logger.info("stopping", extra={"node": config.id})


def _calm_collector() -> None:
    """What a node is made of stays: the collector need not look at it again."""
    gc.collect()
    gc.freeze()


async def _until_stopped(node: ClusterNode, stopping: asyncio.Event) -> None:
    """Returns on a signal; raises the failure that keeps the node from going on."""
    stop = asyncio.create_task(stopping.wait(), name="stop-signal")
    failed = asyncio.create_task(node.failed(), name="node-failed")
    done, pending = await asyncio.wait([stop, failed], return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    if failed in done:
        raise failed.result()


@contextlib.contextmanager
def _signals(stopping: asyncio.Event) -> Iterator[None]:
    """The first SIGTERM, SIGINT or SIGHUP asks for a clean stop; the second does not wait for it. A node that was
    started to outlive its terminal, as by nohup, goes on ignoring SIGHUP."""
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
