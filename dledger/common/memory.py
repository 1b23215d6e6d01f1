"""Settings of the allocator for a process that takes or sends one batch behind another."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""``mallopt``'s names for them."""
KEPT_BYTES = 64 << 20
LARGE_BYTES = 32 << 20
"""Larger pieces come from the kernel, and go back to it; glibc takes no higher bound."""


def keep_freed_memory() -> None:
    """Up to ``KEPT_BYTES`` that were freed are kept for the next batch.

    glibc gives them back to the kernel after each, and takes them again page by page with the next. That costs a client
    a seventh of its bulk appends. If a follower catches up, it costs the appends that go on another seventh. Nothing
    happens if the C library has no ``mallopt``. It holds for the whole process. dledger's own programs call it, and a
    program that appends in bulk may. The client does not do so by itself.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
