"""The masters' state machine: records keyed by string, JSON values, changed atomically by CATALOG entries."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from nyala.replica.base import Corruption, DataState, Disk, Entry, EntryKind, OpId, check
from nyala.replica.copy import settle_at_startup
from nyala.replica.tablet import ApplyResult, Superblock
from nyala.schemas import decode, encode

CATALOG_ID = "0" * 32
"""Tablet id of the masters' own tablet."""
REQUESTS_MAX = 4096
"""Remembered request ids; the oldest is forgotten first."""

Record = dict[str, Any]


def _group(key: str) -> str:
    return key.partition("/")[0]


def encode_change(puts: Mapping[str, Record], deletes: Sequence[str] = (), request_id: str = "") -> bytes:
    """The `meta` of a CATALOG entry."""
    records = [{"key": k, "value": json.dumps(v, sort_keys=True).encode()} for k, v in sorted(puts.items())]
    change = {"puts": records, "deletes": sorted(deletes), "request_id": request_id, "reserved": b""}
    return encode("catalog_change", change)


class Catalog:
    """Records of the cluster: tables, tablets, source positions, wishes.

    Invariants: equal on every master at equal applied index; a change is applied whole or, when its request id was seen
    before, not at all; `state` of the superblock is complete to `flush_opid` and holds nothing later.
    Durability: `flush` replaces the superblock; what follows it is replayed from the log.
    Concurrency: `apply` and `flush` on one thread at a time; reads from any.
    """

    def __init__(self, disk: Disk, superblock: Superblock) -> None:
        self._disk = disk
        self._superblock = superblock
        self._lock = threading.Lock()
        self._records: dict[str, Record] = {}
        self._groups: dict[str, dict[str, Record]] = {}
        """The same records by the first part of their key, so that listing one kind does not walk the others."""
        self._requests: dict[str, None] = {}
        self._applied = superblock.flush_opid
        self._applied_time = superblock.flush_time
        if superblock.state:
            self._restore(superblock.state)

    @classmethod
    def open(cls, disk: Disk) -> Catalog:
        """The catalog on `disk`, made empty if there is none yet."""
        if Superblock.exists(disk, CATALOG_ID):
            superblock = settle_at_startup(disk, Superblock.load(disk, CATALOG_ID))
            check(superblock.data_state is DataState.READY, "a catalog that is opened is whole")
            return cls(disk, superblock)
        superblock = Superblock(tablet_id=CATALOG_ID, table_id=CATALOG_ID, table_name="catalog")
        superblock.save(disk)
        return cls(disk, superblock)

    def _restore(self, state: bytes) -> None:
        try:
            value = json.loads(state)
            self._records = {str(k): dict(v) for k, v in value["records"].items()}
            self._requests = dict.fromkeys(value["requests"])
            for key, record in self._records.items():
                self._groups.setdefault(_group(key), {})[key] = record
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corruption("the catalog's state cannot be read", reason=str(error)) from error

    @property
    def applied_opid(self) -> OpId:
        """Last entry applied."""
        return self._applied

    @property
    def applied_time(self) -> int:
        """Highest hybrid time applied."""
        return self._applied_time

    @property
    def flush_opid(self) -> OpId:
        """Durable without the log up to here."""
        return self._superblock.flush_opid

    def get(self, key: str) -> Record | None:
        """The record of `key`, to be read only; None if there is none."""
        return self._records.get(key)

    def items(self, prefix: str) -> Iterator[tuple[str, Record]]:
        """(key without prefix, record) of all keys under `prefix`, sorted; the records are to be read only."""
        with self._lock:
            records = self._groups.get(_group(prefix), {}) if "/" in prefix else self._records
            found = sorted((k, v) for k, v in records.items() if k.startswith(prefix))
        return ((k[len(prefix) :], v) for k, v in found)

    def seen(self, request_id: str) -> bool:
        """Whether a change of that request id was applied, as far back as is remembered."""
        return request_id in self._requests

    def apply(self, entries: Sequence[Entry]) -> list[ApplyResult]:
        """Apply in index order; one result per entry. Corruption if a change does not decode."""
        results = []
        for entry in entries:
            check(entry.opid.index == self._applied.index + 1, "entries apply in order", entry=entry.opid)
            if entry.kind is EntryKind.CATALOG:
                self._apply_change(entry)
            self._applied = entry.opid
            self._applied_time = max(self._applied_time, entry.hybrid_time)
            results.append(ApplyResult(entry.opid, hybrid_time=entry.hybrid_time))
        return results

    def _apply_change(self, entry: Entry) -> None:
        try:
            change = decode("catalog_change", entry.meta)
            puts = {p["key"]: json.loads(p["value"]) for p in change["puts"]}
        except ValueError as error:
            raise Corruption(
                "a committed catalog change does not decode", opid=entry.opid, reason=str(error)
            ) from error
        request_id = change["request_id"]
        if request_id:
            if request_id in self._requests:
                return
            self._requests[request_id] = None
            while len(self._requests) > REQUESTS_MAX:
                del self._requests[next(iter(self._requests))]
        with self._lock:
            for key in change["deletes"]:
                self._records.pop(key, None)
                self._groups.get(_group(key), {}).pop(key, None)
            for key, record in puts.items():
                self._records[key] = record
                self._groups.setdefault(_group(key), {})[key] = record

    def flush(self) -> bool:
        """Make everything applied durable without the log; False if it already is. Raises what the disk raises."""
        if self._applied == self._superblock.flush_opid:
            return False
        state = json.dumps({"records": self._records, "requests": list(self._requests)}, sort_keys=False).encode()
        flushed = replace(self._superblock, flush_opid=self._applied, flush_time=self._applied_time, state=state)
        flushed.save(self._disk)
        self._superblock = flushed
        return True

    @contextmanager
    def hold(self) -> Iterator[Superblock]:
        """What is durable without the log, as of now: a whole superblock. A flush makes another one."""
        yield self._superblock

    def close(self) -> None:
        """Nothing is held open."""
