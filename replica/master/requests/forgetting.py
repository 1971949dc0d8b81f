"""Forgets a tablet server that is gone for good: its desired state, its report, and the dropped tablets that wait for
its confirmation."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from nyala.replica.types import Code, Refused

from ..catalog.records import MAINTENANCE, RETIRED, TABLET, Record
from ..catalog.tables import Change
from ..state import MasterState
from ..tablets.dropped import CHANGES_MAX
from .desired import counted

NAMED_MAX = 3
"""The most tablets that a refusal names; it gives the number of all."""


class Forgotten(NamedTuple):
    """The result of one change. `more`: further dropped tablets wait for the server."""

    changed: bool
    more: bool


async def forget_server(state: MasterState, uuid: str, seen: int | None = None) -> bool:
    """Forget the server; returns whether anything was known of it. If it sends a heartbeat later, it is like a new
    server.

    Refused: ILLEGAL_STATE if it sends heartbeats, if a process answers with its uuid at its address, or if it is a
    member of a tablet; NOT_READY if this master has led too short to know that; CAS_FAILED if desired state was changed
    after the caller read it. Then nothing has changed.
    """
    _check_gone(state, uuid)
    if (address := await state.admission.answering(uuid, state.cluster_id)) is not None:
        what = (
            "this tablet server sends no heartbeats that count, but answers at its address: nothing was changed. End "
            "that process, then repeat it"
        )
        raise Refused(Code.ILLEGAL_STATE, what, server=uuid, address=address)
    done = await state.group.change(lambda: forgotten(state, uuid, seen))
    changed = done.changed
    while done.more:
        done = await state.group.change(lambda: forgotten(state, uuid, None))
    if _is_silent(state, uuid):  # it may have registered anew by a heartbeat meanwhile
        changed |= state.soft.forget_server(uuid)
    return bool(changed)


def forgotten(state: MasterState, uuid: str, seen: int | None) -> Change:
    """The change that removes the records of the server; its result is a `Forgotten`. At most CHANGES_MAX dropped
    tablets then no longer wait for it to confirm that it has no replica of them. Refused as `forget_server`."""
    _check_gone(state, uuid)
    members = _memberships(state, uuid)
    if members:
        raise Refused(
            Code.ILLEGAL_STATE,
            "this tablet server is a member of tablets, as far as the masters know: nothing was changed. Wait until "
            "its replicas are replaced (`nyala tablet list`), or remove them, then repeat it",
            server=uuid,
            tablets=len(members),
            some=", ".join(members[:NAMED_MAX]),
        )
    catalog = state.catalog
    waiting = ((t, r) for t, r in catalog.dropped() if uuid in (r.holders or ()))
    puts: dict[str, Record] = {}
    for tablet_id, tablet in islice(waiting, CHANGES_MAX):
        left = tuple(u for u in tablet.holders or () if u != uuid)
        puts[TABLET + tablet_id] = replace(tablet, holders=left, gone_us=None if left else state.clock.wall_us())
    deletes = [key for key in (RETIRED + uuid, MAINTENANCE + uuid) if key in catalog]
    change: Change = (puts, deletes, "", Forgotten(bool(puts or deletes), len(puts) == CHANGES_MAX))
    return counted(state, seen, change) if deletes else change


def _memberships(state: MasterState, uuid: str) -> list[str]:
    """The tablets of which the server is a member, by the catalog's config or by the believed one; sorted."""
    catalog = state.catalog
    among = sorted({*catalog.tablets_with(uuid), *state.soft.member_of(uuid)})
    return [t for t in among if (tablet := catalog.get(TABLET, t)) is not None and not tablet.dropped]


def _is_silent(state: MasterState, uuid: str) -> bool:
    return state.soft.silent_us(uuid, state.mono_us) > state.options.server_dead_ms * 1000


def _check_gone(state: MasterState, uuid: str) -> None:
    """Raise Refused if the server sends heartbeats, or may send them: this master may have led too short to have heard
    one."""
    if _is_silent(state, uuid):
        return
    if uuid in state.soft.servers:
        what = "this tablet server sends heartbeats, or did a moment ago: nothing was changed. End its process first"
        raise Refused(Code.ILLEGAL_STATE, what, server=uuid)
    what = (
        "the leading master has just begun to lead, and the server may still send heartbeats. Nothing was changed. "
        "Repeat it in a moment"
    )
    raise Refused(Code.NOT_READY, what, server=uuid)
