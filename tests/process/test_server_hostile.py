"""Hostile requests to a real server: each refused with a code and a text, nothing logged, the process alive."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from nyala.replica.raft import AppendEntries, Message, VoteRequest
from nyala.replica.rows import CHECKSUM_DEFINITION, WriteMeta, crc32c, encode_batch
from nyala.replica.rpc import address_to_pb, message_to_pb, pb
from nyala.replica.types import Code, Entry, EntryKind, OpId, hybrid_from_us, limits, new_uuid
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.hostile import Payload, good, mutations, other_messages, poisoned_offsets
from tests.harness.links import HandMadeLink, ask_for_link, played_sender
from tests.harness.rows import batch, read_rows, table_info, write_request

pytestmark = pytest.mark.process

HOUR_US = 3_600_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(1) as made:
        yield made


class Target:
    """One tablet on the server of this module, and what is known of it."""

    def __init__(self, cluster: LocalCluster, tablet_id: str, *peers: pb.Member) -> None:
        self.cluster, self.tablet_id = cluster, tablet_id
        self.server: ServerProcess = cluster.servers[0]
        self.pid = self.server.process.pid if self.server.process else 0
        request = pb.CreateTabletRequest(
            dest_uuid=self.server.uuid,
            tablet_id=tablet_id,
            table=table_info(),
            config=pb.RaftConfig(members=[self.server.member(), *peers]),
            leader_hint="" if peers else self.server.uuid,
        )
        reply = self.server.tablets.CreateTablet(request, timeout=30)
        assert not reply.error.code, reply.error
        if not peers:
            cluster.leader(tablet_id)

    @property
    def status(self) -> Any:
        found = self.cluster.status(self.server, self.tablet_id)
        assert found is not None
        return found

    @property
    def last(self) -> int:
        """Return the last logged index. The process must be the one that was started."""
        assert self.server.alive and self.server.process and self.server.process.pid == self.pid
        return int(self.status.last_logged.index)

    def write(self, case: Payload | None = None, **fields: Any) -> Any:
        request = write_request(self.server.uuid, self.tablet_id, good())
        if case is not None:
            request.payload, request.payload_crc, request.rows = case.data, case.crc, case.rows
        for name, value in fields.items():
            if name == "column_ids":
                del request.column_ids[:]
                request.column_ids.extend(value)
            else:
                setattr(request, name, value)
        return self.server.tablets.Write(request, timeout=30)

    def rows(self) -> dict[int, str | None]:
        request = pb.ScanRequest(
            dest_uuid=self.server.uuid, tablet_id=self.tablet_id, table_id="t1", all_columns=True, timeout_us=5_000_000
        )
        return read_rows(self.server.tablets.Scan(request, timeout=30))[0]

    def link(self, sender: str) -> HandMadeLink:
        """Return a link of that sender."""
        reply = ask_for_link(self.server.channel, sender, self.server.uuid)
        assert not reply.error.code
        return HandMadeLink(reply.port, reply.ticket)

    def batch_of(self, *messages: Message, dest_uuid: str = "") -> bytes:
        """Return a frame with messages, as sent by their first one's sender."""
        return pb.PeerBatch(
            from_uuid=messages[0].from_uuid,
            dest_uuid=dest_uuid or self.server.uuid,
            messages=[message_to_pb(self.tablet_id, m) for m in messages],
        ).SerializeToString()

    def exchange(self, *messages: Message) -> None:
        """Send one batch over a link, as its first message's sender; returns when the server has handled it."""
        link = self.link(messages[0].from_uuid)
        link.send(self.batch_of(*messages))
        link.finish()


def test_hostile_arrow_bytes_are_refused_and_leave_no_trace(cluster: LocalCluster) -> None:
    """Goal: no bytes harm a server. Method: poisoned offsets, other messages and 420 seeded mutations, all with right
    CRCs unless that is the case; what must fail is INVALID_BATCH with a text and moves no index; the few that are
    legal by chance take exactly one; then flush, compaction, a scan and a replay go through whatever was stored."""
    target = Target(cluster, "hostile")
    last, refused, taken = target.last, 0, 0
    for payload in (*poisoned_offsets(), *other_messages(), *mutations(1, 210), *mutations(2, 210)):
        reply = target.write(payload)
        if reply.error.code:
            code = Code.INVALID_BATCH if payload.rows >= 0 else Code.INVALID_ARGUMENT
            assert reply.error.code == code and reply.error.message, (payload.name, reply.error)
            assert not reply.error.outcome_unknown, payload.name
            refused += 1
        else:
            assert not payload.must_fail, payload.name
            taken, last = taken + 1, last + 1
        assert target.last == last, payload.name
    assert refused > 300 and taken > 10
    assert not target.write().error.code
    before = target.rows()
    assert set(range(40)) <= set(before)
    flush = pb.FlushRequest(dest_uuid=target.server.uuid, tablet_id=target.tablet_id, compact=True)
    assert not target.server.tablets.Flush(flush, timeout=30).error.code
    assert target.rows() == before
    target.server.kill()
    target.server.start()
    cluster.leader(target.tablet_id)
    assert wait_until(target.rows, "the scan answers") == before


def test_requests_that_disagree_with_the_tablet_are_refused_by_code(cluster: LocalCluster) -> None:
    """Goal: each mistake has its code and its text. Method: table; the log's end does not move, a good write works."""
    target = Target(cluster, "disagreeing")
    last = target.last
    huge = bytes(limits.BATCH_SIZE_BYTES_MAX + 1)
    now = target.server.tablets.ServerTime(pb.ServerTimeRequest(dest_uuid=target.server.uuid), timeout=30).hybrid_time
    cases: list[tuple[dict[str, Any], Code]] = [
        ({"column_ids": (1, 99)}, Code.SCHEMA_MISMATCH),
        ({"column_ids": (1, 1)}, Code.SCHEMA_MISMATCH),
        ({"column_ids": (2,)}, Code.SCHEMA_MISMATCH),
        ({"column_ids": ()}, Code.SCHEMA_MISMATCH),
        ({"column_ids": (1,)}, Code.INVALID_BATCH),
        ({"column_ids": (2, 1)}, Code.INVALID_BATCH),
        ({"schema_id": 0}, Code.SCHEMA_MISMATCH),
        ({"schema_id": -1}, Code.INVALID_ARGUMENT),
        ({"schema_id": 2}, Code.SCHEMA_MISMATCH),
        ({"table_id": "t2"}, Code.WRONG_TABLE),
        ({"table_id": ""}, Code.WRONG_TABLE),
        ({"tablet_id": "elsewhere"}, Code.TABLET_NOT_FOUND),
        ({"tablet_id": "../hostile"}, Code.INVALID_ARGUMENT),
        ({"dest_uuid": new_uuid()}, Code.INVALID_NAME),
        ({"dest_uuid": ""}, Code.INVALID_NAME),
        ({"payload": huge, "payload_crc": crc32c(huge)}, Code.TOO_LARGE),
        ({"rows": limits.BATCH_ROWS_MAX + 1}, Code.TOO_LARGE),
        ({"propagated_time": now + hybrid_from_us(HOUR_US)}, Code.INVALID_ARGUMENT),
    ]
    for changes, code in cases:
        reply = target.write(**changes)
        assert reply.error.code == code and reply.error.message, (changes.keys(), reply.error)
        assert not reply.error.outcome_unknown
        assert target.last == last, changes.keys()
    with pytest.raises(grpc.RpcError) as caught:
        target.write(Payload("beyond gRPC's bound", bytes(limits.GRPC_MESSAGE_BYTES_MAX + 1), 0, 1, True))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert target.last == last
    assert target.write().rows_applied == 40


def test_callers_cannot_push_the_servers_clock_away(cluster: LocalCluster) -> None:
    """Goal: one caller with a wrong clock does not change the clock of others. Method: a time an hour ahead with every
    call that carries one, INVALID_ARGUMENT each time; the clock stays, and a time two seconds ahead is accepted."""
    target = Target(cluster, "clocks")
    tablets, uuid = target.server.tablets, target.server.uuid

    def server_time(seen: int = 0) -> Any:
        return tablets.ServerTime(pb.ServerTimeRequest(dest_uuid=uuid, propagated_time=seen), timeout=30)

    now = server_time().hybrid_time
    far, near = now + hybrid_from_us(HOUR_US), now + hybrid_from_us(2_000_000)
    scan = pb.ScanRequest(dest_uuid=uuid, tablet_id=target.tablet_id, all_columns=True)
    checksum = pb.ChecksumRequest(
        dest_uuid=uuid, tablet_id=target.tablet_id, snapshot_time=far, definition=CHECKSUM_DEFINITION
    )
    scans = []
    for name in ("propagated_time", "snapshot_time"):
        request = pb.ScanRequest()
        request.CopyFrom(scan)
        setattr(request, name, far)
        scans.append(next(iter(tablets.Scan(request, timeout=30))))
    for reply in (server_time(far), tablets.Checksum(checksum, timeout=30), target.write(propagated_time=far), *scans):
        assert reply.error.code == Code.INVALID_ARGUMENT and "future" in reply.error.message, reply
    assert server_time().hybrid_time < now + hybrid_from_us(60_000_000)
    assert target.write(propagated_time=near).hybrid_time > near


def append_of(leader: str, target: Target, *entries: Entry, prev: OpId = OpId(0, 0), **fields: Any) -> AppendEntries:
    return AppendEntries(
        to_uuid=target.server.uuid, from_uuid=leader, term=50, prev=prev, entries=entries, round=1, **fields
    )


def test_appends_of_a_peer_with_bad_bytes_or_a_wild_clock_are_dropped(cluster: LocalCluster) -> None:
    """Goal: bad bytes from a peer end no process and reach no log. Method: the test acts as the leader of a group of
    three over a link: an entry with a wrong CRC, entries and a safe time an hour ahead; then good ones."""
    with played_sender() as (_, at):
        play_leader(cluster, address_to_pb(at))


def play_leader(cluster: LocalCluster, at: pb.Address) -> None:
    leader, third = new_uuid(), new_uuid()
    peers = [pb.Member(uuid=u, addresses=[at], votes=True, holds_data=True) for u in (leader, third)]
    target = Target(cluster, "played", *peers)
    rows = encode_batch(batch([1], ["a"]))
    meta = WriteMeta((1, 2), 1, client_id="c", sequence=1).encode()
    now = target.server.tablets.ServerTime(pb.ServerTimeRequest(dest_uuid=target.server.uuid), timeout=30).hybrid_time
    entry = Entry(OpId(50, 1), EntryKind.WRITE, now, 1, meta, rows, crc32c(rows))
    bad = [
        append_of(leader, target, entry._replace(payload_crc=entry.payload_crc ^ 1)),
        append_of(leader, target, entry._replace(payload=rows[:-1] + bytes([rows[-1] ^ 1]))),
        append_of(leader, target, entry._replace(hybrid_time=now + hybrid_from_us(HOUR_US))),
        append_of(leader, target, safe_time=now + hybrid_from_us(HOUR_US)),
    ]
    for message in bad:
        target.exchange(message)
        assert target.last == 0 and target.status.leader_uuid == ""
    target.exchange(append_of(leader, target, entry))
    assert wait_until(lambda: target.last == 1, "the good entry is logged")
    assert target.status.leader_uuid == leader
    log = target.server.log_path.read_text()
    assert log.count("does not have its CRC") == 1, "a peer that goes on is told of again after a while"
    assert "nothing was changed" in log and "compare the clocks of both servers" in log
    again = target.server.tablets.ServerTime(pb.ServerTimeRequest(dest_uuid=target.server.uuid), timeout=30)
    assert again.hybrid_time < now + hybrid_from_us(60_000_000)


def test_link_for_another_uuid_is_refused_before_anything_is_read(cluster: LocalCluster) -> None:
    """Goal: row TC-73 for PeerService: a link is given to who names this server, then each batch's name is checked,
    then each message's. Method: links asked for under a foreign and an empty name: INVALID_NAME; appends and vote
    requests of a high term in batches under those names end the link; messages that name others are dropped, and so
    is what speaks for another sender; bytes that are no ticket, no frame, no batch end the connection; term, log and
    leader stay, and the next link works."""
    target = Target(cluster, "named")
    before = target.status
    intruder, elsewhere = new_uuid(), new_uuid()
    vote = VoteRequest(to_uuid=target.server.uuid, from_uuid=intruder, term=900, last=OpId(899, 10**6))
    append = append_of(intruder, target, prev=OpId(0, 0), commit_index=10**6)
    for named in (elsewhere, ""):
        refusal = ask_for_link(target.server.channel, intruder, named)
        assert refusal.error.code == Code.INVALID_NAME and target.server.uuid in refusal.error.message
        assert not refusal.ticket
    for message in (vote, append):
        wire = pb.PeerBatch(from_uuid=intruder, messages=[message_to_pb(target.tablet_id, message)])
        forged = dataclasses.replace(message, from_uuid=elsewhere)
        for body in (
            target.batch_of(message, dest_uuid=elsewhere),
            wire.SerializeToString(),
            target.batch_of(forged),
            b"\xff" * 40,
        ):
            link = target.link(intruder)
            link.send(body)
            link.wait_ended()
        target.exchange(dataclasses.replace(message, to_uuid=elsewhere))
    granted = ask_for_link(target.server.channel, intruder, target.server.uuid)
    for ticket in (b"", bytes(16), granted.ticket + b"x"):
        HandMadeLink(granted.port, ticket).wait_ended()
    HandMadeLink(granted.port, granted.ticket).finish()
    HandMadeLink(granted.port, granted.ticket).wait_ended()  # a ticket is good once
    link = target.link(intruder)
    link.send_bytes(b"\xff\xff\xff\xff")  # a frame of four gigabytes
    link.wait_ended()
    after = target.status
    assert (after.term, after.role, after.last_logged) == (before.term, "LEADER", before.last_logged)
    assert target.write().rows_applied == 40
