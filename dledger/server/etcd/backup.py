"""A copy of the store at one revision, as one stream of bytes.

::

    magic · (length: uint32 · part)* · 0: uint32 · zeros up to a multiple of 512 · SHA-256 of all before

The parts are those of a checkpoint. etcd's clients look for the digest's place: 32 bytes behind a multiple of 512.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from struct import Struct

MAGIC = b"dledger store backup 1\n"
_LENGTH = Struct(">I")
_BLOCK = 512


class BadBackup(Exception):
    """It is none, or not whole. ``str()`` says what is wrong."""


def backup_blobs(parts: Iterable[bytes]) -> Iterator[bytes]:
    digest, size = sha256(), 0
    for blob in _framed(parts):
        digest.update(blob)
        size += len(blob)
        yield blob
    padding = bytes(-size % _BLOCK)
    digest.update(padding)
    yield padding + digest.digest()


def _framed(parts: Iterable[bytes]) -> Iterator[bytes]:
    yield MAGIC
    for part in filter(None, parts):
        yield _LENGTH.pack(len(part)) + part
    yield _LENGTH.pack(0)


def backup_parts(data: bytes) -> list[bytes]:
    """Of a whole backup. Raises BadBackup."""
    body, digest = data[: -sha256().digest_size], data[-sha256().digest_size :]
    if not data.startswith(MAGIC):
        raise BadBackup("it does not begin as a backup of the store does")
    if sha256(body).digest() != digest:
        raise BadBackup("its bytes are not those that were written: the digest at its end is another")
    parts, at = [], len(MAGIC)
    while length := _LENGTH.unpack_from(body, at)[0]:
        at += _LENGTH.size
        parts.append(body[at : at + length])
        at += length
    return parts
