"""/metrics over HTTP, in threads of its own: a slow scraper never holds up the log.

Connections are few, and none stays for long. A request has a deadline as a whole, and when all places are taken the
oldest connection makes room. So strangers take neither threads nor files from the log, nor a scraper's place.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from contextlib import suppress
from socketserver import ThreadingMixIn
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from dledger.common.config import join_address
from dledger.common.errors import Code, error
from dledger.common.http2_refusal import HTTP2_BEGINNING, Http2Refusal
from dledger.common.open_files import needed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

logger = logging.getLogger(__name__)

PATHS = frozenset({"/metrics", "/favicon.ico"})
MAX_CONNECTIONS = 32
"""For a further one the oldest is closed."""
REQUEST_TIMEOUT_S = 5.0
"""A connection that has not been answered for so long is closed, even if it goes on sending."""


class _Handler(WSGIRequestHandler):
    server: _Server
    raw_requestline: bytes

    def parse_request(self) -> bool:
        if self.raw_requestline.startswith(HTTP2_BEGINNING):
            self._refuse_clients()
            return False
        return super().parse_request()

    def _refuse_clients(self) -> None:
        """Of gRPC, which have taken the wrong one of this node's ports. The request's deadline ends it."""
        refusal, data = Http2Refusal(self.server.told_to_clients), self.raw_requestline
        try:
            while data:
                self.wfile.write(refusal.feed(data))
                data = self.rfile.read1()
        except ValueError as reason:
            logger.debug("a client of gRPC on the metrics port sent %s", reason)

    def log_message(self, *_: object) -> None:
        """Every scrape would be a line of the node's log."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, told_to_clients: str) -> None:
        self.told_to_clients = told_to_clients
        (family, *_, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = family
        self._began_s: dict[socket.socket, float] = {}
        """When each connection came, the oldest first."""
        self._lock = Lock()
        super().__init__((str(address[0]), port), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        return needed(super().get_request)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._began_s[request] = time.monotonic()
            surplus = list(self._began_s)[:-MAX_CONNECTIONS]
        self._cut(surplus)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Called twice a second."""
        limit_s = time.monotonic() - REQUEST_TIMEOUT_S
        with self._lock:
            late = [request for request, began_s in self._began_s.items() if began_s < limit_s]
        self._cut(late)

    def _cut(self, requests: Iterable[socket.socket]) -> None:
        """The thread of each finds its connection ended, and closes it."""
        for request in requests:
            with self._lock:
                self._began_s.pop(request, None)
            with suppress(OSError):  # it is closed already
                request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._began_s.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle is no trouble of the node's."""
        logger.debug("a connection to the metrics broke: %s", sys.exception())


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


def start_metrics_server(
    registry: CollectorRegistry, host: str, port: int, *, told_to_clients: str = "this port is for metrics"
) -> MetricsServer:
    """Begins to serve ``registry`` on ``host``:``port`` (0: any free port). Raises CONFIG_ERROR when it cannot.

    ``told_to_clients``: the refusal of every gRPC call on this port.
    """
    try:
        server = _Server(host, port, told_to_clients)
    except OSError as failure:
        reason = failure.strerror or str(failure)
        raise error(
            Code.CONFIG_ERROR,
            f"the metrics cannot be served on {join_address(host, port)} ({reason}): free that port or set another "
            "http_port",
        ) from failure
    metrics: WSGIApplication = make_wsgi_app(registry)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] in PATHS:
            return metrics(environ, start_response)
        start_response("404 Not Found", [("Content-Type", "text/plain")])
        return [b"the metrics are at /metrics\n"]

    server.set_app(app)
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    return MetricsServer(server, thread)
