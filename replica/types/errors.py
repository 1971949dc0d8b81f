"""The errors: one root and four families (bugs, corruption of one replica, failed disks, and expected outcomes with a
wire code).

Every expected error states whether anything was applied. After `NOT_APPLIED` a call may be repeated. After `UNKNOWN` it
may be repeated only with a request id, a sequence number, a source's offset, or a compare-and-swap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, IntEnum
from typing import TypeVar

K = TypeVar("K", bound=IntEnum)
V = TypeVar("V", bound=Enum)


class Applied(IntEnum):
    """Whether the failed request may have had an effect."""

    NOT_APPLIED = 0
    """It had none: repeat it as you like."""
    UNKNOWN = 1
    """Perhaps: repeat it only in a way that cannot apply it twice."""


class Code(IntEnum):
    """Wire codes, one for each reaction of a caller. Never renumber, never reuse."""

    OK = 0
    """It was done."""
    INVALID_NAME = 1
    """The request was meant for another server uuid."""
    INVALID_TERM = 2
    """The sender's term is below the receiver's (AppendEntries)."""
    BAD_TERM = 3
    """The caller's term is below the replica's (StartTabletCopy)."""
    ALREADY_INPROGRESS = 4
    """The same work, such as a tablet copy, is under way."""
    ILLEGAL_STATE = 5
    """The replica or server is in a state in which it cannot do this."""
    NOT_LEADER = 6
    """The caller goes to the hinted leader, or asks the master."""
    NOT_READY = 7
    """The replica is bootstrapping, configuring or without a quorum: wait and retry."""
    TABLET_NOT_FOUND = 8
    """The server has no such tablet."""
    TABLET_FAILED = 9
    """The replica has failed and serves nothing until it is healed."""
    CAS_FAILED = 10
    """The caller is out of date: another config, position or version is in force."""
    CHANGE_PENDING = 11
    """A config change is under way."""
    STEPPING_DOWN = 12
    """The leader gives its leadership up, or the server quiesces: ask another one."""
    OVERLOADED = 13
    """The request is refused early because memory or a queue is over its limit. Retry with back-off."""
    TIMED_OUT = 14
    """The answer did not come in time; the outcome of a write is unknown."""
    GAP = 15
    """The batch builds on an offset which this tablet has not applied."""
    STALE_GENERATION = 16
    """The source was reset after the query opened it."""
    SCHEMA_MISMATCH = 17
    """The caller has another version of the table's schema."""
    INVALID_BATCH = 18
    """The batch of rows is not of the form that the table takes."""
    TOO_LARGE = 19
    """A row, batch or request is above its limit."""
    NOT_FOUND = 20
    """The named table, server or other object does not exist."""
    ALREADY_EXISTS = 21
    """An object of this name exists."""
    INVALID_ARGUMENT = 22
    """A value of the request can never be accepted: correct it."""
    NO_SPACE = 23
    """A disk is full."""
    HISTORY_GONE = 24
    """The snapshot is older than the table's history retention."""
    WRONG_TABLE = 25
    """The tablet belongs to another table than the caller said."""
    SOURCE_OWNED = 26
    """Another live query owns this source."""
    SOURCE_POSITION = 27
    """A query would start below `start`, above `done`, or on another topic of the name: recreated, or elsewhere."""
    CORRUPTION = 28
    """Bytes are not what was written: on a disk, or in a reply that no correct server sends."""
    EXPIRED = 29
    """A session or a remembered result is gone."""
    UNAVAILABLE = 30
    """No server answered; the outcome is unknown."""
    STALE_DECISION = 31
    """A later decision of the masters is in force."""
    DEADLINE_PASSED = 32
    """The time within which a decision may be carried out is over."""
    TABLET_DELETED = 33
    """The replica was deleted here."""
    WRONG_CLUSTER = 34
    """Master and tablet server belong to different clusters."""
    LAGGING = 35
    """This replica's data is older than the read allows: ask another one, or again."""
    NOT_AUTHORIZED = 36
    """The role of the caller's certificate may not make this call."""


class RowCode(IntEnum):
    """Why one row of a batch was not applied. Stored in ledgers and in dead letters: never renumber."""

    OK = 0
    """The row was applied."""
    ALREADY_PRESENT = 1
    """An insert found a row with this key."""
    NOT_FOUND = 2
    """An update or a delete found no row with this key."""
    NULL_IN_REQUIRED_COLUMN = 3
    """A column that forbids nulls would have one."""
    VALUE_OUT_OF_RANGE = 4
    """A value does not fit into its column's type."""
    UNKNOWN_OPERATION = 5
    """The row's operation is none that this build knows."""
    ROW_TOO_LARGE = 6
    """The row, or its key, is above its limit."""
    NULL_KEY = 7
    """A column of the key has no value."""
    WRONG_TABLET = 8
    """The row's key belongs to another tablet."""
    UNDECODABLE = 9
    """The record's bytes are not what its schema says."""
    UNKNOWN_SCHEMA = 10
    """The record was written with a schema that the table does not know."""
    KEY_MISMATCH = 11
    """The record's Kafka key is not the key of its row."""
    WRONG_TYPE = 12
    """A value is of another type than its column."""
    UNKNOWN_COLUMN = 13
    """The record has a column that the table does not have."""
    UNKNOWN_TABLE = 14
    """Not in use."""


def read_number(kind: type[K], number: int) -> K:
    """Return the member of `kind` with the number that a server sent.

    If only a newer build knows the number, the answer is a value of `kind` that equals none of its members. Its name
    holds the number, and a note that this program is older than the server.
    """
    try:
        return kind(number)
    except ValueError:
        newer = int.__new__(kind, number)
        name = f"{kind.__name__} {number} (this program is older than the server)"
        vars(newer).update(_name_=name, _value_=number)
        return newer


def printable(text: str) -> str:
    """Escape each character of the text that cannot be printed: control characters, and those that change the direction
    of a line. A text from outside can then not change a log line or a terminal. The escapes are Python's: `\\uXXXX`, or
    `\\UXXXXXXXX` above U+FFFF."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(ord(c)) for c in text)


def _escaped(number: int) -> str:
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def text_of(value: object, as_text: Callable[[object], str] = str) -> str:
    """Return the text of a value that an error shows. Never raises: Python makes no text of a number of 5,000 digits,
    and the class of a user's object may be wrong."""
    try:
        return as_text(value)
    except Exception:  # noqa: BLE001 - a user's object may raise anything
        return f"<{type(value).__name__} without a text>"


VALUE_CHARS_MAX = 1024
"""Bounds the characters of one value in an error's text: a damaged file may hold a list as long as itself."""


class ReplicaError(Exception):
    """Root of everything this project raises. `values` are the fields. The text shows them, escaped by `printable`,
    because they may come from outside."""

    def __init__(self, what: str, /, **values: object) -> None:
        super().__init__(what)
        self.what = what
        self.values = values

    def __str__(self) -> str:
        fields = ", ".join(f"{k}={_shortened(printable(text_of(v)))}" for k, v in self.values.items())
        return f"{self.what} ({fields})" if fields else self.what

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle and copy the fields, without `__init__`: that of a subclass may have other parameters than `args`."""
        return _made_again, (type(self), self.args), self.__dict__


def _shortened(text: str) -> str:
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}... ({len(text)} characters)"


def _made_again(kind: type[ReplicaError], args: tuple[object, ...]) -> ReplicaError:
    """Make an error of that kind without running its `__init__`; its fields are set afterwards."""
    return kind.__new__(kind, *args)


class InvariantViolation(ReplicaError):
    """A bug of ours. The process ends; no code below `main` catches it."""


class Corruption(ReplicaError):
    """Bytes on this disk are not what was written. The replica is FAILED; the server lives."""

    copy_heals = True
    """Whether a copy from other members may replace the replica."""


class LaterFormat(Corruption):
    """A later build wrote a replica's file: the replica fails, and the build that wrote it can go on with it.

    For a framed file it follows from `UnsupportedFrame` of `schemas`; logs and configs raise it themselves."""

    copy_heals = False


class DiskFailure(ReplicaError):
    """EIO, or a failed sync, on a WAL or on metadata: the process stops; fsync is never retried on the same file."""


class Refused(ReplicaError):
    """An expected outcome with a wire code. `applied` states whether the request may have had an effect."""

    def __init__(
        self,
        code: Code,
        what: str,
        values: Mapping[str, object] | None = None,
        /,
        *,
        applied: Applied = Applied.NOT_APPLIED,
        detail: str = "",
        **more: object,
    ) -> None:
        """`values`: fields that are passed on unchanged; `more`: further fields, named here."""
        super().__init__(what, **{**(values or {}), **more})
        self.code = code
        self.applied = applied
        self.only_read = False
        """Whether the caller asked for no change: the text then does not say that nothing was applied."""
        self.detail = detail
        """Machine-readable: a leader hint `uuid@host:port`, a current term, a committed config OpId."""

    def __str__(self) -> str:
        left = "nothing was applied" if self.applied is Applied.NOT_APPLIED else "the outcome is unknown"
        told = f"{self.code.name}: {super().__str__()}"
        return told if self.only_read and self.applied is Applied.NOT_APPLIED else f"{told}; {left}"


@contextmanager
def only_reads() -> Iterator[None]:
    """Mark the refusals of what runs within it, or of the function that it decorates: they are of a call that asks for
    no change."""
    try:
        yield
    except Refused as error:
        error.only_read = True
        raise


class ResourcesExhausted(Refused):
    """The server has no memory, memory map, open file or thread left for an operation. Nothing is broken, and nothing
    of a replica is lost: the caller tries again later."""

    def __init__(self, what: str, /, **values: object) -> None:
        super().__init__(Code.OVERLOADED, what)
        self.values = values


def is_transient(error: object) -> bool:
    """Whether the error only says that the disk is full or a resource is exhausted, so a later attempt may succeed."""
    return isinstance(error, ResourcesExhausted) or (isinstance(error, Refused) and error.code is Code.NO_SPACE)


def known_value(kind: type[V], value: int | str, what: str) -> V:
    """Return the member of `kind` that came over the wire as `what`; Refused(INVALID_ARGUMENT) if this build has none.

    It is for values that decide what is done. One that is only shown is read by `read_number`, which refuses nothing.
    """
    try:
        return kind(value)
    except ValueError:
        told = f"{what} is one that this build does not know, a newer build may: nothing was done with it"
        known = "" if isinstance(value, int) else ",".join(str(member.value) for member in kind)
        raise Refused(Code.INVALID_ARGUMENT, told, value=repr(value)[:80], known=known) from None


def check(condition: bool, what: str, /, **values: object) -> None:
    """Raise InvariantViolation with `what` and the offending values unless `condition`; survives `python -O`."""
    if not condition:
        raise InvariantViolation(what, **values)
