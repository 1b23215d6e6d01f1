"""dledger under faults, in the manner of Jepsen: hosts that are really cut off, and a history that is judged.

::

    control ── generator ─▶ workers ─▶ clients ──▶ five hosts, a node each
       │                        │                     ▲
       │                     recorder                 │ partitions, kills, full and lying disks, clocks …
       └── nemesis ─────────────┼─────────────────────┘   each with the proof that it bit
                                ▼
                         history.parquet ─▶ checks (dledger.kernels) ─▶ verdict, report

``python -m jepsen test --help`` says how to run it.
"""

from __future__ import annotations

import os

# Read by gRPC's own library, which the plain clients and the probe use, when it is first imported. Our processes fork
# to exec only: without it the children may crash before.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
