"""The manifest of a copy session, the purposes of a session, and the interface of a source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from nyala.replica.types import ZERO_OPID, OpId


class FileKind(IntEnum):
    """The kinds of files. Their numbers are sent over the wire: never renumber them."""

    BLOCK = 1
    WAL_SEGMENT = 2


@dataclass(frozen=True)
class CopyFile:
    """One file of a session; its name is relative to the folder of its kind."""

    kind: FileKind
    name: str
    length_bytes: int
    crc: int
    """CRC-32C of the first `length_bytes` bytes."""


@dataclass(frozen=True, kw_only=True)
class CopyManifest:
    """Everything that a session captured at its start."""

    session_id: str
    superblock: bytes
    """Framed Avro superblock of the source."""
    cmeta: bytes
    """Framed Avro consensus metadata of the source."""
    files: tuple[CopyFile, ...]
    last_opid: OpId
    first_retained_index: int
    is_leader: bool
    ttl_us: int

    @property
    def size_bytes(self) -> int:
        """Bytes to download."""
        return sum(f.length_bytes for f in self.files)


@dataclass(frozen=True, kw_only=True)
class CopyWanted:
    """The purpose of a session; by default a copy of a whole replica."""

    log_only: bool = False
    """Whether it is for a witness: no blocks, and a log that begins at the source's commit position, if that is
    safe."""
    acknowledged: OpId = ZERO_OPID
    """With `log_only`: the last entry that the target has ever acknowledged; MAX_OPID if unknown. The copied log must
    not end below it."""
    flushed: OpId = ZERO_OPID
    """The blocks must contain at least the entries up to here; the source flushes for that."""


WHOLE = CopyWanted()
MAX_OPID = OpId(1 << 62, 1 << 62)
"""An OpId above all others."""


class CopySource(Protocol):
    """The source from which a target copies: a remote leader or, offline and in the simulator, a session in this
    process.

    Every method raises Refused; `fetch` may be called from several threads at once.
    """

    def begin(
        self, tablet_id: str, requestor_uuid: str, allow_leaderless: bool, wanted: CopyWanted = WHOLE
    ) -> CopyManifest: ...

    def fetch(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        """The bytes of [byte_offset, byte_offset + length_bytes) in order, in chunks of at most COPY_CHUNK_BYTES."""
        ...

    def end(self, session_id: str, success: bool, doubted: str = "") -> None:
        """End the session. `doubted`: name of a block that arrived damaged, so that the source checks its own file."""
        ...
