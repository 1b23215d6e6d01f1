"""Our figures beside the peers' and beside the machine's limits, in one run. ``python -m bench --help``."""

import os

# gRPC would warn on stderr of every process started beside its threads; ours only ever fork to exec, or to use sockets.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
