"""Real nodes on real file systems that lose power: nothing acknowledged goes. Needs root."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dledger.common.errors import Code
from tests.power.cuts import LYING, SERVE_ON_SLOW_DISKS, cut_power
from tests.power.volume import CannotMountError
from tests.support.lacking import cannot

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

LOSSES = (Code.CORRUPT_LOG.value, Code.UNKNOWN_CLUSTER.value)
"""What nodes that come back without their files say, and clients of nodes that came back as new ones."""


@pytest.mark.parametrize("filesystem", ["ext4", "xfs"])
async def test_power_cuts_lose_nothing_acknowledged(tmp_path: Path, filesystem: str) -> None:
    try:
        report = await cut_power(tmp_path, filesystem, cuts=8, seed=1, programs=[SERVE_ON_SLOW_DISKS])
    except CannotMountError as reason:
        cannot(str(reason))
    assert report.ok, str(report)
    assert set(report.cuts) == {"one", "all"}


async def test_syncs_that_do_nothing_are_found_out(tmp_path: Path) -> None:
    """The negative control: whoever tests power cuts with this suite learns of a disk that lies."""
    if shutil.which("eatmydata") is None:
        cannot("eatmydata is not installed")
    try:
        report = await cut_power(tmp_path, "ext4", cuts=8, seed=1, programs=[LYING])
    except CannotMountError as reason:
        cannot(str(reason))
    has_lost_all = any(each.startswith(LOSSES) for each in report.refusals)
    assert report.findings.lost or report.doubted or has_lost_all, [str(report), *report.refusals]
