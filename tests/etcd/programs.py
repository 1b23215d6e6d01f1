"""etcd and etcdctl, to be judged by: built from etcd's own Go module. Debian's etcd is 3.4, and answers otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULE = Path(__file__).resolve().parent / "judge"
"""Its go.mod says which version, its go.sum which bytes."""
CACHE = ROOT / ".make" / "etcd"
PACKAGES = {"etcd": "go.etcd.io/etcd/server/v3", "etcdctl": "go.etcd.io/etcd/etcdctl/v3"}
GO_FLAGS = "-buildvcs=false -trimpath -mod=readonly"


class Lacking(Exception):
    """There is no such program, and no way to build it."""


def program(name: str) -> Path:
    """The path of ``etcd`` or ``etcdctl``. The first call builds it: minutes. Raises Lacking."""
    built = CACHE / name
    wanted = (MODULE / "go.sum").read_bytes()
    if built.exists() and (CACHE / f"{name}.sum").read_bytes() == wanted:
        return built
    if not shutil.which("go"):
        raise Lacking(f"Go is needed to build {name} (its version: {MODULE / 'go.mod'})")
    CACHE.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-C", str(MODULE), "-o", str(built), "-ldflags=-s -w", PACKAGES[name]]
    subprocess.run(command, env=os.environ | {"GOFLAGS": GO_FLAGS}, check=True)
    (CACHE / f"{name}.sum").write_bytes(wanted)
    return built
