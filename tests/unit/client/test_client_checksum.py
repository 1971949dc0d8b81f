"""A client accepts no checksum of another definition than the one it compares."""

from __future__ import annotations

import pytest

from nyala.replica.client.admin import row_sum_from_pb
from nyala.replica.rows import CHECKSUM_DEFINITION, RowSum
from nyala.replica.rpc import pb
from nyala.replica.types import Code, Refused


def test_sum_of_another_definition_is_refused_and_named() -> None:
    """IN-04. Goal: checksums of two definitions are never compared; a server that is too old is reported as such, not
    as a replica that differs. Method: a reply from before definitions had numbers, which is 1, and one of a later
    build."""
    both = pb.ChecksumReply(checksum=5, checksum_high=6, rows=7, definition=CHECKSUM_DEFINITION)
    assert row_sum_from_pb(both, CHECKSUM_DEFINITION) == RowSum(5 | 6 << 64, 7)
    old = pb.ChecksumReply.FromString(pb.ChecksumReply(checksum=5, rows=7).SerializeToString())
    for reply, given in ((old, 1), (pb.ChecksumReply(checksum=5, rows=7, definition=3), 3)):
        with pytest.raises(Refused) as refused:
            row_sum_from_pb(reply, CHECKSUM_DEFINITION)
        assert refused.value.code is Code.INVALID_ARGUMENT
        assert f"given={given}" in str(refused.value) and "upgrade the server" in str(refused.value)
