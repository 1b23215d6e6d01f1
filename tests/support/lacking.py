"""What a test does that cannot run on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import NoReturn

import pytest


def cannot(reason: str) -> NoReturn:
    """Skips the test; fails it in the gate, which sets NO_SKIPS: a test that is left out proves nothing."""
    if os.environ.get("NO_SKIPS"):
        pytest.fail(f"this cannot run here, and the gate may not leave it out: {reason}", pytrace=False)
    pytest.skip(reason)


def missing_tools(packages: Mapping[str, str]) -> str:
    """A sentence that says which programs are missing, and which Debian packages have them; empty if none is missing.

    ``packages``: the Debian package of each program."""
    missing = [program for program in packages if shutil.which(program) is None]
    if not missing:
        return ""
    wanted = " ".join(dict.fromkeys(packages[program] for program in missing))
    return f"{', '.join(missing)} cannot be found: apt install {wanted}"
