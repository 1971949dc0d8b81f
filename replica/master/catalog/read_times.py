"""The hybrid times at which Spark queries read. Each query of a `load()` has one: the first proposal that is committed.
Pure.

The catalog keeps the newest READ_TIMES_MAX times. If the catalog has no time for a query, the masters give it one only
if they cannot have forgotten an earlier one:

- A `load()` has a record while any of its times is kept. The record's `from_query` is above the number of each query
  whose time was forgotten. A query below it is refused.
- A `load()` without a record is refused unless it was made at a position above `read-floor`. Each `load()` whose record
  was removed was made at or below it. The position of a `load()` is that of the catalog's last applied entry when it
  was made, so each later `load()` is above.
- A `load()` of an earlier generation of terms is refused: the catalog was rebuilt, or its config forced, after the
  `load()` was made. The lost masters may have committed times that this catalog lacks.
"""

from __future__ import annotations

from dataclasses import replace

from nyala.replica.types import ZERO_OPID, Code, OpId, Refused, generation_of, limits

from .catalog import Catalog
from .records import READ_FLOOR, READ_LOAD, READ_TIME, ReadFloor, ReadLoad, ReadTime, Record
from .tables import Change


def agreed_time(catalog: Catalog, load_id: str, made: OpId, query: int) -> int:
    """Return the time of that query of the `load()` that was made at that position; 0 if it has none yet.

    Refused: EXPIRED if it may have had one that is forgotten or lost, INVALID_ARGUMENT if the `load()` was made
    elsewhere.
    """
    found = catalog.read_times.of(load_id, query)
    if found is not None:
        return found.time
    load = catalog.get(READ_LOAD, load_id)
    if load is None:
        floor = _floor(catalog)
        if not floor < made <= catalog.applied_opid:
            what = (
                "the masters may have forgotten the times of this load()'s queries, because they keep those of the "
                'newest queries only: load() the DataFrame again, or use at = "now"; nothing was changed'
            )
            raise Refused(Code.EXPIRED, what, load=load_id, made=str(made), kept_above=str(floor))
    elif load.made != made:
        what = "this load() was made at another position of the masters' catalog: load() again; nothing was changed"
        raise Refused(Code.INVALID_ARGUMENT, what, load=load_id, made=str(made), known=str(load.made))
    elif query < load.from_query:
        what = (
            f"the masters may have forgotten the time of query {query}, because they keep those of the newest queries "
            "only: run it again; nothing was changed"
        )
        raise Refused(Code.EXPIRED, what, load=load_id, kept_from=load.from_query)
    if generation_of(made.term) != generation_of(catalog.applied_opid.term):
        what = (
            "this load() was made before the masters' config was forced, and a time of its queries may be lost: load() "
            "the DataFrame again; nothing was changed"
        )
        raise Refused(Code.EXPIRED, what, load=load_id, made=str(made), catalog_at=str(catalog.applied_opid))
    return 0


def agree(catalog: Catalog, proposed: ReadTime, made: OpId) -> Change:
    """The change that gives a query its time; its result is the time that the query has from now on.

    It is the proposed time, with two exceptions. If the query has a time already, that one holds. If an earlier query
    of the application has a later time, the query gets that one, because the reads of an application never go back.
    Refused as by `agreed_time`.
    """
    known = agreed_time(catalog, proposed.load_id, made, proposed.query)
    if known:
        return {}, [], "", known
    before = catalog.read_times.owned("application", proposed.application)
    newest = before[max(before)].time if before else 0
    added = replace(proposed, time=max(proposed.time, newest))
    load = catalog.get(READ_LOAD, added.load_id) or ReadLoad(made_term=made.term, made_index=made.index)
    # Each change of the catalog has a higher index than those before, so the keys differ, and the lowest is the oldest.
    puts: dict[str, Record] = {
        f"{READ_TIME}{catalog.applied_opid.index:016x}": added,
        READ_LOAD + added.load_id: load,
    }
    deletes: list[str] = []
    if (forgotten := _to_forget(catalog, added.host)) is not None:
        key, old = forgotten
        deletes.append(key)
        left = load if old.load_id == added.load_id else catalog.get(READ_LOAD, old.load_id)
        if left is not None and (left is load or len(catalog.read_times.owned("load", old.load_id)) > 1):
            puts[READ_LOAD + old.load_id] = replace(left, from_query=max(left.from_query, old.query + 1))
        else:
            deletes.append(READ_LOAD + old.load_id)
            high = max(_floor(catalog), left.made if left is not None else catalog.applied_opid)
            puts[READ_FLOOR] = ReadFloor(term=high.term, index=high.index)
    return puts, deletes, "", added.time


def _to_forget(catalog: Catalog, host: str) -> tuple[str, ReadTime] | None:
    """The key and record of the time to forget, so that one more of that host fits: the host's oldest if the host has
    used its share, otherwise the oldest of all. None if there is room."""
    of_host = catalog.read_times.owned("host", host)
    if len(of_host) >= limits.READ_TIMES_PER_HOST_MAX:
        key = min(of_host)
        return key, of_host[key]
    if catalog.count(READ_TIME) < limits.READ_TIMES_MAX:
        return None
    return next(((READ_TIME + name, time) for name, time in catalog.walk(READ_TIME)), None)


def _floor(catalog: Catalog) -> OpId:
    """The position at or below which a `load()` without a record may be forgotten."""
    floor = catalog.get(READ_FLOOR)
    return OpId(floor.term, floor.index) if floor is not None else ZERO_OPID
