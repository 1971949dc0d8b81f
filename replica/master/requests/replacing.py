"""Puts empty tablets in the place of lost ones. This is the last resort, if no replica is left to recover from.

One change of the catalog does all of it. It marks the lost tablet dropped, so that replicas that return are deleted. It
places the replicas of a new tablet of the same partition. It moves the positions of the sources that fed the lost
tablet back, so that the ingest reads again the records which Kafka still has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nyala.replica.policy import ServerView, place_tablets
from nyala.replica.rows import SourceKey
from nyala.replica.types import Code, DataState, Member, Refused, new_uuid

from ..catalog.catalog import Catalog
from ..catalog.records import DESIRED_CHANGE, SOURCE, TABLET, Position, Record, Tablet
from ..catalog.sources import lowered_to, source_name
from ..catalog.tables import Change, first_members
from ..state import MasterState
from ..tablets.dropped import holders_of
from ..tablets.view import wanted_voters

Replaced = tuple[dict[str, str], list[Position]]
"""(new tablet id by lost tablet id, the new source positions)."""


def replace_tablets(
    state: MasterState, tablet_ids: Sequence[str], floors: Mapping[SourceKey, int], *, despite_replicas: bool = False
) -> Callable[[], Change]:
    """Return a function that computes the change which replaces the named tablets, all or none; the change's result is
    a `Replaced`. The function reads only the catalog, so it may run on another thread.

    `floors`: the first offsets that Kafka still has. `despite_replicas`: replace a tablet even if a live server has
    rows of it.

    If a tablet was replaced before, the result has its replacement, and nothing changes for it. Refused:
    TABLET_NOT_FOUND; ILLEGAL_STATE while a live server holds rows of one; NOT_READY while servers may not have
    reported yet; INVALID_ARGUMENT for no tablets, or too few servers to hold the new ones.
    """
    ids = list(dict.fromkeys(tablet_ids))
    if not ids:
        raise Refused(Code.INVALID_ARGUMENT, "name the tablets to replace")
    records = {tablet_id: _known(state.catalog, tablet_id) for tablet_id in ids}
    made = {t: r.replaced_by for t, r in records.items() if r.replaced_by}
    lost = [tablet_id for tablet_id in ids if tablet_id not in made]
    if not lost:
        return lambda: ({}, [], "", (made, []))
    _refuse_before_all_reported(state)
    if not despite_replicas:
        _refuse_with_rows(state, lost)
    holders = {t: tuple(holders_of(records[t], state.soft, t)) for t in lost}
    servers, load, dropped_us = state.servers(), state.replica_load(), state.clock.wall_us()

    def compute() -> Change:
        puts: dict[str, Record] = {}
        for tablet_id, members in _placed(state.catalog, servers, load, lost).items():
            new_id, old = new_uuid(), records[tablet_id]
            own = old.replication_factor
            puts[TABLET + new_id] = Tablet(
                table_id=old.table_id,
                bucket=old.bucket,
                range_pos=old.range_pos,
                members=members,
                replication_factor=own,
            )
            dropped = replace(old, dropped_us=dropped_us, replaced_by=new_id, holders=holders[tablet_id])
            puts[TABLET + tablet_id] = dropped
            made[tablet_id] = new_id
        lowered = _lowered(state.catalog, {records[t].table_id for t in lost}, floors)
        puts.update(lowered)
        deletes = [DESIRED_CHANGE + t for t in lost if DESIRED_CHANGE + t in state.catalog]
        return puts, deletes, "", (made, [*lowered.values()])

    return compute


def servers_with_rows(state: MasterState, tablet_id: str) -> list[str]:
    """The live servers that reported a READY replica with rows, also one that has FAILED; sorted."""
    found = []
    for uuid, server in state.soft.servers.items():
        replica = server.replicas.get(tablet_id)
        silent_us = state.soft.silent_us(uuid, state.mono_us)
        if replica is None or replica.witness or silent_us > state.options.server_dead_ms * 1000:
            continue
        if replica.data_state == DataState.READY:
            found.append(uuid)
    return sorted(found)


def _known(catalog: Catalog, tablet_id: str) -> Tablet:
    tablet = catalog.get(TABLET, tablet_id)
    if tablet is None or (tablet.dropped and not tablet.replaced_by):
        raise Refused(Code.TABLET_NOT_FOUND, "no table has this tablet", tablet=tablet_id)
    return tablet


def _refuse_before_all_reported(state: MasterState) -> None:
    """Refused NOT_READY while this master has just begun to lead, because it may not have heard of every server yet."""
    left_us = state.options.server_dead_ms * 1000 - (state.mono_us - state.soft.since_us)
    if left_us > 0:
        what = (
            "this master has just begun to lead, and not every server may have reported to it: try again after `wait_s`"
        )
        raise Refused(Code.NOT_READY, what, wait_s=round(left_us / 1e6, 1))
    for server in state.servers():
        known = state.soft.servers[server.uuid]
        if server.alive and (known.last_report.booting or not known.reported):
            what = "a live server has not reported yet which replicas it has: try again in some seconds"
            raise Refused(Code.NOT_READY, what, server=server.uuid)


def _refuse_with_rows(state: MasterState, lost: Sequence[str]) -> None:
    for tablet_id in lost:
        holders = servers_with_rows(state, tablet_id)
        if holders:
            what = (
                "a live server holds rows of this tablet, which replacing it would throw away: use `nyala unsafe "
                "recover`, or --despite-replicas"
            )
            raise Refused(Code.ILLEGAL_STATE, what, tablet=tablet_id, servers=", ".join(holders))


def _placed(
    catalog: Catalog, servers: Sequence[ServerView], load: dict[str, int], lost: Sequence[str]
) -> dict[str, tuple[Member, ...]]:
    """Members of each new tablet, by the lost one's id: as many as it should have, placed like those of a new table."""
    by_number: dict[int, list[str]] = {}
    for tablet_id in lost:
        by_number.setdefault(wanted_voters(catalog, tablet_id), []).append(tablet_id)
    found: dict[str, tuple[Member, ...]] = {}
    for replicas, tablets in sorted(by_number.items()):
        for tablet_id, names in zip(tablets, place_tablets(servers, load, len(tablets), replicas), strict=True):
            found[tablet_id] = first_members(servers, names)
            for uuid in names:
                load[uuid] = load.get(uuid, 0) + 1
    return found


def _lowered(catalog: Catalog, table_ids: set[str], floors: Mapping[SourceKey, int]) -> dict[str, Position]:
    """The sources of these tables, with `done` at their start, or at the first offset that Kafka still has.

    A new tablet has no rows of any source. The ledgers of the other tablets drop the rows that they have.
    """
    found: dict[str, Position] = {}
    for table_id in sorted(table_ids):
        kept = {source_name(table_id, source): offset for source, offset in floors.items()}
        for key, record in catalog.items(SOURCE, f"{table_id}/"):
            name = f"{table_id}/{key}"
            if not record.retired:
                found[SOURCE + name] = lowered_to(record, kept.get(name, 0))
    return found
