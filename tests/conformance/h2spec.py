"""h2spec: what HTTP/2 and HPACK ask of a server, section by section."""

from __future__ import annotations

import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.conformance.interop.service import serving
from tests.conformance.judging import Case, Unavailable, run
from tests.conformance.tools import go_tool
from tests.support import tls

SPECS = ("generic", "hpack", "http2")
WITHIN_S = 300.0
LEAST_CASES = 140
"""h2spec 2.6 has 146, with the strict one; fewer mean that it stopped early."""


async def judge() -> list[Case]:
    program = await go_tool("github.com/summerwind/h2spec/cmd/h2spec")
    cases = []
    async with serving(max_frame_bytes=16_384) as port:
        cases += await _judged(program, port, "")
    async with serving(tls.of_server(), max_frame_bytes=16_384) as port:
        cases += await _judged(program, port, "TLS, ", "--tls", "--insecure")
    return cases


async def _judged(program: Path, port: int, kind: str, *flags: str) -> list[Case]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command: list[str | Path] = [program, *SPECS, "--strict", "--port", str(port), "--junit-report", report, *flags]
        ended = await run(command, within_s=WITHIN_S)
        if not report.exists():
            raise Unavailable(f"h2spec left no report: {ended.last_words}")
        cases = [case_in(kind, each) for each in ET.parse(report).getroot().iter("testcase")]
    if len(cases) < LEAST_CASES:
        cases.append(Case(f"{kind}all of them", f"only {len(cases)} cases were judged"))
    return cases


def case_in(kind: str, found: ET.Element) -> Case:
    name = f"{kind}{found.get('package')}: {found.get('classname')}"
    failure = next((each for each in found if each.tag in ("failure", "error")), None)
    if failure is not None:
        return Case(name, " ".join("".join(failure.itertext()).split()) or "failed")
    if found.find("skipped") is not None:
        return Case(name, skipped="h2spec skipped it")
    return Case(name)
