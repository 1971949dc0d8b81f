"""Scenarios of other systems' bug reports, replayed on replicas that have a log, metadata and a disk each."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from google_crc32c import value as crc

from nyala.replica.raft import AppendEntries, AppendReply, VoteReply, VoteRequest
from nyala.replica.raft_driver import Phase
from nyala.replica.rows import RowOp, WriteMeta, crc32c
from nyala.replica.types import Code, Entry, EntryKind, OpId, Refused, RowCode
from tests.harness.sim_cluster import DRIVER, SimCluster, SimNode
from tests.harness.sim_disk import SimCrash
from tests.harness.sim_ingest import COLUMNS, Record, payload_of
from tests.harness.sim_start import Answers, level, node_of, on, put, put_and_wait, started
from tests.harness.sim_tablet import TabletCopies, TabletNode

PATIENT_US = 150_000
"""More than a voter withholds its vote after a start."""


class NothingSurvives:
    """Of what was not synced, no sector, no length and no name is there after the power loss."""

    def random(self) -> float:
        return 0.3

    def randint(self, low: int, high: int) -> int:
        return low


def plug_pulled(node: SimNode) -> None:
    """The power of one server goes, wherever it is just now, and with it everything that was not synced."""
    node.crash(power=False)
    node.disk.power_loss(NothingSurvives())


class Voter:
    """The one of three that runs; the test speaks for the others, and keeps what it answers."""

    def __init__(self, seed: int = 1) -> None:
        self.cluster = SimCluster(seed)
        self.cluster.liars = True
        self.node = self.cluster.nodes["b"]
        self.node.start()
        self.sent: list[Any] = []
        self.dies_with: type | None = None
        self.cluster.network.tap = self._tap

    def _tap(self, sender: str, receiver: str, message: Any) -> None:
        self.cluster.verify.sent(sender, receiver, message)
        self.sent.append(message)
        if self.dies_with is not None and isinstance(message, self.dies_with):
            self.dies_with = None
            raise SimCrash("right after it was said")

    @property
    def replica(self) -> Any:
        assert self.node.replica is not None
        return self.node.replica

    def hear(self, message: Any) -> list[Any]:
        """Return the answers that come within a while; fewer if the server dies meanwhile."""
        before = len(self.sent)
        self.node.receive(message)
        self.cluster.run_for(20_000)
        return self.sent[before:]

    def asked(self, candidate: str, term: int) -> list[bool]:
        self.cluster.run_for(PATIENT_US)
        said = self.hear(VoteRequest(to_uuid="b", from_uuid=candidate, term=term, last=OpId(0, 0)))
        return [m.granted for m in said if isinstance(m, VoteReply) and not m.pre_vote and m.to_uuid == candidate]

    def append(self, term: int, leader: str, prev: OpId, *entries: Entry, commit: int = 0) -> list[AppendReply]:
        said = self.hear(
            AppendEntries(
                to_uuid="b", from_uuid=leader, term=term, prev=prev, entries=tuple(entries), commit_index=commit
            )
        )
        return [m for m in said if isinstance(m, AppendReply)]

    def entry(self, term: int, index: int, payload: bytes = b"x") -> Entry:
        return Entry(OpId(term, index), EntryKind.WRITE, self.node.hybrid_clock.now(), 1, b"", payload, crc(payload))


@pytest.mark.parametrize(
    "where",
    [
        "cmeta.before_flush",
        "replace",
        "spare.written",
        "spare.synced",
        "spare.exchanged",
        "disk.before_rename_sync",
        "cmeta.after_flush",
        "the reply",
    ],
)
def test_vote_and_term_survive_a_power_loss_before_and_after_the_reply(where: str) -> None:
    """Goal: scenario 1. Method: a asks for a vote in term 5; the power goes before, in or after the write of the vote,
    or as the reply leaves; nothing survives that was not synced. Over more power losses c and a ask for it in turn: one
    of them gets it and the other never does; it is a if a was told so; the term does not go down."""
    voter = Voter()
    voter.cluster.run_for(PATIENT_US)
    if where == "the reply":
        voter.dies_with = VoteReply
    elif where == "replace":
        voter.node.disk.fail_on("replace", "consensus-meta/*", "CRASH")
    else:
        voter.node.disk.arm(where)
    told = voter.asked("a", 5)
    assert not voter.node.up and told == [True] * (where == "the reply"), "a vote that may not be durable was given"
    votes: dict[str, list[bool]] = {"a": told, "c": []}
    for candidate in ("c", "a", "c", "a"):
        plug_pulled(voter.node)
        voter.node.start()
        assert voter.replica.term == 5 or not (told or votes["c"])
        votes[candidate] += voter.asked(candidate, 5)
        assert voter.replica.term == 5 and len(votes["c"]) > 0
    to_a = votes["a"][-1]
    assert set(votes["a"]) == {to_a} and set(votes["c"]) == {not to_a}
    either = where in ("spare.exchanged", "disk.before_rename_sync")
    assert either or to_a == (where in ("the reply", "cmeta.after_flush"))


@pytest.mark.parametrize("seed", range(4))
def test_write_acknowledged_by_two_followers_survives_their_power_loss(seed: int) -> None:
    """Goal: scenario 3. Method: each follower loses its power as its acknowledgement leaves, with all that was not
    synced; the leader answers its caller by both and is gone for ever. The followers alone have the write."""
    cluster = SimCluster(seed)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    cluster.run_for(100_000)
    index = leader.last_logged.index + 1
    followers = [n for n in cluster.nodes.values() if n.replica is not leader]

    def tap(sender: str, receiver: str, message: Any) -> None:
        cluster.verify.sent(sender, receiver, message)
        if isinstance(message, AppendReply) and message.last.index >= index:
            cluster.world.after(0, lambda: plug_pulled(cluster.nodes[sender]))

    cluster.network.tap = tap
    write = put(cluster, leader, b"acknowledged")
    cluster.run_until(lambda: bool(write.all) and not any(n.up for n in followers), "the answer, and the power losses")
    assert write.one.opid.index == index
    cluster.network.tap = cluster.verify.sent
    node_of(cluster, leader).crash(power=True)
    for node in followers:
        node.start()
    cluster.run_until(lambda: cluster.leader() is not None, "a leader of those two")
    cluster.run_until(lambda: all(r.applied_index >= index for r in cluster.replicas), "they have it")
    cluster.verify.answered(b"acknowledged", write.one)
    cluster.verify.writes_stand()


def test_write_at_a_follower_that_becomes_leader_is_refused_or_follows_all_of_the_old_leader() -> None:
    """Goal: scenario 11. Method: one caller writes at the leader and one at a follower, both without a pause, while
    leadership goes from the one to the other: what the follower takes has an index above all that the old leader took,
    in the order in which it came; everything else is refused, and is nowhere."""
    cluster = SimCluster(3)
    old = started(cluster)
    cluster.run_for(200_000)
    new = next(r for r in cluster.replicas if r is not old)
    asked: dict[str, list[tuple[bytes, Answers]]] = {old.uuid: [], new.uuid: []}
    moved = Answers()
    for turn in range(300):
        for replica in (old, new):
            payload = b"%s-%d" % (replica.uuid.encode(), turn)
            asked[replica.uuid].append((payload, put(cluster, replica, payload)))
        if turn == 100:
            on(cluster, old, lambda: old.transfer(new.uuid, moved))
        cluster.run_for(500)
    everything = [answers for ways in asked.values() for _, answers in ways]
    cluster.run_until(lambda: all(a.all for a in everything) and level(cluster), "every answer, and everyone level")
    assert new.is_leader and not isinstance(moved.one, Refused)
    taken: dict[str, list[int]] = {}
    for uuid, ways in asked.items():
        for payload, answers in ways:
            cluster.verify.answered(payload, answers.one)
            if isinstance(answers.one, Refused):
                assert answers.one.code in (Code.NOT_LEADER, Code.NOT_READY, Code.STEPPING_DOWN)
            else:
                taken.setdefault(uuid, []).append(answers.one.opid.index)
    assert len(taken[old.uuid]) > 50 and len(taken[new.uuid]) > 50
    assert taken[new.uuid] == sorted(taken[new.uuid]) and min(taken[new.uuid]) > max(taken[old.uuid])
    cluster.verify.writes_stand()


def upsert(cluster: SimCluster, replica: Any, key: int, value: int, **identity: Any) -> Answers:
    """Begin to write one row of a data tablet."""
    meta, payload = WriteMeta(COLUMNS, 1, **identity), payload_of([Record(value, RowOp.UPSERT, key, None, None)])
    answers = Answers()
    on(cluster, replica, lambda: replica.write(EntryKind.WRITE, 1, meta.encode(), payload, crc32c(payload), answers))
    return answers


def rows_of(node: SimNode) -> dict[int, int]:
    assert node.machine is not None
    return {row["k"]: row["v"] for part in node.machine.tablet.scan() for row in part.to_pylist()}


def test_write_that_is_replaced_while_another_of_its_row_waits_leaves_no_trace() -> None:
    """Goal: scenario 12: a write whose entry is replaced changes nothing, also if another write of the same row waits.
    There are no row locks. Method: three upserts of one row. The third is in the log of a leader that is cut off, when
    the next leader replaces it: its caller is answered that leadership was lost, and every replica has the value of the
    new entry."""
    cluster = SimCluster(2, node_class=TabletNode, copies_class=TabletCopies)
    old = started(cluster)
    for value in (2, 3):
        done = upsert(cluster, old, 1, value)
        cluster.run_until(lambda done=done: bool(done.all), "an answer")  # type: ignore[misc]
        assert not isinstance(done.one, Refused)
    cluster.run_until(lambda: level(cluster), "everyone level")
    cluster.network.isolate(old.uuid, cluster.names)
    stuck = upsert(cluster, old, 1, 4)
    at = old.last_logged
    for replica, ticks in zip([r for r in cluster.replicas if r is not old], (40, 10), strict=True):
        for _ in range(ticks):
            on(cluster, replica, replica.tick)
    cluster.run_until(lambda: cluster.leader() not in (None, old), "the next leader", 150_000)
    assert old.is_leader and not stuck.all
    replaced = upsert(cluster, cluster.leader(), 1, 34)
    cluster.run_until(lambda: bool(replaced.all), "its answer")
    cluster.network.heal()
    cluster.run_until(lambda: bool(stuck.all) and level(cluster), "the waiting caller is told, everyone level")
    assert stuck.one.code is Code.NOT_LEADER
    assert cluster.verify.history[at.index].opid.term > at.term
    assert [rows_of(node) for node in cluster.nodes.values()] == [{1: 34}] * 3


def test_client_that_is_not_answered_or_reaches_followers_only_gets_its_write_through_once_and_later() -> None:
    """Goal: scenario 33, D-27: a client without an answer, or with a way to followers only, gets its write applied
    once. Method: no answer reaches a client, which repeats its write at the leader, and at the next one: it is applied
    once. Another client reaches only followers: they name the leader, which goes on to lead because servers hear it.
    After it hands over to a follower, the write succeeds."""
    cluster = SimCluster(5, node_class=TabletNode, copies_class=TabletCopies)
    old = started(cluster)
    cluster.run_for(200_000)
    new, other = [r for r in cluster.replicas if r is not old]
    same: dict[str, Any] = {"client_id": "client", "sequence": 1, "first_incomplete": 1}
    unheard = [upsert(cluster, old, 1, 10, **same) for _ in range(2)]
    cluster.run_until(lambda: all(a.all for a in unheard) and level(cluster), "answers that nobody hears")
    for _ in range(20):
        cluster.run_for(500_000)
        for follower in (new, other):
            refused = upsert(cluster, follower, 2, 20)
            cluster.run_for(20_000)
            assert (refused.one.code, refused.one.detail) == (Code.NOT_LEADER, f"{old.uuid}@{old.uuid}:7050")
    assert old.is_leader and old.term == 1
    moved = Answers()
    on(cluster, old, lambda: old.transfer(new.uuid, moved))
    cluster.run_until(lambda: cluster.leader() is new, "the follower leads")
    through, again = upsert(cluster, new, 2, 20), upsert(cluster, new, 1, 10, **same)
    cluster.run_until(lambda: bool(through.all and again.all) and level(cluster), "both are answered")
    results = [a.one for a in (*unheard, again)]
    assert [(r.rows_applied, r.rows_replayed) for r in results] == [(1, 0), (1, 1), (1, 1)], results
    assert [rows_of(node) for node in cluster.nodes.values()] == [{1: 10, 2: 20}] * 3


def test_replica_driven_by_hand_applies_what_is_committed_and_nothing_that_was_replaced() -> None:
    """Goal: scenario 13: a replica applies committed entries, and never one that was replaced. Method: one replica gets
    appends that no leader of ours would send in a row; after each, its answer, its log and what is applied are
    compared."""
    voter = Voter()

    def state() -> tuple[OpId, int]:
        assert voter.node.machine is not None and voter.replica.phase is not Phase.FAILED
        return voter.replica.last_logged, voter.node.machine.applied_opid.index

    (empty,) = voter.append(1, "a", OpId(0, 0))
    assert (empty.last, state()) == (OpId(0, 0), (OpId(0, 0), 0))
    (reply,) = voter.append(1, "a", OpId(0, 0), voter.entry(1, 1), voter.entry(1, 2))
    assert (reply.last, state()) == (OpId(1, 2), (OpId(1, 2), 0)), "no commit: nothing to be read"
    (gap,) = voter.append(1, "a", OpId(1, 5), voter.entry(1, 6), commit=6)
    assert (gap.mismatch, gap.conflict_index, state()) == (True, 3, (OpId(1, 2), 0)), "nor does a gap commit any"
    for bad in ((voter.entry(1, 3), voter.entry(0, 4)), (voter.entry(1, 3), voter.entry(1, 5))):
        assert voter.append(1, "a", OpId(1, 2), *bad, commit=4) == []
        assert state() == (OpId(1, 2), 0), "refused whole"
    (reply,) = voter.append(1, "a", OpId(1, 2), voter.entry(1, 3), commit=9)
    assert (reply.commit_index, state()) == (3, (OpId(1, 3), 3)), "no more than what this request covers"
    voter.append(1, "a", OpId(1, 3), voter.entry(1, 4, b"replaced"), voter.entry(1, 5, b"replaced"), commit=3)
    assert state() == (OpId(1, 5), 3)
    (reply,) = voter.append(2, "c", OpId(1, 3), commit=9)
    assert (reply.last, state()) == (OpId(1, 3), (OpId(1, 5), 3)), "the tail of before is no part of it"
    (reply,) = voter.append(2, "c", OpId(1, 3), voter.entry(2, 4, b"instead"), commit=3)
    assert (reply.last, state()) == (OpId(2, 4), (OpId(2, 4), 3))
    (reply,) = voter.append(3, "a", OpId(2, 4), commit=3)
    assert (reply.last, state()) == (OpId(2, 4), (OpId(2, 4), 3)), "a newer term alone makes nothing readable"
    (reply,) = voter.append(3, "a", OpId(2, 4), commit=9)
    assert (reply.last, state()) == (OpId(2, 4), (OpId(2, 4), 4))
    assert [voter.cluster.verify.history[n].payload for n in range(1, 5)] == [b"x", b"x", b"x", b"instead"]


@pytest.mark.parametrize(("before", "after"), [(300, 450), (450, 300), (150, 2000), (2000, 1)])
def test_apply_in_pages_skips_nothing_over_a_restart_with_other_pages(before: int, after: int) -> None:
    """Goal: scenario 19. Method: a follower that was away applies 40 entries in pages; half-way it flushes and loses
    its power; it comes back with pages of another size. Verifier V3 sees every index, each once, from the flush on."""
    cluster = SimCluster(4, driver_options=replace(DRIVER, apply_bytes_max=before))
    leader = started(cluster)
    cluster.run_until(lambda: level(cluster), "everyone level")
    node = next(n for n in cluster.nodes.values() if n.replica is not leader)
    node.crash(power=False)
    first = leader.last_logged.index
    for n in range(40):
        put_and_wait(cluster, leader, b"%03d" % n * 30)
    node.start()
    cluster.run_until(lambda: first + 5 <= node.machine.applied_opid.index, "it applies")
    half = node.machine.applied_opid.index
    assert half < leader.last_logged.index or before == 2000
    node.flush_now()
    node.crash(power=True)
    cluster.driver_options = replace(DRIVER, apply_bytes_max=after)
    node.start()
    assert node.machine.applied_opid.index == half
    cluster.run_until(lambda: level(cluster), "everyone level")
    assert cluster.verify.reached[node.uuid] >= first + 40


class Crashy:
    """Seven replicas of a data tablet whose leaders die, one time in twenty, just before they send an entry; syncs of
    the log take 30 ms, give or take 60. A caller writes rows one after the other, each under a number of its own, at
    whoever leads, until it is answered."""

    def __init__(self, seed: int) -> None:
        self.cluster = SimCluster(seed, voters=7, node_class=TabletNode, copies_class=TabletCopies)
        self.cluster.network.tap = self._tap
        self.deaths = 0
        self.calm = False
        self.number = 0
        self.cluster.start(hinted="a")
        self._slow()

    def _tap(self, sender: str, receiver: str, message: Any) -> None:
        self.cluster.verify.sent(sender, receiver, message)
        entries = isinstance(message, AppendEntries) and message.entries
        if entries and not self.calm and self.cluster.world.rng.random() < 0.05 and self._others_up() >= 4:
            self.deaths += 1
            self.cluster.world.after(400_000, self.cluster.nodes[sender].start)
            raise SimCrash("before it sends an entry")

    def _others_up(self) -> int:
        return sum(node.up for node in self.cluster.nodes.values()) - 1

    def _slow(self) -> None:
        """Each server's log is held up now and then."""
        world = self.cluster.world
        for node in self.cluster.nodes.values():
            if not self.calm:
                node.log_stuck_until_us = world.now_us + max(0, round(world.rng.gauss(30_000, 60_000)))
        world.after(150_000, self._slow)

    def write(self, op: RowOp, key: int, value: int) -> Any:
        """Return the outcome of the row's entry, whichever server answered last."""
        self.number += 1
        meta = WriteMeta(COLUMNS, 1, client_id="client", sequence=self.number, first_incomplete=self.number)
        payload = payload_of([Record(value, op, key, None, None)])
        while True:
            self.cluster.run_until(lambda: self.cluster.leader() is not None, "a leader")
            leader, answers = self.cluster.leader(), Answers()
            assert leader is not None
            ask = partial(leader.write, EntryKind.WRITE, 1, meta.encode(), payload, crc32c(payload), answers)
            on(self.cluster, leader, ask)
            self.cluster.world.run(self.cluster.world.now_us + 1_000_000, lambda a=answers: bool(a.all))  # type: ignore[misc]
            if answers.all and not isinstance(answers.one, Refused):
                return answers.one

    def rows(self) -> dict[int, int]:
        """Return what every replica holds, once all are up and level."""
        self.calm = True
        self.cluster.run_until(lambda: level(self.cluster), "everyone level")
        self.cluster.verify.writes_stand()
        first, *others = [rows_of(node) for node in self.cluster.nodes.values()]
        assert all(other == first for other in others)
        return first


@pytest.mark.deep
def test_leaders_that_die_before_they_send_cost_no_row_and_double_none() -> None:
    """Goal: scenarios 9 and 10: leaders that die before they send lose no acknowledged row and apply none twice.
    Method: on simulated disks, leaders of seven die just before they send, while the log is slow. Rows with different
    keys; then inserts of three keys only; then inserts and deletes of one key, with flushes and log GC at every server.
    An insert of an existing key gets that error and no other insert does, and in the end all seven have exactly the
    rows that the answers imply."""
    crashy, held = Crashy(7), dict[int, int]()

    def write(op: RowOp, key: int, value: int) -> None:
        result = crashy.write(op, key, value)
        there = key in held
        wrong = there if op is RowOp.INSERT else not there
        codes = [error.code for error in result.row_errors]
        assert codes == [RowCode.ALREADY_PRESENT if op is RowOp.INSERT else RowCode.NOT_FOUND] * wrong, (key, result)
        if not wrong and op is RowOp.INSERT:
            held[key] = value
        elif not wrong:
            del held[key]

    for value in range(24):
        write(RowOp.INSERT, 100 + value, value)
    for value in range(24):
        write(RowOp.INSERT, value % 3, value)
    for value in range(24):
        write((RowOp.INSERT, RowOp.DELETE, RowOp.DELETE)[value % 3], 50, value)
        if value % 6 == 0:
            for node in crashy.cluster.nodes.values():
                if node.up:
                    node.do(node.flush)
    assert crashy.rows() == held and len(held) >= 27
    assert crashy.deaths >= 5
