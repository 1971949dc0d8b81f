"""Verifiers of a simulated history: what must hold at every moment, checked on the traffic and on the replicas
themselves.

The harness calls each verifier, whatever the scenario, and each raises AssertionError at the first contradiction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from nyala.replica.consensus_metadata import ConsensusMeta, decode_config
from nyala.replica.raft import AppendEntries, AppendReply, VoteReply, VoteRequest
from nyala.replica.raft_driver import Replica
from nyala.replica.types import ZERO_OPID, Applied, Entry, EntryKind, OpId, RaftConfig, Refused


class Verifiers:
    """All of them. `looks` counts how often each had something to compare: `tests.sim.coverage` demands that of a run,
    so a verifier that is no longer called turns it red."""

    def __init__(self) -> None:
        self.looks: Counter[str] = Counter()
        self.history: dict[int, Entry] = {}
        """Index -> the entry that was applied there first."""
        self.applied_by: dict[str, int] = {}
        self.acknowledged: dict[int, bytes] = {}
        self.refused_for_good: set[bytes] = set()
        self.leaders: dict[int, str] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.promised_term: dict[str, int] = {}
        self.snapshots: list[tuple[int, int]] = []
        self.appenders: dict[int, str] = {}
        self.reached: dict[str, int] = {}
        self.kept: dict[str, OpId] = {}
        """Server -> the OpId that its tombstone must keep, as long as there is one."""

    # ---- applied sequences are prefixes of each other

    def applied(self, uuid: str, entry: Entry, durable: OpId) -> None:
        """Every replica applies the same entry at the same index, each index once per life, and none before its own log
        holds it durably, up to `durable`: a flush must never run ahead of the log that a restart finds."""
        index = entry.opid.index
        assert index <= durable.index, f"{uuid} applied {entry.opid}, its log is durable up to {durable}"
        first = self.history.setdefault(index, entry)
        assert first == entry, f"{uuid} applied {entry.opid} where {first.opid} was applied before"
        before = self.applied_by.get(uuid)
        self.looks["V3"] += before is not None
        assert before is None or index == before + 1, f"{uuid} applied {index} after {before}"
        self.applied_by[uuid] = index
        self.reached[uuid] = max(self.reached.get(uuid, 0), index)

    def log_found(self, uuid: str, last: OpId, flushed: OpId, withheld: OpId = ZERO_OPID) -> None:
        """V7: no replica goes back: a restart finds everything that was ever applied there.

        `withheld`: of a replica whose disk was damaged, the part of its log's end that it knows to be lost.
        """
        top, reached = max(last.index, flushed.index, withheld.index), self.reached.get(uuid, 0)
        self.looks["V7"] += reached > 0
        assert top >= reached, f"{uuid} had applied {reached}, and comes back with {top}"

    def tail_found(self, uuid: str, withheld: OpId | None) -> None:
        """Check that no replica has lost a part of its log's end: no disk here changes a byte, and what a power cut
        tore was never synced, so every replica may vote."""
        assert withheld is None, f"{uuid} withholds {withheld} after a power cut"

    def log_holds(self, uuid: str, entries: Iterable[Entry], commit_index: int) -> None:
        """V1: what a replica's log on disk holds at a committed index is what was committed there."""
        for entry in entries:
            known = self.history.get(entry.opid.index)
            self.looks["V1"] += entry.opid.index <= commit_index and known is not None
            assert entry.opid.index > commit_index or known is None or known == entry, (
                f"{uuid} has {entry.opid} on disk where {known and known.opid} is committed"
            )

    def flushed(self, uuid: str, flushed: OpId, durable: OpId, copied: OpId) -> None:
        """Check that what is flushed is durable in the own log too, or came with a copy."""
        top = max(durable.index, copied.index)
        assert flushed.index <= top, f"{uuid} flushed {flushed}, its log is durable up to {durable}"

    def copied(self, uuid: str, last: OpId, durable: OpId) -> None:
        """Check a copy that ends at `last`: it replaces a log whose durable end may have been acknowledged."""
        assert last >= durable, f"a copy up to {last} makes {uuid} forget {durable}"

    def deleted(self, uuid: str, last: OpId, durable: OpId) -> None:
        """Note that a replica becomes a tombstone that keeps `last`."""
        assert last >= durable, f"{uuid} is deleted as of {last}, its log was durable up to {durable}"

    def tombstone(self, uuid: str, last: OpId) -> None:
        """Check that what a tombstone keeps never falls, over restarts and over copies that do not end."""
        kept = self.kept.get(uuid, ZERO_OPID)
        assert last >= kept, f"the tombstone of {uuid} keeps {last}, it had to keep {kept}"
        self.kept[uuid] = last

    # ---- acknowledged writes survive; refused ones never appear

    def answered(self, payload: bytes, result: Any, *, repeated: bool = False) -> None:
        """Note that a client's write was answered. `repeated`: the same bytes are sent until one is acknowledged."""
        if isinstance(result, Refused):
            if result.applied is Applied.NOT_APPLIED and not repeated:
                self.refused_for_good.add(payload)
            return
        index = result.opid.index
        assert index in self.history, f"{result.opid} was acknowledged before anyone applied it"
        assert self.history[index].payload == payload, f"{result.opid} was acknowledged to the wrong caller"
        self.acknowledged[index] = payload

    def writes_stand(self) -> None:
        """Check after convergence that nothing acknowledged is missing, and nothing refused for good is there."""
        self.looks["V4"] += len(self.acknowledged)
        for index, payload in self.acknowledged.items():
            assert self.history[index].payload == payload
        there = {entry.payload for entry in self.history.values()}
        wrongly = sorted(self.refused_for_good & there)
        assert not wrongly, f"NOT_APPLIED was said of {wrongly[:3]}, which were applied"

    def configs_stand(self, initial: RaftConfig) -> None:
        """Check that committed configs differ from the one before in at most one voter."""
        voters = set(initial.voters)
        for index in sorted(self.history):
            entry = self.history[index]
            if entry.kind is EntryKind.CONFIG:
                now = set(decode_config(entry.meta).voters)
                self.looks["I4"] += 1
                assert len(voters ^ now) <= 1, f"the config at {entry.opid} changes voters {voters} to {now}"
                voters = now

    # ---- one leader per term, one vote per term, no promise forgotten

    def looked_at(self, replica: Replica) -> None:
        """Check that there is one leader per term."""
        if replica.is_leader:
            first = self.leaders.setdefault(replica.term, replica.uuid)
            self.looks["I2"] += 1
            assert first == replica.uuid, f"two leaders in term {replica.term}: {first} and {replica.uuid}"

    def sent(self, sender: str, receiver: str, message: Any) -> None:
        """Note what leaves a server as a promise: it holds over all later restarts. V2: one sender of appends per
        term."""
        if isinstance(message, AppendEntries):
            first = self.appenders.setdefault(message.term, sender)
            self.looks["V2"] += 1
            assert first == sender == message.from_uuid, f"{first} and {sender} both append in term {message.term}"
        if isinstance(message, VoteReply) and message.granted and not message.pre_vote:
            self._voted(sender, message.term, receiver)
        if isinstance(message, VoteRequest) and not message.pre_vote:
            self._voted(sender, message.term, sender)
        if isinstance(message, AppendEntries) or (isinstance(message, AppendReply) and not message.code):
            self.promised_term[sender] = max(self.promised_term.get(sender, 0), message.term)

    def _voted(self, voter: str, term: int, candidate: str) -> None:
        first = self.votes.setdefault((voter, term), candidate)
        assert first == candidate, f"{voter} voted twice in term {term}: for {first} and {candidate}"
        self.promised_term[voter] = max(self.promised_term.get(voter, 0), term)

    def reopened(self, uuid: str, cmeta: ConsensusMeta, machine: Any) -> None:
        """Check that no promise is forgotten: the metadata has every term that this server sent in, and its vote.

        Metadata that was lost has a vote floor instead: at or below it, no candidate gets a vote.
        """
        promised = self.promised_term.get(uuid, 0)
        self.looks["I1"] += promised > 0
        assert cmeta.term >= promised, f"{uuid} spoke in term {promised} and remembers {cmeta.term}"
        voted = self.votes.get((uuid, cmeta.term))
        given = cmeta.voted_for == voted or cmeta.vote_floor_term >= cmeta.term
        assert voted is None or given, f"{uuid} forgot its vote for {voted} in term {cmeta.term}"
        self.applied_by[uuid] = machine.applied_opid.index
        self.kept.pop(uuid, None)

    def down(self, uuid: str) -> None:
        """Forget the server's memory."""
        self.applied_by.pop(uuid, None)

    # ---- reads

    def newest_acknowledged(self) -> int:
        """Return the highest acknowledged index: a linearizable read that begins now must see it."""
        return max(self.acknowledged, default=0)

    def read_served(self, replica: Replica, begun_with: int) -> None:
        """Check that a read that began after `begun_with` was acknowledged sees it."""
        assert replica.applied_index >= begun_with, (
            f"a read at {replica.uuid} saw {replica.applied_index}, {begun_with} was acknowledged before it began"
        )
        self.looks["READ"] += begun_with > 0

    def snapshot_served(self, replica: Replica, hybrid_time: int) -> None:
        """Note the content of a snapshot, which is final when it is served."""
        count = self._at_or_below(hybrid_time, replica.applied_index)
        self.snapshots.append((hybrid_time, count))

    def snapshots_stand(self) -> None:
        """Check after convergence that the same snapshots read again are the same."""
        top = max(self.history, default=0)
        self.looks["SNAPSHOT"] += len(self.snapshots)
        for hybrid_time, count in self.snapshots:
            now = self._at_or_below(hybrid_time, top)
            assert now == count, f"the snapshot at {hybrid_time} had {count} writes, later it has {now}"

    def _at_or_below(self, hybrid_time: int, top: int) -> int:
        return sum(1 for i, e in self.history.items() if i <= top and e.payload and e.hybrid_time <= hybrid_time)
