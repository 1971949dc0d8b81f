"""Verifiers of the consensus core: they observe a whole simulated group and raise Violation when a promise breaks.

The harness connects them, never a test; one planted bug for each (tests/sim/test_raft_canaries.py) shows that it
compares.
"""

from __future__ import annotations

from collections import Counter

from nyala.replica.raft import AppendEntries, HardState, Message
from nyala.replica.types import Entry, EntryKind, OpId, RaftConfig


class Violation(AssertionError):
    """A verifier saw a broken promise. `verifier` names it: V1, V2, V3, V4, I1, I4, READ, ROWS."""

    def __init__(self, verifier: str, text: str) -> None:
        super().__init__(f"{verifier}: {text}")
        self.verifier = verifier


class Verifiers:
    """All of them together over one group's history, restarts included. `looks`: how often each had something to
    compare, which `tests.sim.coverage` demands of a run."""

    def __init__(self) -> None:
        self.looks: Counter[str] = Counter()
        self.canonical: dict[int, Entry] = {}
        """Committed entries by index, as first applied anywhere."""
        self.appender: dict[int, str] = {}
        self.applied: dict[str, int] = {}
        self.acked: dict[bytes, OpId] = {}
        self.acked_index = 0
        self.hard: dict[str, HardState] = {}
        self.configs: list[RaftConfig] = []
        self.config_at: dict[int, OpId] = {}
        """Index -> the config that some replica considered committed there."""

    def on_send(self, msg: Message) -> None:
        """V2: one (group, term) has one sender of appends."""
        if isinstance(msg, AppendEntries):
            known = self.appender.setdefault(msg.term, msg.from_uuid)
            self.looks["V2"] += 1
            if known != msg.from_uuid:
                raise Violation("V2", f"{known} and {msg.from_uuid} both append in term {msg.term}")

    def on_apply(self, uuid: str, entry: Entry) -> None:
        """V1: one index is committed with one term and content. V3: each replica applies index after index."""
        index = entry.opid.index
        if index != self.applied.get(uuid, 0) + 1:
            raise Violation("V3", f"{uuid} applies {entry.opid} after index {self.applied.get(uuid, 0)}")
        self.applied[uuid] = index
        self.looks["V3"] += 1
        self.looks["V1"] += index in self.canonical
        known = self.canonical.setdefault(index, entry)
        if known.opid != entry.opid:
            raise Violation("V1", f"index {index}: committed as {known.opid} and, on {uuid}, as {entry.opid}")
        if known.payload != entry.payload or known.kind != entry.kind:
            raise Violation("V3", f"{uuid} applies other bytes at {entry.opid}")
        self._config_is_entry(index)

    def on_restart(self, uuid: str, applied_index: int) -> None:
        """Note that a replica came back with its state machine at applied_index."""
        self.applied[uuid] = applied_index

    def on_ack(self, payload: bytes, opid: OpId) -> None:
        """Note that the client got the acknowledgement of this write."""
        self.acked[payload] = opid
        self.acked_index = max(self.acked_index, opid.index)

    def on_hard_state(self, uuid: str, hard: HardState) -> None:
        """I1: per replica, over restarts, terms never fall and a term has one vote."""
        old = self.hard.get(uuid)
        self.looks["I1"] += old is not None
        if old and (hard.term < old.term or (hard.term == old.term and old.voted_for not in (None, hard.voted_for))):
            raise Violation("I1", f"{uuid} goes from {old} to {hard}")
        self.hard[uuid] = hard

    def on_config(self, config: RaftConfig) -> None:
        """I4: consecutive committed configs differ by at most one voter, and each is a committed entry."""
        if config.opid.index:
            self.config_at.setdefault(config.opid.index, config.opid)
            if self.config_at[config.opid.index] != config.opid:
                raise Violation("I4", f"configs {self.config_at[config.opid.index]} and {config.opid} are committed")
            self._config_is_entry(config.opid.index)
        if self.configs and config.opid <= self.configs[-1].opid:
            return
        if self.configs:
            moved = set(config.voters) ^ set(self.configs[-1].voters)
            self.looks["I4"] += 1
            if len(moved) > 1:
                raise Violation("I4", f"config {config.opid} changes voters {sorted(moved)} at once")
        self.configs.append(config)

    def _config_is_entry(self, index: int) -> None:
        config, entry = self.config_at.get(index), self.canonical.get(index)
        if config and entry and (config != entry.opid or entry.kind is not EntryKind.CONFIG):
            raise Violation("I4", f"config {config} counts as committed, where {entry.kind.name} {entry.opid} is")

    def on_read(self, index: int, acked_before: int) -> None:
        """READ: a strong read sees every write acknowledged before it began."""
        self.looks["READ"] += acked_before > 0
        if index < acked_before:
            raise Violation("READ", f"read at {index}, but {acked_before} was acknowledged before")

    def at_end(self, logs: dict[str, list[Entry]]) -> None:
        """V1 over durable logs; V4: every acknowledged write is there exactly once, every other at most once."""
        seen: dict[bytes, list[OpId]] = {}
        for entry in self.canonical.values():
            if entry.kind is EntryKind.WRITE:
                seen.setdefault(entry.payload, []).append(entry.opid)
        for payload, opids in seen.items():
            if len(opids) > 1:
                raise Violation("V4", f"{payload!r} is there {len(opids)} times")
        self.looks["V4"] += len(self.acked)
        for payload, opid in self.acked.items():
            if seen.get(payload) != [opid]:
                raise Violation("V4", f"{payload!r} was acknowledged at {opid} and is at {seen.get(payload)}")
        for uuid, entries in logs.items():
            for entry in entries:
                known = self.canonical.get(entry.opid.index)
                if entry.opid.index <= self.applied.get(uuid, 0) and known and known.opid != entry.opid:
                    raise Violation("V1", f"{uuid} holds {entry.opid} where {known.opid} is committed")
