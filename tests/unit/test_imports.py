"""What a program pays for that uses the client or the command line alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAMS = {
    "client": "import dledger; dledger.connect, dledger.connect_blocking, dledger.connect_cluster, dledger.replicate",
    "command line": "import dledger.cli.main, dledger.cli.append, dledger.cli.get, dledger.cli.status",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_library_of_grpc_is_loaded(name: str) -> None:
    program = f"{PROGRAMS[name]}; import sys; sys.exit('grpc' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
