"""The store as a state machine on a log: retries, refusals, terms, checkpoints."""

from __future__ import annotations

from random import Random
from typing import cast

import pytest

from dledger.client import Log
from dledger.common.errors import Code, DLedgerError
from dledger.etcdpb import rpc_pb2 as pb
from dledger.statemachine.applier import Applied, Applier, Dropped
from dledger.statemachine.records import Command, OpenSession, encode
from dledger.statemachine.replicated import replicate
from dledger.store.commands import Expired, command, expire_command
from dledger.store.machine import Store
from dledger.store.refusals import StoreCode, StoreRefused
from tests.unit.statemachine.memory import MemoryMachineLog
from tests.unit.statemachine.test_replicated import ClientSide


def put(key: bytes, value: bytes = b"v", lease: int = 0) -> bytes:
    return command(pb.PutRequest(key=key, value=value, lease=lease))


async def test_a_store_that_starts_from_a_checkpoint_is_the_one_that_wrote_it() -> None:
    log = MemoryMachineLog()
    async with replicate(cast("Log", ClientSide(log)), Store) as store:
        for at in range(300):
            await store.submit(put(b"k%d" % (at % 20), bytes(5_000)))
        await store.submit(command(pb.CompactionRequest(revision=200)))
        began = await store.checkpoint()
        await store.submit(put(b"later"))
        digest = store.machine.digest()
    log.trim(began)
    async with replicate(cast("Log", ClientSide(log)), Store) as late:
        await late.barrier()
        assert late.machine.digest() == digest


async def test_a_submitter_gets_etcds_answer_or_etcds_refusal() -> None:
    async with replicate(cast("Log", ClientSide(MemoryMachineLog())), Store) as store:
        answer = await store.submit(put(b"k"))
        assert answer == pb.PutResponse(header=pb.ResponseHeader(revision=2))
        with pytest.raises(StoreRefused) as refusal:
            await store.submit(put(b"k", lease=5))
        assert refusal.value.code is StoreCode.LEASE_NOT_FOUND


def in_session(payload: bytes, request: int, term: int = 0) -> bytes:
    return encode(Command(payload, 1, 7, request, term=term, session=1, acknowledged=0))


def test_a_retried_command_changes_the_store_once_and_has_its_first_answer() -> None:
    applier = Applier(Store())
    applier.apply(0, 1, encode(OpenSession(7, 1)))
    first = applier.apply(1, 1, in_session(put(b"k"), 1))
    applier.apply(2, 1, in_session(put(b"k", b"other"), 2))
    again = applier.apply(3, 2, in_session(put(b"k"), 1))
    assert isinstance(first, Applied)
    assert isinstance(again, Applied)
    assert again.answer == first.answer
    assert cast("Store", applier.machine).pairs.revision == 3


def test_an_expiry_of_a_leader_that_was_deposed_does_nothing() -> None:
    applier = Applier(Store())
    store = cast("Store", applier.machine)
    applier.apply(0, 1, encode(Command(command(pb.LeaseGrantRequest(ID=5, TTL=5)), 1, 0, 0)))
    expiry = Command(expire_command([Expired(5, 1)]), 1, 0, 0, term=1)
    assert isinstance(applier.apply(1, 2, encode(expiry)), Dropped)
    assert store.leases.get(5) is not None
    assert isinstance(applier.apply(2, 1, encode(expiry)), Applied)
    assert store.leases.get(5) is None


def any_command(random: Random, at: int) -> bytes:
    key, lease = b"k%d" % random.randrange(4), random.choice([0, 1, 2])
    match random.randrange(5):
        case 0:
            return put(key, lease=lease)
        case 1:
            return command(pb.DeleteRangeRequest(key=key))
        case 2:
            return command(pb.LeaseGrantRequest(ID=lease, TTL=5))
        case 3:
            return command(pb.LeaseRevokeRequest(ID=lease))
    return command(pb.CompactionRequest(revision=random.randrange(at + 2)))


@pytest.mark.parametrize("seed", range(20))
def test_position_and_state_are_one_wherever_a_start_stops(seed: int) -> None:
    """Any beginning of the log, applied by itself, gives the state that was there when all was applied."""
    random, applier, digests = Random(seed), Applier(Store()), []
    records = []
    for at in range(60):
        records.append(encode(Command(any_command(random, at), 1, 0, 0)))
        applier.apply(at, 1, records[-1])
        digests.append(applier.machine.digest())
        cast("Store", applier.machine).clean(random.randrange(4))
    for stop in random.sample(range(60), 8):
        again = Applier(Store())
        for at in range(stop + 1):
            again.apply(at, 1, records[at])
        assert again.machine.digest() == digests[stop]


def test_a_command_that_is_no_message_stops_the_state_machine() -> None:
    with pytest.raises(DLedgerError) as failure:
        Store().apply(b"\xff")
    assert failure.value.code is Code.CORRUPT_LOG
