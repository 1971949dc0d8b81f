"""Replies of copy sources and masters are checked field by field before a server uses them."""

from __future__ import annotations

from typing import Any

import pytest

from nyala.replica.rpc import check_reply, pb
from nyala.replica.rpc.reply_fields import AS, RULES
from nyala.replica.rpc.request_fields import RULES as OF_REQUESTS
from nyala.replica.types import Code, Refused, limits
from tests.harness.hostile_fields import Must, cases

UUID = "a" * 32
PLACE = pb.ServerPlace(uuid=UUID, addresses=[pb.Address(host="h", port=1)])
REPLIES: dict[str, Any] = {
    "BeginCopyReply": pb.BeginCopyReply(
        session_id=UUID,
        superblock=b"s",
        cmeta=b"c",
        files=[pb.CopyFile(kind=1, name="t-000001.arrow", length_bytes=9, crc=2**32 - 1)],
        last_opid=pb.OpId(term=1, index=9),
        first_retained_index=3,
        is_leader=True,
        ttl_us=1,
    ),
    "OpenLinkReply": pb.OpenLinkReply(port=7000, ticket=b"t" * 16),
    "OpenFetchReply": pb.OpenFetchReply(port=7000, ticket=b"t" * 16),
    "FetchPart": pb.FetchPart(byte_offset=1, length_bytes=1 << 20),
    "ListTabletsReply": pb.ListTabletsReply(
        replicas=[
            pb.ReplicaStatus(
                tablet_id=UUID,
                uuid=UUID,
                phase="RUNNING",
                role="LEADER",
                term=3,
                committed_config=pb.RaftConfig(
                    opid=pb.OpId(term=1, index=9),
                    members=[pb.Member(uuid=UUID, addresses=[pb.Address(host="h", port=1)], votes=True)],
                ),
                peers=[pb.PeerHealth(uuid=UUID, health="OK")],
                table_name="t",
            )
        ],
        next=UUID,
    ),
    "IdentityReply": pb.IdentityReply(
        uuid=UUID,
        kind="server",
        cluster_id=UUID,
        version="0.3.0",
        pid=9,
        feature_level=1,
        joining=pb.Joining(cluster_id=UUID, address=pb.Address(host="h", port=1)),
    ),
    "ProcessReply": pb.ProcessReply(error=pb.Error(code=4, message="refused"), same=True),
    "LedgerReply": pb.LedgerReply(
        sources=[
            pb.LedgerSource(
                source=pb.SourceKey(cluster_id="c", topic_id="t", kafka_partition=1),
                generation=2,
                last_offset=9,
                has_last=True,
            )
        ]
    ),
    "EndCopyReply": pb.EndCopyReply(error=pb.Error(code=4, message="refused", detail="7")),
    "StartTabletCopyReply": pb.StartTabletCopyReply(current_term=3, last_opid=pb.OpId(term=1, index=9), data_state=3),
    "ScanChunk": pb.ScanChunk(arrow_schema=b"s", arrow_batch=b"b" * 99, snapshot_time=7, rows=1 << 40, last=True),
    "MasterStatusReply": pb.MasterStatusReply(
        uuid=UUID,
        leader_uuid=UUID,
        catalog_term=3,
        replica=pb.ReplicaStatus(tablet_id=UUID, role="LEADER", error="it has failed"),
        decisions_published=9,
        moves_active=1,
        kafka=[pb.KafkaChannel(topic="decisions", doing="publishes", link="never connected", last_error="a\nb")],
        skipped=[pb.SkippedRecords(topic="proposals", fault="null", count=3, last_place="0:7", last_reason="no key")],
        kafka_bootstrap="h:9092",
        refused_ticks=pb.RefusedTicks(count=3, since_us_ago=1_500_000, why="the disk is full"),
    ),
    "HeartbeatReply": pb.HeartbeatReply(
        master_uuid=UUID,
        catalog_term=3,
        cluster_id=UUID,
        found=[PLACE],
        masters=[PLACE],
        finalized_level=1,
        heard_until="tablet-1",
    ),
}
"""An honest reply of each kind."""
IN_ORDERS = "orders."
"""Orders are requests, and each is checked as one (`test_server_heartbeat.py`)."""
LISTS = {
    path: number
    for path, number in (limits.REPEATED_IN_REPLIES | limits.REPEATED).items()
    if path.partition(".")[0] in REPLIES
}


def refusal_of(reply: Any) -> Refused | None:
    try:
        assert check_reply(reply, "the peer") is reply
    except Refused as error:
        return error
    return None


@pytest.mark.parametrize("kind", REPLIES)
def test_reply_with_one_hostile_field_is_refused_and_says_which(kind: str) -> None:
    """IN-82. Goal: no name, id or number of a reply comes in unchecked. Method: an honest reply, which is accepted.
    Then each field at any depth as NUL, too long, a path, other alphabets, below zero and beyond the range: refused as
    CORRUPTION with the field's name and the sender, and nothing was applied. Values that any reply may have are
    accepted, or refused in the same way."""
    good = REPLIES[kind]
    assert refusal_of(good) is None
    found = [case for case in cases(good) if not case.what.startswith(IN_ORDERS)]
    assert len(found) > 3
    for case in found:
        error = refusal_of(case.request)
        if case.must is Must.INVALID:
            assert error is not None and error.code is Code.CORRUPTION, case.what
        if error is not None:
            told = str(error)
            name = case.what.split()[0].rpartition(".")[2]
            assert "the peer sent" in told and name in told and "nothing was applied" in told, (case.what, told)
            assert len(told) < 600 and told.isprintable()


@pytest.mark.a_third
@pytest.mark.parametrize("path", LISTS)
def test_list_of_a_reply_has_its_bound_and_not_one_more(path: str) -> None:
    """IN-60. Goal: no reply's list is longer than stated. Method: as many empty items as there may be, and one more."""
    message, _, name = path.partition(".")
    reply = type(REPLIES[message])()
    items = getattr(reply, name)
    for _ in range(LISTS[path]):
        items.add()
    assert refusal_of(reply) is None
    items.add()
    error = refusal_of(reply)
    assert error is not None and name in str(error) and str(LISTS[path]) in str(error)


def test_long_ticket_is_refused() -> None:
    """IN-60. Goal: another process cannot make this server send a ticket of megabytes. Method: one of the most
    bytes, and one byte more."""
    most = b"t" * limits.TICKET_BYTES_MAX
    for reply in (pb.OpenFetchReply, pb.OpenLinkReply):
        assert refusal_of(reply(port=1, ticket=most)) is None
        assert refusal_of(reply(port=1, ticket=most + b"t")) is not None


def test_every_field_of_the_checked_replies_says_what_it_may_be() -> None:
    """IN-82. Goal: a field that is added to a reply is not forgotten. Method: the descriptors of all checked replies,
    at any depth, against the rules, and the lists against their bounds, both ways."""
    waiting, lists, names, seen = [type(reply).DESCRIPTOR for reply in REPLIES.values()], set(), set(), set()
    while waiting:
        message = waiting.pop()
        if message.name in seen or message.name == "TabletOrder":
            continue
        seen.add(message.name)
        for field in message.fields:
            names |= {field.name, f"{message.name}.{field.name}"}
            if field.is_repeated:
                lists.add(f"{message.name}.{field.name}")
            if field.message_type is not None:
                waiting.append(field.message_type)
            elif field.cpp_type != field.CPPTYPE_BOOL:
                assert f"{message.name}.{field.name}" in RULES or field.name in RULES, field.full_name
    assert lists - limits.REPEATED.keys() == limits.REPEATED_IN_REPLIES.keys()
    assert sorted(set(AS) - names) == [] and sorted(set(RULES) - set(OF_REQUESTS) - names) == []
