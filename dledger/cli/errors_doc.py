"""``python -m dledger.cli.errors_doc > docs/errors.md``: the table of every refusal, ``common.errors.CODES``."""

from __future__ import annotations

import click

from dledger.common.errors import CODES, ERROR_DOMAIN
from dledger.rpc.client.verdict import LEAVE_DOUBT

_DOUBTFUL = "".join(f"- `{code.value}`\n" for code in CODES if code in LEAVE_DOUBT)

HEAD = f"""# Errors

Every refusal has a code. The server sends it as the `reason` of a `google.rpc.ErrorInfo` (domain `{ERROR_DOMAIN}`) in
the details of the gRPC status. The Python client raises the exception, with that `code`. The command line ends with the
exit code.

In the Python client, only `OutcomeUnknown` leaves open whether an append, or a change of the cluster, happened. Every
other exception says that it did not happen. The one exception to that is `REPEATED_REQUEST`: the batch was appended
before, once.

Over plain gRPC, a status leaves the outcome of a request open in two cases. It has no reason, because gRPC itself made
it. Or the reason is one of:

{_DOUBTFUL}
Any node takes any call, and sends on to the leader what the leader is to answer. The leader's refusals come back as
they are. `TERM_CHANGED` (or `WAIT_QUORUM_ACK_TIMEOUT`, if the time ran out) says that the leader got the call and did
not answer. `NOT_LEADER` says that the call was carried out nowhere: no leader is known, or it cannot be reached from
the node asked, or the call has `dledger-hops: 0` in its metadata.

This file is made by `python -m dledger.cli.errors_doc`.

| code | gRPC status | exception | exit | meaning |
|---|---|---|---|---|
"""

TAIL = """
`NOT_LEADER` carries `leader_id` and `leader_address` in its metadata. It also carries them in plain trailing metadata,
`dledger-leader-id` and `dledger-leader-address`, which are empty while no leader is known. `INDEX_OUT_OF_RANGE` and
`INDEX_LESS_THAN_LOCAL_BEGIN` carry `first_index` and `commit_index`, `OUT_OF_ORDER` carries
`expected_sequence`, `WRONG_EXPECTED_INDEX` carries `next_index`. `CHANGE_REFUSED` carries `waits_for` (`connection`,
`answer`, `compare`, `catch_up` or `handover`) when what stands in the way passes by itself.

The command line also ends with 0 (done), 1 (checked and bad), 6 (stdout cannot be written) and 130 (Ctrl-C, and SIGTERM
for `append`).
"""


def errors_table() -> str:
    """docs/errors.md, whole."""
    rows = (
        f"| `{code.value}` | {info.grpc_status} | `{info.exception.__name__}` | {info.exit_code} | {info.meaning} |\n"
        for code, info in CODES.items()
    )
    return HEAD + "".join(rows) + TAIL


if __name__ == "__main__":
    click.echo(errors_table(), nl=False)
