"""What a copy session offers, what it is for, and the interface of a source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from nyala.replica.types import ZERO_OPID, OpId


class FileKind(IntEnum):
    """Numbers travel on the wire: never renumber."""

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
    """What a session is for; by default a whole replica."""

    log_only: bool = False
    """A witness: no blocks, and a log that begins at what the source knows to be committed, if that is safe."""
    acknowledged: OpId = ZERO_OPID
    """With `log_only`: the last entry that the target has ever acknowledged; ANYTHING if it does not know. The log that
    it gets must not end below that."""
    flushed: OpId = ZERO_OPID
    """The blocks must hold at least what was applied up to here; the source flushes for it."""


WHOLE = CopyWanted()
ANYTHING = OpId(1 << 62, 1 << 62)
"""Above every OpId."""


class CopySource(Protocol):
    """What a target copies from: a remote leader, or a session in this process, as offline and in the simulator.

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
