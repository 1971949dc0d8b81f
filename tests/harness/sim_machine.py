"""The smallest replicated state: the sequence of what was applied, with a digest. Flushes to one durable file."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nyala.replica.types import ZERO_OPID, Corruption, Disk, Entry, OpId


class Counted(NamedTuple):
    """The result of applying one entry: how many entries came before it, and the digest of all up to it."""

    opid: OpId
    count: int
    digest: int


class CountingMachine:
    """A state machine whose state is a running digest. `on_apply(entry)` receives every entry, for verifiers.

    Opened again it continues after the last flush, as a tablet does. `poison`: an index that cannot be applied.
    """

    def __init__(self, disk: Disk, tablet_id: str, on_apply: Callable[[Entry], None] = lambda entry: None) -> None:
        self._disk = disk
        self._path = f"tablet-meta/{tablet_id}"
        self._on_apply = on_apply
        self.poison: int | None = None
        self.applied_opid = self.flush_opid = ZERO_OPID
        self.applied_time = self.digest = 0
        if disk.exists(self._path):
            disk.sync_dir("tablet-meta")  # as a server does at its start
            term, index, self.applied_time, self.digest = json.loads(self.encode())
            self.applied_opid = self.flush_opid = OpId(term, index)

    def apply(self, entries: Sequence[Entry]) -> list[Counted]:
        """Apply in index order; every kind counts."""
        results = []
        for entry in entries:
            if entry.opid.index == self.poison:
                raise Corruption("a poisoned entry", index=entry.opid.index)
            assert entry.opid.index == self.applied_opid.index + 1, (entry.opid, self.applied_opid)
            self.digest = zlib.crc32(b"%d.%d:%b" % (*entry.opid, entry.payload), self.digest)
            self.applied_opid = entry.opid
            self.applied_time = max(self.applied_time, entry.hybrid_time)
            self._on_apply(entry)
            results.append(Counted(entry.opid, entry.opid.index, self.digest))
        return results

    def flush(self) -> OpId:
        """Make everything applied durable; replay starts after it."""
        state = [*self.applied_opid, self.applied_time, self.digest]
        self._disk.mkdir("tablet-meta")
        self._disk.replace(self._path, json.dumps(state).encode())
        self.flush_opid = self.applied_opid
        return self.flush_opid

    def encode(self) -> bytes:
        """Return the durable file, for a copy to another server too; Corruption if it is not what was written."""
        data = self._disk.read(self._path)
        try:
            json.loads(data)
        except ValueError as error:
            raise Corruption("the flushed state cannot be read", path=self._path) from error
        return data

    def wants_flush(self, wal_bytes: int = 0) -> float:
        return 0.0

    def close(self) -> None:
        """Do nothing: nothing is held open."""


def install(disk: Disk, tablet_id: str, data: bytes) -> None:
    """Replace everything by another server's flushed state."""
    disk.mkdir("tablet-meta")
    disk.replace(f"tablet-meta/{tablet_id}", data)
