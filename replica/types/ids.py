"""Positions in the log, members and configs: the value types every folder shares.

All of them are immutable, order as the protocol orders them and validate themselves once, in `__post_init__`.
"""

from __future__ import annotations

import re
import uuid as _uuid
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import NamedTuple

from .arguments import as_given
from .errors import check

_UUID = re.compile(r"^[0-9a-f]{32}$")
PORT_MAX = 65535


def new_uuid() -> str:
    """Return a fresh identity: 32 lower-case hex digits, never reused [kudu tablet-copy, "Other Failure Recovery"]."""
    return _uuid.uuid4().hex


def is_uuid(text: str) -> bool:
    """Whether `text` is an identity as `new_uuid` makes them."""
    return bool(_UUID.match(text))


class OpId(NamedTuple):
    """One position of a replicated log. Orders by term, then index, as the up-to-date rule does [raft §5.4.1]."""

    term: int
    index: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.term}.{self.index}"


ZERO_OPID = OpId(0, 0)
"""The position before the first entry."""


class EntryKind(IntEnum):
    """What an entry carries. Numbers are stored in logs: never renumber, never reuse."""

    NOOP = 0
    """The first entry of a leader's term; it has no payload [raft §8]."""
    WRITE = 1
    """`meta` is an Avro `WriteMeta`, `payload` one Arrow IPC record batch message."""
    CONFIG = 2
    """`meta` is an Avro `ConfigChange`: the config that holds from this entry on."""
    SCHEMA = 3
    """`meta` is an Avro `SchemaChange`: the table schema that holds for later writes."""
    CATALOG = 4
    """`meta` is an Avro `CatalogChange`; only in the masters' own log."""
    LEDGER = 5
    """`meta` is an Avro `LedgerChange`: a source advanced, reset or retired."""


class Entry(NamedTuple):
    """One log entry. `payload` is shared with the wire and the disk and is never re-encoded."""

    opid: OpId
    kind: EntryKind
    hybrid_time: int
    schema_id: int
    meta: bytes
    payload: bytes
    payload_crc: int
    """CRC-32C of `payload`, as its producer computed it."""

    @property
    def size_bytes(self) -> int:
        """Bytes that count against windows, queues and caches."""
        return len(self.meta) + len(self.payload) + 64


@dataclass(frozen=True, order=True)
class Address:
    """The place at which a server listens. The name is looked up anew on each connect."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    @lru_cache(1024)
    def parse(cls, text: str) -> Address:
        """Read the `host:port` of a record or a message; the ValueError describes what is wrong."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) <= PORT_MAX:
            raise ValueError(f"{text!r} is not an address of the form host:port")
        return cls(host, int(port))

    @classmethod
    def given(cls, text: str) -> Address:
        """Read what a person gives: `host:port`, a host of IPv6 in brackets; the ValueError describes what is wrong."""
        if place_to_listen(text)[1] == 0:
            raise ValueError(f"{as_given(text)} is no address: nobody listens on port 0")
        return cls.parse(text)


def place_to_listen(text: str) -> tuple[str, int]:
    """Read (host, port) of `host:port`, an IPv6 host in brackets, as in `[::1]:7051`; port 0 is a free one. The
    ValueError describes what is wrong."""
    host, colon, port = text.rpartition(":")
    if not colon or not host.isprintable() or not host.strip() or not (port.isascii() and port.isdigit()):
        raise ValueError(f"{as_given(text)} is not an address of the form host:port")
    if len(port) > 5 or int(port) > PORT_MAX:
        raise ValueError(f"{as_given(text)} is no address: ports go up to {PORT_MAX}")
    if ":" in host and not (host[0] == "[" and host[-1] == "]"):
        raise ValueError(
            f"{as_given(text)} is not an address of the form host:port: an IPv6 host has brackets, as in [::1]:7051"
        )
    return host, int(port)


@dataclass(frozen=True)
class Member:
    """One member of a config. Roles are derived from these marks, never stored.

    A voter has `votes`; a non-voter that waits for promotion (the documents' PRE_VOTER or PRE_FOLLOWER) has `promote`;
    a witness votes and holds no data; one with `promote` too stands in for a replica, and waits for its data; `replace`
    asks the policy to move this member away.
    """

    uuid: str
    addresses: tuple[Address, ...] = ()
    votes: bool = True
    promote: bool = False
    holds_data: bool = True
    replace: bool = False

    def __post_init__(self) -> None:
        check(bool(self.uuid), "a member needs a uuid")
        whole = self.votes and self.holds_data
        check(not (whole and self.promote), "a voter with data has nothing to be promoted to", uuid=self.uuid)


@dataclass(frozen=True)
class RaftConfig:
    """The members of one group as of one log position.

    `opid` is the position of the entry that set it: the compare-and-swap token of config changes (committed_config_id).
    `decision` is the highest (catalog term, version) of a master's decision carried out up to here.
    """

    opid: OpId
    members: tuple[Member, ...]
    decision: tuple[int, int] = (0, 0)
    unsafe: bool = False

    def __post_init__(self) -> None:
        uuids = [m.uuid for m in self.members]
        check(len(set(uuids)) == len(uuids), "a config names each member once", uuids=uuids)

    @property
    def voters(self) -> tuple[str, ...]:
        """Return the sorted uuids of the members that vote."""
        return tuple(sorted(m.uuid for m in self.members if m.votes))

    @property
    def majority(self) -> int:
        """Return the votes needed: floor(n/2)+1 for any number of voters."""
        return len(self.voters) // 2 + 1

    def member(self, uuid: str) -> Member | None:
        """Return the member of that uuid, or None."""
        for member in self.members:
            if member.uuid == uuid:
                return member
        return None

    def with_opid(self, opid: OpId) -> RaftConfig:
        """Return the same members, set at another position."""
        return replace(self, opid=opid)


class EditKind(StrEnum):
    """What a ConfigEdit does to one member."""

    ADD = "add"
    REMOVE = "remove"
    CHANGE = "change"


@dataclass(frozen=True)
class ConfigEdit:
    """One edit of a config. REMOVE uses the member's uuid only; CHANGE with no addresses keeps the old ones."""

    kind: EditKind
    member: Member


class DataState(IntEnum):
    """Data state of a tablet on one server's disk [kudu tablet-copy, "Note on deleted tablets"].

    DOES_NOT_EXIST is the absence of a superblock and is never stored.
    """

    DOES_NOT_EXIST = 0
    DELETED = 1
    COPYING = 2
    READY = 3
