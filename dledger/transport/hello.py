"""The first message in each direction of a connection: the sender's id, cluster and version.

The dialler names the node it expects. The acceptor answers with its own hello, or with the reason why it refuses, and
closes then. Each side hands the other's claims to ``HelloHandler.check_peer``.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from dledger.common.batch import Buffer
from dledger.common.errors import Code, DLedgerError, PeerRefused, error, quoted
from dledger.common.types import MAX_START_NONCES, NodeId
from dledger.transport.framing import pack
from dledger.transport.transport_api import HelloHandler, PeerIdentity
from dledger.v1 import raft_pb2 as pb

VERSION = 1
MAX_FIELD_CHARS = 255
"""Of an id or an address in a hello."""
MAX_REFUSAL_CHARS = 1_000


def dial_hello(identity: PeerIdentity, expected: NodeId) -> list[Buffer]:
    """What a dialler says first."""
    return pack(_hello(identity, expected_node_id=expected).SerializeToString())


def answer_hello(identity: PeerIdentity, refusal: PeerRefused | None = None) -> list[Buffer]:
    """What an acceptor answers."""
    hello = _hello(identity)
    if refusal is not None:
        hello.refusal_reason = refusal.code.name
        hello.refusal_message = str(refusal)[:MAX_REFUSAL_CHARS]
    return pack(hello.SerializeToString())


def judge_dial(header: Buffer, handler: HelloHandler) -> PeerIdentity:
    """The identity of the dialler. Raises PeerRefused when the dialler must be told no, UNEXPECTED_ARGUMENT when the
    message was no hello."""
    hello = _parse(header)
    _check_version(hello)
    identity = _identity(hello)
    own = handler.local_identity()
    if hello.expected_node_id != own.node_id:
        raise PeerRefused(
            f"{identity.node_id} dialled {quoted(hello.expected_node_id)} and reached {own.node_id}: "
            "check the peers' addresses"
        )
    handler.check_peer(identity)
    return identity


def judge_answer(header: Buffer, handler: HelloHandler, expected: NodeId) -> None:
    """Raises PeerRefused when either side will not speak with the other, UNEXPECTED_ARGUMENT when that was no hello."""
    hello = _parse(header)
    if hello.refusal_reason:
        raise _told_no(hello, expected)
    _check_version(hello)
    identity = _identity(hello)
    if identity.node_id != expected:
        raise PeerRefused(f"{identity.node_id} answers at the address of {expected}: check the peers' addresses")
    handler.check_peer(identity)


def _hello(identity: PeerIdentity, expected_node_id: str = "") -> pb.Hello:
    return pb.Hello(
        version=VERSION,
        cluster_id=identity.cluster_id,
        node_id=identity.node_id,
        node_uuid=identity.node_uuid,
        start_count=identity.start_count,
        start_nonces=identity.start_nonces,
        client_address=identity.client_address,
        http_address=identity.http_address,
        peer_address=identity.peer_address,
        expected_node_id=expected_node_id,
        is_new=identity.is_new,
    )


def _parse(header: Buffer) -> pb.Hello:
    try:
        return pb.Hello.FromString(bytes(header))
    except DecodeError as failure:
        raise error(Code.UNEXPECTED_ARGUMENT, "the first message of the connection is not a hello") from failure


def _check_version(hello: pb.Hello) -> None:
    if hello.version != VERSION:
        raise PeerRefused(
            f"{quoted(hello.node_id)} speaks version {hello.version} of the protocol between nodes, "
            f"this node version {VERSION}: upgrade the older one",
            code=Code.UNSUPPORTED_VERSION,
        )


def _identity(hello: pb.Hello) -> PeerIdentity:
    texts = (hello.node_id, hello.cluster_id, hello.client_address, hello.http_address, hello.peer_address)
    is_sane = all(len(text) <= MAX_FIELD_CHARS and text.isprintable() for text in texts)
    is_sane &= 0 < len(hello.node_uuid) <= MAX_FIELD_CHARS
    is_sane &= 0 < len(hello.start_nonces) <= min(hello.start_count, MAX_START_NONCES)
    if not is_sane or not hello.node_id:
        raise error(Code.UNEXPECTED_ARGUMENT, "a hello has an id, an address or starts that no node can have")
    return PeerIdentity(
        NodeId(hello.node_id),
        hello.node_uuid,
        hello.start_count,
        tuple(hello.start_nonces),
        hello.cluster_id,
        hello.client_address,
        hello.http_address,
        hello.peer_address,
        hello.is_new,
    )


def _told_no(hello: pb.Hello, expected: NodeId) -> DLedgerError:
    """The peer's refusal in its own words, under its own code if we know that."""
    known = {code.name: code for code in Code}
    code = known.get(hello.refusal_reason, Code.UNEXPECTED_MEMBER)
    said = "".join(c if c.isprintable() else " " for c in hello.refusal_message[:MAX_REFUSAL_CHARS])
    return PeerRefused(f"{expected} refused: {said}", code=code)
