"""One core on its own: the test plays every peer by hand."""

from __future__ import annotations

import random
from collections.abc import Iterable

from nyala.replica.raft import (
    AppendEntries,
    AppendReply,
    MemoryLogView,
    Message,
    RaftCore,
    RaftOptions,
    Ready,
    Role,
    VoteReply,
)
from nyala.replica.types import Entry, EntryKind, OpId, RaftConfig
from tests.harness.raft_net import OPTIONS, config_of, decode_config, encode_config


def entry(term: int, index: int, payload: bytes = b"x", kind: EntryKind = EntryKind.WRITE) -> Entry:
    return Entry(OpId(term, index), kind, index, 1, b"", payload, 0)


class Solo:
    """A core named `a` whose `Ready` objects are persisted when the test demands it (at once by default)."""

    def __init__(
        self,
        voters: str = "abc",
        learners: str = "",
        *,
        term: int = 0,
        voted_for: str | None = None,
        entries: Iterable[Entry] = (),
        commit_index: int = 0,
        config: RaftConfig | None = None,
        pending_config: RaftConfig | None = None,
        options: RaftOptions = OPTIONS,
        boundary: OpId = OpId(0, 0),
        log: MemoryLogView | None = None,
        **extra: object,
    ) -> None:
        self.log = log or MemoryLogView(entries, boundary=boundary)
        self.core = RaftCore(
            uuid="a",
            term=term,
            voted_for=voted_for,
            committed_config=config or config_of(voters, learners),
            pending_config=pending_config,
            log=self.log,
            commit_index=commit_index,
            options=options,
            rng=random.Random(0),
            encode_config=encode_config,
            decode_config=decode_config,
            **extra,  # type: ignore[arg-type]
        )
        self.outstanding: list[Ready] = []
        self.readies: list[Ready] = []

    def take(self) -> list[Message]:
        """Take each `Ready` without persisting it; returns what may be sent at once."""
        sent: list[Message] = []
        while (ready := self.core.ready()) is not None:
            self.outstanding.append(ready)
            self.readies.append(ready)
            sent += ready.messages_now
        return sent

    def persist(self) -> list[Message]:
        """Make everything outstanding durable; returns what is sent on the way."""
        sent = self.take()
        while self.outstanding:
            ready = self.outstanding.pop(0)
            sent += ready.messages_after_persist
            self.core.advance(ready)
            sent += self.take()
        return sent

    def step(self, msg: Message) -> list[Message]:
        """Deliver one message, everything durable at once; returns the answers."""
        self.core.step(msg)
        return self.persist()

    def lead(self) -> list[Message]:
        """Become leader by the votes of all members, in the next term; returns what was sent last."""
        self.core.campaign()
        self.persist()
        others = [u for u in self.core.active_config.voters if u != "a"]
        for pre_vote in (True, False):
            for uuid in others:
                if self.core.role is not Role.LEADER:
                    term = self.core.term + pre_vote
                    self.core.step(VoteReply(to_uuid="a", from_uuid=uuid, term=term, granted=True, pre_vote=pre_vote))
                    sent = self.persist()
        assert self.core.role is Role.LEADER
        return sent if others else []

    def ack(self, uuid: str, index: int, **fields: object) -> list[Message]:
        """Acknowledge that a peer holds our log durably through index."""
        last = OpId(self.log.term_at(index) or 0, index)
        reply = AppendReply(to_uuid="a", from_uuid=uuid, term=self.core.term, last=last, **fields)  # type: ignore[arg-type]
        return self.step(reply)

    def append(self, term: int, prev: OpId, *entries: Entry, commit: int = 0, leader: str = "b") -> AppendEntries:
        return AppendEntries(
            to_uuid="a", from_uuid=leader, term=term, prev=prev, entries=tuple(entries), commit_index=commit
        )
