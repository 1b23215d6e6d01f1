"""Mutual TLS between nodes. The key beside this file guards nothing but these tests."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from dledger.common.errors import ConfigError
from dledger.common.types import NodeId
from dledger.raft import codec
from dledger.raft.messages import PeerMessage
from dledger.transport.peer import TcpTransport, TlsContexts
from tests.unit.transport.messages import heartbeat
from tests.unit.transport.recorder import LogRecorder, Recorder

A, B = NodeId("a"), NodeId("b")
CERTIFICATE, KEY = (Path(__file__).parent / "tls" / name for name in ("node.crt", "node.key"))


def contexts(*, has_certificate: bool = True) -> TlsContexts:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.load_verify_locations(CERTIFICATE)
    server.load_cert_chain(CERTIFICATE, KEY)
    if has_certificate:
        client.load_cert_chain(CERTIFICATE, KEY)
    return TlsContexts(server, client)


@pytest.fixture
async def acceptor() -> AsyncIterator[tuple[TcpTransport[PeerMessage], Recorder]]:
    handler = Recorder(A)
    transport = TcpTransport("127.0.0.1", 0, codec=codec, random=Random(1), tls=contexts())
    await transport.start(handler)
    yield transport, handler
    await transport.close()


async def dial(
    acceptor: TcpTransport[PeerMessage], tls: TlsContexts | None
) -> tuple[TcpTransport[PeerMessage], Recorder]:
    handler = Recorder(B)
    transport = TcpTransport("127.0.0.1", 0, codec=codec, random=Random(1), tls=tls)
    await transport.start(handler)
    transport.set_peers({A: f"127.0.0.1:{acceptor.port}"})
    return transport, handler


async def test_messages_arrive_over_mutual_tls(acceptor: tuple[TcpTransport[PeerMessage], Recorder]) -> None:
    transport, handler = acceptor
    dialler, dialled = await dial(transport, contexts())
    await dialled.until(lambda: dialler.is_connected(A))
    assert dialler.send(A, heartbeat(1))
    await handler.until(lambda: handler.messages == [(B, heartbeat(1))])
    await dialler.close()


@pytest.mark.parametrize("tls", [None, contexts(has_certificate=False)], ids=["plain", "without a certificate"])
async def test_who_shows_no_certificate_is_not_let_in(
    acceptor: tuple[TcpTransport[PeerMessage], Recorder], tls: TlsContexts | None
) -> None:
    transport, handler = acceptor
    with LogRecorder("dledger.transport") as log:
        dialler, dialled = await dial(transport, tls)
        await log.until("cannot connect to a peer")
        await dialler.close()
    assert handler.hellos == []
    assert dialled.connected == []


@pytest.mark.parametrize("side", ["server", "client"])
def test_tls_that_does_not_verify_its_peer_is_a_config_error(side: str) -> None:
    tls = contexts()
    context: ssl.SSLContext = getattr(tls, side)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with pytest.raises(ConfigError, match="CERT_REQUIRED"):
        TcpTransport("127.0.0.1", 0, codec=codec, random=Random(1), tls=tls)
