"""Lasting desired state: how many voters are wanted, which servers are to be emptied, and on which ones operators work.

The catalog stores it as facts, not as operations with steps. In every tick the policy acts on them until they hold, so
after any crash the next tick goes on. To take one back, an operator changes the same fact again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nyala.replica.policy import ServerView, room_left
from nyala.replica.rpc import check_replicas
from nyala.replica.types import Code, Refused

from ..catalog.catalog import Catalog
from ..catalog.records import DESIRED, MAINTENANCE, RETIRED, TABLE, TABLET, Desired, Maintenance, Retired, Table, Tablet
from ..catalog.tables import Change, find_table, tablet_of
from ..state import MasterState
from ..tablets.draining import tablets_on
from ..tablets.view import retired_servers, wanted_voters

RETIRED_MAX = 1_000
REASON_LENGTH_MAX = 200
MAINTENANCE_MAX = 1_000
MAINTENANCE_S_MAX = 30 * 86_400
OWNER_LENGTH_MAX = 80


def set_replication(
    state: MasterState, wanted: int, *, table: str = "", tablet_id: str = "", seen: int | None = None
) -> Change:
    """The change that sets the wanted number of voters, of a table or of one tablet; its result is that number.

    Refused(INVALID_ARGUMENT) for an even number, for one above the maximum, or if there are too few servers to hold so
    many. A lower number than the present one is never refused for lack of servers. CAS_FAILED if desired state was
    changed after the caller read it (`seen` of `changes`), so that a late repetition does nothing. If the number is in
    force already, nothing changes.
    """
    catalog = state.catalog
    if tablet_id:
        record: Table | Tablet = (tablet := tablet_of(catalog, tablet_id))
        before = wanted_voters(catalog, tablet_id)
        key, (_, own) = TABLET + tablet_id, find_table(catalog, table_id=tablet.table_id)
        if table and own.name != table:
            raise Refused(Code.WRONG_TABLE, "the tablet is of another table", tablet=tablet_id, table=own.name)
        if not wanted:
            followed: Change = ({key: replace(tablet, replication_factor=0)}, [], "", own.replication_factor)
            return counted(state, seen, followed) if tablet.replication_factor else _as_it_is(followed[3])
    else:
        table_id, record = find_table(catalog, table)
        key, before = TABLE + table_id, record.replication_factor
    check_replicas(wanted)
    useful = [s.uuid for s in state.servers() if s.takes_replicas]
    if wanted > len(useful) and wanted > before:
        what = "every replica needs a live tablet server that is neither being retired nor in maintenance"
        raise Refused(Code.INVALID_ARGUMENT, what, wanted=wanted, servers=len(useful))
    if record.replication_factor == wanted:
        return _as_it_is(wanted)
    if wanted > before:
        tablets = 1 if tablet_id else _following(catalog, key.removeprefix(TABLE))
        needed, what = (wanted - before) * tablets, "the tablet servers have no room for so many more replicas"
        _check_room(state, state.servers(), needed, what)
    return counted(state, seen, ({key: replace(record, replication_factor=wanted)}, [], "", wanted))


def changes(catalog: Catalog) -> int:
    """The number of changes of lasting desired state so far: replication factors, retired servers, maintenance."""
    known = catalog.get(DESIRED)
    return known.changes if known else 0


def retire(state: MasterState, uuid: str, *, undo: bool = False, reason: str = "", seen: int | None = None) -> Change:
    """The change by which a server is to be emptied, or no longer; its result is whether anything changed.

    Refused(NOT_FOUND) for an unknown server, INVALID_ARGUMENT if the others could not hold its replicas, CAS_FAILED as
    for `set_replication`.
    """
    known = state.catalog.get(RETIRED, uuid)
    if undo:
        if known is None:
            _heard_of(state, uuid)
            return _as_it_is(False)
        return counted(state, seen, ({}, [RETIRED + uuid], "", True))
    if known is not None:
        return _as_it_is(False)
    _heard_of(state, uuid)
    if len(retired_servers(state.catalog)) >= RETIRED_MAX:
        raise Refused(Code.OVERLOADED, "too many servers are being retired", max=RETIRED_MAX)
    others = [s.uuid for s in state.servers() if s.takes_replicas and s.uuid != uuid]
    held = tablets_on(state.catalog, state.soft, uuid)
    needed = max((wanted_voters(state.catalog, t) for t in held), default=0)
    if needed > len(others):
        raise Refused(
            Code.INVALID_ARGUMENT,
            "too few servers would be left for its tablets; add a server, or lower the tables' number of replicas",
            server=uuid,
            tablets=len(held),
            replicas_wanted=needed,
            servers_left=len(others),
        )
    staying = [s for s in state.servers() if s.uuid != uuid]
    _check_room(state, staying, len(held), "the servers that stay have no room for its tablets")
    reason = reason[:REASON_LENGTH_MAX]
    record = Retired(since_us=state.clock.wall_us(), reason=reason, tablets_at_first=len(held))
    return counted(state, seen, ({RETIRED + uuid: record}, [], "", True))


def maintain(
    state: MasterState, uuid: str, seconds: int, *, owner: str = "", reason: str = "", seen: int | None = None
) -> Change:
    """The change that puts a server in maintenance for so many seconds from now on, or with 0 ends that; its result is
    whether anything changed. It also removes the records of maintenance that is over.

    Refused(NOT_FOUND) for an unknown server, INVALID_ARGUMENT for more than MAINTENANCE_S_MAX, OVERLOADED if operators
    work on too many servers, CAS_FAILED as for `set_replication`. A repeated request is answered like the first one.
    """
    now_us, known = state.clock.wall_us(), state.catalog.get(MAINTENANCE, uuid)
    if not 0 <= seconds <= MAINTENANCE_S_MAX:
        what = "maintenance of a server lasts from a second to a number of days: repeat the request if it takes longer"
        raise Refused(Code.INVALID_ARGUMENT, what, seconds=seconds, days_max=MAINTENANCE_S_MAX // 86_400)
    over = [MAINTENANCE + u for u, r in state.catalog.items(MAINTENANCE) if r.until_us <= now_us and u != uuid]
    if not seconds:
        if known is None:
            _heard_of(state, uuid)
            return _as_it_is(False)
        return counted(state, seen, ({}, [MAINTENANCE + uuid, *over], "", now_us < known.until_us))
    owner, reason = owner[:OWNER_LENGTH_MAX], reason[:REASON_LENGTH_MAX]
    until_us = now_us + seconds * 1_000_000
    if known is None:
        _heard_of(state, uuid)
    elif (known.owner, known.reason, known.seconds) == (owner, reason, seconds) and seen == changes(state.catalog) - 1:
        return _as_it_is(False)
    if state.catalog.count(MAINTENANCE) - len(over) >= MAINTENANCE_MAX and known is None:
        raise Refused(Code.OVERLOADED, "too many servers are in maintenance at once", max=MAINTENANCE_MAX)
    record = Maintenance(since_us=now_us, until_us=until_us, seconds=seconds, owner=owner, reason=reason)
    return counted(state, seen, ({MAINTENANCE + uuid: record}, over, "", True))


def _as_it_is(result: Any) -> Change:
    return {}, [], "", result


def counted(state: MasterState, seen: int | None, change: Change) -> Change:
    """The change, with the count raised by one. Refused(CAS_FAILED) if the count is not `seen`."""
    before = changes(state.catalog)
    if seen not in (None, before):
        raise Refused(
            Code.CAS_FAILED,
            "numbers of replicas, or retired or maintained servers, changed since the caller read them: read again "
            "(`nyala server list`, `nyala table describe`), then repeat it",
            changes_seen=seen,
            changes=before,
        )
    puts, deletes, text, result = change
    return {**puts, DESIRED: Desired(changes=before + 1)}, deletes, text, result


def _following(catalog: Catalog, table_id: str) -> int:
    """The number of tablets of a table without a number of voters of their own."""
    tablets = (tablet for _, tablet in catalog.tablets_of(table_id))
    return sum(not tablet.dropped and not tablet.replication_factor for tablet in tablets)


def _check_room(state: MasterState, servers: Sequence[ServerView], needed: int, what: str) -> None:
    """Raise Refused(INVALID_ARGUMENT) if these servers together have no room for so many more replicas."""
    room = room_left(servers, state.replica_load())
    if room is not None and room < needed:
        raise Refused(
            Code.INVALID_ARGUMENT,
            f"{what}: each holds a limited number (--tablets-max of nyala.replica.server); add servers or drop tables",
            needed=needed,
            room=room,
        )


def _heard_of(state: MasterState, uuid: str) -> None:
    if uuid not in state.soft.servers:
        raise Refused(Code.NOT_FOUND, "no such tablet server; see `nyala server list`", server=uuid)
