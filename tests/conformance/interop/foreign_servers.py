"""gRPC's interoperability tests the other way: dledger's channel asks the servers of grpc-go and of grpc-java."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from ssl import SSLContext

from dledger.cli.ports import free_base
from dledger.rpc.client.channel import Channel
from tests.conformance.interop.channel_cases import CASES, COMPRESSION_CASES, Check, large_unary
from tests.conformance.interop.foreign_clients import JAVA_SOURCES
from tests.conformance.interop.service import serving
from tests.conformance.judging import Case, Unavailable, case_of
from tests.conformance.tools import go_tool, java_classpath
from tests.support import tls

JAVA_SERVER = "io.grpc.testing.integration.TestServiceServer"
START_S = 20.0
POLL_S = 0.05
SOAK_CHANNELS = 50


async def judge() -> list[Case]:
    go = await go_tool("google.golang.org/grpc/interop/server")
    java = ["java", "-XX:TieredStopAtLevel=1", "-cp", await java_classpath(JAVA_SOURCES), JAVA_SERVER]
    cases = []
    async with _running([go]) as port:
        cases += await _asked("grpc-go", port, CASES)
    async with _running([go, "--use_tls", f"--tls_cert_file={tls.CERTIFICATE}", f"--tls_key_file={tls.KEY}"]) as port:
        cases += await _asked("grpc-go, TLS", port, CASES, tls.of_client())
    async with _running([*java, "--use_tls=false"]) as port:
        cases += await _asked("grpc-java", port, (*CASES, *COMPRESSION_CASES))
    async with serving() as port:
        cases += await _asked("dledger", port, (*CASES, *COMPRESSION_CASES))
    return cases


@asynccontextmanager
async def _running(command: Sequence[str | Path]) -> AsyncIterator[int]:
    """A server's port."""
    port = free_base(1)
    process = await asyncio.create_subprocess_exec(
        *command, f"--port={port}", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await _listens(process, port)
        yield port
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _listens(process: asyncio.subprocess.Process, port: int) -> None:
    try:
        async with asyncio.timeout(START_S):
            while process.returncode is None:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except ConnectionRefusedError:
                    await asyncio.sleep(POLL_S)  # another process cannot be awaited: it is asked
                else:
                    writer.close()
                    return
    except TimeoutError:
        raise Unavailable(f"the server did not listen within {START_S:g} s") from None
    raise Unavailable(f"the server ended with {process.returncode}")


async def _asked(kind: str, port: int, checks: Sequence[Check], ssl: SSLContext | None = None) -> list[Case]:
    address = f"127.0.0.1:{port}"
    cases = []
    channel = Channel(address, ssl=ssl)
    try:
        cases += [await case_of(f"{kind}, {check.__name__}", check(channel)) for check in checks]
    finally:
        await channel.close()
    cases.append(await case_of(f"{kind}, channel_soak", _channel_soak(address, ssl)))
    return cases


async def _channel_soak(address: str, ssl: SSLContext | None) -> None:
    for _ in range(SOAK_CHANNELS):
        channel = Channel(address, ssl=ssl)
        try:
            await large_unary(channel)
        finally:
            await channel.close()
