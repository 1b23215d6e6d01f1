"""gRPC's interoperability tests: the clients of grpc-go and of grpc-java ask dledger's server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.interop.service import serving
from tests.conformance.judging import Case, run
from tests.conformance.tools import go_tool, java_classpath
from tests.support import tls

JAVA_SOURCES = Path(__file__).parents[1] / "api" / "java"
JAVA_CLIENT = "io.grpc.testing.integration.TestServiceClient"
WITHIN_S = 60.0
SOAK = {
    "soak_iterations": 200,
    "soak_overall_timeout_seconds": 50,
    "soak_per_iteration_max_acceptable_latency_ms": 5_000,
}
KINDS = {"--use_tls": "TLS, ", "--use_okhttp=true": "OkHttp, "}
"""How a case's name begins that is asked with that flag."""

CASES = (
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "custom_metadata",
    "status_code_and_message",
    "special_status_message",
    "unimplemented_method",
    "unimplemented_service",
    "rpc_soak",
    "channel_soak",
)
COMPRESSION_CASES = (
    "client_compressed_unary",
    "client_compressed_streaming",
    "server_compressed_unary",
    "server_compressed_streaming",
)
MAIN_CASES = (
    "large_unary",
    "ping_pong",
    "custom_metadata",
    "timeout_on_sleeping_server",
    "cancel_after_first_response",
)
"""Those that are asked again over another transport."""
NOT_OURS = {
    "cacheable_unary": "it asks for GET, behind a caching proxy",
    "credentials (7 cases)": "they ask for Google's cloud",
    "orca_per_rpc, orca_oob": "they ask for load reports to a balancer",
    "pick_first_unary": "it asks for a balancer's choice among several servers",
}


async def judge_go() -> list[Case]:
    program = await go_tool("google.golang.org/grpc/interop/client")
    cases = [Case(name, skipped=why) for name, why in NOT_OURS.items()]
    async with serving() as port:
        cases += [await _asked([program], name, port) for name in CASES]
    async with serving(tls.of_server()) as port:
        flags = ["--use_tls", "--use_test_ca", f"--ca_file={tls.CERTIFICATE}"]
        cases += [await _asked([program], name, port, *flags) for name in MAIN_CASES]
    return cases


async def judge_java() -> list[Case]:
    """With netty's transport, and the main cases with OkHttp's as well."""
    # Many short programs: what the compiler would gain costs more than it gives.
    program = ["java", "-XX:TieredStopAtLevel=1", "-cp", await java_classpath(JAVA_SOURCES), JAVA_CLIENT]
    cases = [Case(name, skipped=why) for name, why in NOT_OURS.items()]
    async with serving() as port:
        plain = [(name, ["--use_tls=false"]) for name in (*CASES, *COMPRESSION_CASES)]
        okhttp = [(name, ["--use_tls=false", "--use_okhttp=true"]) for name in MAIN_CASES]
        # A virtual machine takes a second to start: two at a time.
        room = asyncio.Semaphore(2)

        async def asked(name: str, flags: list[str]) -> Case:
            async with room:
                return await _asked(program, name, port, *flags)

        return cases + await asyncio.gather(*[asked(name, flags) for name, flags in plain + okhttp])


async def _asked(program: Sequence[str | Path], name: str, port: int, *flags: str) -> Case:
    command = [*program, "--server_host=127.0.0.1", f"--server_port={port}", f"--test_case={name}", *flags]
    if name.endswith("_soak"):
        command += [f"--{flag}={value}" for flag, value in SOAK.items()]
    ended = await run(command, within_s=WITHIN_S)
    kind = "".join(word for flag, word in KINDS.items() if flag in flags)
    return Case(f"{kind}{name}", f"exit {ended.code}: {ended.last_words}" if ended.code else "")
