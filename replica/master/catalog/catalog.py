"""The masters' state machine: records keyed by string, JSON values, changed atomically by CATALOG entries."""

from __future__ import annotations

import gc
import json
import threading
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from nyala.replica.tablet import ApplyResult, Superblock
from nyala.replica.tablet_copy import settle_at_startup
from nyala.replica.types import (
    ZERO_OPID,
    Address,
    Corruption,
    DataState,
    Disk,
    Entry,
    EntryKind,
    LaterFormat,
    Member,
    OpId,
    ReplicaError,
    check,
)
from nyala.schemas import build_level, decode, encode

from .config_changes import ConfigChange, ConfigChanges
from .kept_read_times import KeptReadTimes
from .records import (
    DESIRED_CHANGE,
    TABLE,
    TABLET,
    Finalized,
    Json,
    Kind,
    R,
    ReadTime,
    Record,
    Tablet,
    group_of,
    read,
    write,
)

CATALOG_ID = "0" * 32
"""Tablet id of the masters' own tablet."""
REQUESTS_MAX = 4096
"""The number of remembered request ids; the oldest is forgotten first."""

WALK_KEYS = 256
"""The number of records of a list that are looked up at a time."""
CHANGED_MAX = 100_000
"""The most keys that are kept for `take_changed`: a master that only follows never takes them."""


_IN_TABLE_LOOK_UPS = group_of(TABLE), group_of(DESIRED_CHANGE)
"""The groups of records, besides the tablets', from which a look-up of a table is answered."""


def size_of(key: str, record: Json) -> int:
    """Bytes of one record in the catalog's state."""
    return len(key) + len(json.dumps(record)) + 6


def _range(keys: Sequence[str], prefix: str) -> tuple[int, int]:
    """The range of positions of keys with this prefix among the sorted ones."""
    return bisect_left(keys, prefix), bisect_left(keys, prefix + chr(0x10FFFF))


def encode_change(puts: Mapping[str, Json], deletes: Sequence[str] = (), request_id: str = "") -> bytes:
    """The `meta` of a CATALOG entry."""
    records = [{"key": k, "value": json.dumps(v, sort_keys=True).encode()} for k, v in sorted(puts.items())]
    change = {"puts": records, "deletes": sorted(deletes), "request_id": request_id, "reserved": b""}
    return encode("catalog_change", change)


def decode_change(
    entry: Entry, parse: Callable[[bytes], object] = json.loads
) -> tuple[dict[str, Json], list[str], str]:
    """(puts, deletes, request id) of a CATALOG entry; Corruption if it holds no change. `parse` reads a record's
    JSON."""
    puts: dict[str, Json] = {}
    try:
        change = decode("catalog_change", entry.meta)
        for put in change["puts"]:
            record = parse(put["value"])
            if not isinstance(record, dict):
                raise Corruption("a catalog change puts what is no record", opid=entry.opid)
            puts[put["key"]] = record
    except (ValueError, RecursionError) as error:
        raise Corruption("a catalog change does not decode", opid=entry.opid, reason=str(error)) from error
    return puts, change["deletes"], change["request_id"]


@contextmanager
def _uncollected() -> Iterator[None]:
    """Turn garbage collection off in this context: each collection would visit all records, and none of them is
    garbage."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


_NO_RECORD = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""The exceptions that Python raises for JSON that no master wrote."""


def checked_record(key: str, record: Json) -> Record:
    """Return the record of that key. Raises Corruption if the JSON is no such record, and LaterFormat if the cluster's
    feature level is above this build's."""
    try:
        found = read(key, record)
    except (*_NO_RECORD, ReplicaError) as error:
        raise Corruption("a record of the catalog cannot be read", key=key, reason=repr(error)) from error
    if isinstance(found, Finalized) and found.level > build_level():
        what = (
            "the cluster was upgraded for good, and the build of this master is too old for it: install the version "
            "that the other masters run; nothing is lost"
        )
        raise LaterFormat(what, cluster_level=found.level, build_level=build_level())
    return found


def _members_of(record: Record | None) -> tuple[Member, ...]:
    """The members of a tablet's `known_config`. It calls no function, because it runs for each record."""
    return (record.config or record).members if isinstance(record, Tablet) else ()


class Catalog:
    """Records of the cluster: tables, tablets, source positions, desired changes.

    Invariants: catalogs of equal applied index are equal on every master; a change is applied whole or, if its request
    id was seen before, not at all; `state` of the superblock contains exactly the entries up to `flush_opid`.
    Durability: `flush` replaces the superblock; later entries are replayed from the log. Concurrency: `apply` and
    `flush` on one thread at a time; reads from any.
    """

    def __init__(self, disk: Disk, superblock: Superblock) -> None:
        self._disk = disk
        self._superblock = superblock
        self._lock = threading.Lock()
        self._records: dict[str, Json] = {}
        """The records as they were put, with the fields of a later build."""
        self._groups: dict[str, dict[str, Any]] = {}
        """The parsed records, by the first part of their key, so that listing one kind does not walk the others."""
        self._keys: dict[str, list[str]] = {}
        """The keys of each group, sorted, so that a page of them is found by bisection."""
        self._tablets: dict[str, dict[str, Tablet]] = {}
        """By table id, the records of its tablets by key."""
        self._dropped: dict[str, Tablet] = {}
        """By id, the records of dropped tablets."""
        self._unformed: dict[str, set[str]] = {}
        """By server, the tablets that never had a leader and whose first config names the server."""
        self._of_server: defaultdict[str, dict[str, tuple[Address, ...]]] = defaultdict(dict)
        """By server, its addresses in each tablet whose last known config has it, dropped ones included."""
        self.read_times = KeptReadTimes()
        """The times of Spark queries, by query and by owner."""
        self._versions: defaultdict[str, int] = defaultdict(int)
        """By table id, the number of changes of its record, of its tablets' records and of their desired changes."""
        self._changed: set[str] | None = None
        """The keys that were put or deleted since the last `take_changed`; None before its first call, or if they are
        too many."""
        self._config_changes = ConfigChanges()
        self._bytes = 0
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
            with _uncollected():
                value = json.loads(state)
                records: dict[str, Json] = value["records"]
                self._requests = dict.fromkeys(value["requests"])
                for key, record in sorted(records.items()):
                    if not isinstance(record, dict):
                        raise TypeError(f"{key} has no record")
                    self._put(key, record, checked_record(key, record), 0)
            self._config_changes = ConfigChanges(OpId(*value.get("config_changed", (0, 0))))
            self._bytes = len(state)
        except _NO_RECORD as error:
            raise Corruption("the catalog's state cannot be read", reason=str(error)) from error

    @property
    def applied_opid(self) -> OpId:
        """The last applied entry."""
        return self._applied

    @property
    def applied_time(self) -> int:
        """The highest hybrid time applied."""
        return self._applied_time

    @property
    def flush_opid(self) -> OpId:
        """The last entry whose effect is durable without the log."""
        return self._superblock.flush_opid

    def get(self, kind: Kind[R], name: str = "") -> R | None:
        """The record of that kind under `name`; None if there is none."""
        found: R | None = self._groups.get(group_of(kind), {}).get(kind + name)
        return found

    def items(self, kind: Kind[R], within: str = "") -> Iterator[tuple[str, R]]:
        """(name, record) of all records of that kind whose name begins with `within`, which is cut off the name;
        sorted."""
        prefix = kind + within
        with self._lock:
            keys, records = self._keys.get(group_of(kind), []), self._groups.get(group_of(kind), {})
            found = [(k[len(prefix) :], records[k]) for k in keys[slice(*_range(keys, prefix))]]
        return iter(found)

    def walk(self, kind: Kind[R], within: str = "", after: str = "") -> Iterator[tuple[str, R]]:
        """As `items`, beginning after the name `after`, whose record may be gone. The cost is that of the records that
        the caller takes. If records are added or removed meanwhile, it goes on after the last name."""
        prefix = kind + within
        while True:
            with self._lock:
                keys, records = self._keys.get(group_of(kind), []), self._groups.get(group_of(kind), {})
                low, high = _range(keys, prefix)
                if after:
                    low = max(low, bisect_right(keys, prefix + after))
                found = [(k[len(prefix) :], records[k]) for k in keys[low : min(high, low + WALK_KEYS)]]
            if not found:
                return
            yield from found
            after = found[-1][0]

    def tablets_of(self, table_id: str) -> list[tuple[str, Tablet]]:
        """(tablet id, record) of a table's tablets, dropped ones included, in order of their position."""
        with self._lock:
            found = [(k.partition("/")[2], r) for k, r in self._tablets.get(table_id, {}).items()]
        return sorted(found, key=lambda each: (each[1].range_pos, each[1].bucket, each[0]))

    def count(self, prefix: str) -> int:
        """The number of records under `prefix`."""
        with self._lock:
            low, high = _range(self._keys.get(group_of(prefix), []), prefix)
            return high - low

    def dropped(self) -> list[tuple[str, Tablet]]:
        """(tablet id, record) of the dropped tablets; sorted."""
        with self._lock:
            return sorted(self._dropped.items())

    def dropped_among(self, tablet_ids: KeysView[str]) -> set[str]:
        """The dropped ones of these tablets. The cost is that of the shorter of two lists: these, and all dropped
        ones."""
        with self._lock:
            return self._dropped.keys() & tablet_ids

    def unformed(self, server_uuid: str) -> list[str]:
        """The sorted ids of the tablets that never had a leader and whose first config names the server."""
        with self._lock:
            return sorted(self._unformed.get(server_uuid, ()))

    def tablets_with(self, server_uuid: str) -> list[str]:
        """The sorted ids of the tablets whose last known config has the server, dropped ones included."""
        with self._lock:
            return sorted(self._of_server.get(server_uuid, ()))

    def addresses_of(self, server_uuid: str) -> set[Address]:
        """The addresses of the server in the last known configs of all tablets."""
        with self._lock:
            return {address for told in set(self._of_server.get(server_uuid, {}).values()) for address in told}

    def version(self, table_id: str) -> int:
        """The number of changes so far of the table's record, of its tablets' and of their desired changes."""
        return self._versions.get(table_id, 0)

    def take_changed(self) -> set[str] | None:
        """The keys of the records that were put or deleted since the last call. None at the first call, or if they are
        more than CHANGED_MAX: then any record may have changed."""
        with self._lock:
            taken, self._changed = self._changed, set()
            return taken

    @property
    def config_changed(self) -> OpId:
        """The last entry that changed any tablet's config."""
        return self._config_changes.last

    @property
    def config_changes_begin(self) -> OpId:
        """The position after which `config_changes_since` has all changes."""
        with self._lock:
            return self._config_changes.begin

    def config_changes_since(self, position: OpId) -> list[ConfigChange] | None:
        """The changes of configs by entries after that position; None if some of them are no longer kept."""
        with self._lock:
            return self._config_changes.since(position)

    def _index(self, key: str, before: Record | None, after: Record | None) -> None:
        """Update the indexes for one changed record: dropped tablets, unformed tablets, each server's tablets, read
        times, and the changed keys."""
        if self._changed is not None:
            self._changed.add(key)
            self._changed = self._changed if len(self._changed) <= CHANGED_MAX else None
        tablet_id = key.partition("/")[2]
        for tablet in (before, after):
            if tablet is None:
                continue
            if not isinstance(tablet, Tablet):
                if isinstance(tablet, ReadTime):
                    note = self.read_times.add if tablet is after else self.read_times.remove
                    note(key, tablet)
                continue
            if tablet.dropped and tablet is after:
                self._dropped[tablet_id] = tablet
            else:
                self._dropped.pop(tablet_id, None)
            for member in tablet.members if not tablet.formed and not tablet.dropped else ():
                waiting = self._unformed.setdefault(member.uuid, set())
                if tablet is after:
                    waiting.add(tablet_id)
                else:
                    waiting.discard(tablet_id)
        had, has = _members_of(before), _members_of(after)
        if had is not has:
            for member in had:
                self._of_server[member.uuid].pop(tablet_id, None)
                if not self._of_server[member.uuid]:
                    del self._of_server[member.uuid]
            for member in has:
                self._of_server[member.uuid][tablet_id] = member.addresses

    @property
    def size_bytes(self) -> int:
        """The bytes of all records as the state on disk has them, accurate to a few per mille."""
        return self._bytes

    @property
    def records(self) -> dict[str, Json]:
        """All records as they are stored, by key, to be read only."""
        with self._lock:
            return dict(self._records)

    def __contains__(self, key: str) -> bool:
        return key in self._records

    def written(self, key: str, record: Record) -> Json:
        """The JSON of a record that is to be put."""
        return write(record, self._records.get(key), self._groups.get(group_of(key), {}).get(key))

    def growth(self, puts: Mapping[str, Record]) -> int:
        """The bytes by which these puts would enlarge the catalog."""
        old = sum(size_of(key, self._records[key]) for key in puts if key in self._records)
        return sum(size_of(key, self.written(key, record)) for key, record in puts.items()) - old

    def change(self, puts: Mapping[str, Record], deletes: Sequence[str], request_id: str) -> bytes:
        """The `meta` of the CATALOG entry that puts and deletes these."""
        return encode_change({k: self.written(k, r) for k, r in puts.items()}, deletes, request_id)

    def _put(self, key: str, record: Json, parsed: Record, size_bytes: int) -> None:
        group = group_of(key)
        known, keys = self._groups.setdefault(group, {}), self._keys.setdefault(group, [])
        if key in self._records:
            self._bytes -= size_of(key, self._records[key])
        else:
            insort(keys, key)
        self._bytes += size_bytes
        self._index(key, known.get(key), parsed)
        self._records[key], known[key] = record, parsed
        if isinstance(parsed, Tablet):
            self._tablets.setdefault(parsed.table_id, {})[key] = parsed
            self._versions[parsed.table_id] += 1  # after the change: a reader of the new number finds no older record
        elif group in _IN_TABLE_LOOK_UPS:
            self._count(key)

    def _delete(self, key: str) -> None:
        group, record = group_of(key), self._records.pop(key, None)
        if record is None:
            return
        self._bytes -= size_of(key, record)
        parsed, keys = self._groups[group].pop(key), self._keys[group]
        del keys[bisect_left(keys, key)]
        self._index(key, parsed, None)
        if isinstance(parsed, Tablet):
            of_table = self._tablets[parsed.table_id]
            del of_table[key]
            if not of_table:
                del self._tablets[parsed.table_id]
            self._versions[parsed.table_id] += 1
        elif group in _IN_TABLE_LOOK_UPS:
            self._count(key)

    def _count(self, key: str) -> None:
        """Count a change of a table's record, or of a desired change of one of its tablets. Call it after the
        change."""
        group, _, name = key.partition("/")
        tablet = self.get(TABLET, name) if group == group_of(DESIRED_CHANGE) else None
        self._versions[tablet.table_id if tablet is not None else name] += 1

    def seen(self, request_id: str) -> bool:
        """Whether a change of that request id was applied, as far back as is remembered."""
        return request_id in self._requests

    def apply(self, entries: Sequence[Entry]) -> list[ApplyResult]:
        """Apply in index order; one result per entry. Corruption if a change does not decode."""
        results = []
        for entry in entries:
            check(entry.opid.index == self._applied.index + 1, "entries apply in order", entry=entry.opid)
            if entry.kind is EntryKind.CATALOG:
                with _uncollected():
                    self._apply_change(entry)
            self._applied = entry.opid
            self._applied_time = max(self._applied_time, entry.hybrid_time)
            results.append(ApplyResult(entry.opid, hybrid_time=entry.hybrid_time))
        return results

    def _apply_change(self, entry: Entry) -> None:
        puts, deletes, request_id = decode_change(entry)
        parsed = {key: checked_record(key, record) for key, record in puts.items()}
        if request_id:
            if request_id in self._requests:
                return
            self._requests[request_id] = None
            while len(self._requests) > REQUESTS_MAX:
                del self._requests[next(iter(self._requests))]
        known = self._groups.get(group_of(TABLET), {})
        with self._lock:
            tablets = {key: known.get(key) for key in (*deletes, *puts) if key.startswith(TABLET)}
            for key in deletes:
                self._delete(key)
            for key, record in puts.items():
                self._put(key, record, parsed[key], size_of(key, record))
            changed = ((key.removeprefix(TABLET), before, parsed.get(key)) for key, before in tablets.items())
            self._config_changes.add(entry.opid, entry.hybrid_time, changed)

    def flush(self) -> bool:
        """Make everything applied durable without the log; returns False if it already is. Errors of the disk are
        raised."""
        if self._applied == self._superblock.flush_opid:
            return False
        kept: dict[str, object] = {"records": self.records, "requests": list(self._requests)}
        if self.config_changed != ZERO_OPID:
            kept["config_changed"] = self.config_changed
        state = json.dumps(kept, sort_keys=False).encode()
        flushed = replace(self._superblock, flush_opid=self._applied, flush_time=self._applied_time, state=state)
        flushed.save(self._disk, over=self._superblock)
        self._superblock = flushed
        return True

    def repair(self) -> bool:
        """Write the superblock again if it is missing or cannot be read; returns whether it was."""
        return self._superblock.repair(self._disk)

    @contextmanager
    def hold(self) -> Iterator[Superblock]:
        """The present superblock, which contains everything that is durable without the log. The next flush replaces
        it."""
        yield self._superblock

    def close(self) -> None:
        """Do nothing: no file is held open."""
