"""The Checksum call: sums of one definition."""

from __future__ import annotations

import asyncio

import pytest

from nyala.replica.rows import CHECKSUM_DEFINITION
from nyala.replica.rpc import pb
from nyala.replica.server.requests.scans import Scans
from nyala.replica.types import Code, Refused


def scans() -> Scans:
    return Scans(None, 1, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("definition", [0, 1, CHECKSUM_DEFINITION + 1])
def test_checksum_of_another_definition_is_refused(definition: int) -> None:
    """IN-04. Goal: a caller of another build gets no checksum of another definition, because it would compare it with
    others. Method: a request of a build that names no definition, of one that names the first, and of a later one."""
    with pytest.raises(Refused) as refused:
        asyncio.run(scans().checksum(None, pb.ChecksumRequest(definition=definition)))  # type: ignore[arg-type]
    assert refused.value.code is Code.INVALID_ARGUMENT
    assert f"asked={definition or 1}" in str(refused.value) and f"own={CHECKSUM_DEFINITION}" in str(refused.value)
