"""/metrics over HTTP, in a thread of its own: a slow scraper never holds up the log."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server

from dledger.config import join_address
from dledger.errors import Code, error

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

PATHS = frozenset({"/metrics", "/favicon.ico"})


class MetricsServer:
    """Serves one registry until it is closed."""

    def __init__(self, server: WSGIServer, thread: Thread) -> None:
        self._server = server
        self._thread = thread

    @property
    def port(self) -> int:
        """The port it listens on: the one chosen when 0 was asked for."""
        return self._server.server_port

    async def close(self) -> None:
        """Returns when the port is free again: within half a second."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def start_metrics_server(registry: CollectorRegistry, host: str, port: int) -> MetricsServer:
    """Begins to serve ``registry`` on ``host``:``port`` (0: any free port). Raises CONFIG_ERROR when it cannot."""
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as failure:
        reason = failure.strerror or str(failure)
        raise error(
            Code.CONFIG_ERROR,
            f"the metrics cannot be served on {join_address(host, port)} ({reason}): free that port or set another "
            "http_port",
        ) from failure
    metrics = server.get_app()
    assert metrics is not None

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] in PATHS:
            return metrics(environ, start_response)
        start_response("404 Not Found", [("Content-Type", "text/plain")])
        return [b"the metrics are at /metrics\n"]

    server.set_app(app)
    return MetricsServer(server, thread)
