"""Answers requests for lists, page by page, so that each fits in one message.

A request names the key after which its page begins, so the work grows only with the page. Tables are sorted by name,
servers by uuid, a table's tablets by position, sources by key. Concurrency: the loop's thread; work on a long page
pauses for other work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nyala.replica.rpc import address_to_pb, info_from_json, page_bytes, page_of, pb
from nyala.replica.types import Code, Refused, __version__

from ..catalog import sources
from ..catalog.records import NAME, RETIRED, TABLE, Tablet, write
from ..catalog.tables import find_table
from ..state import MasterState
from . import desired
from .conversions import position_to_pb
from .infos import applicant_info, foreign_info, recorded_info, server_infos, tablet_info, tablets_after
from .upgrading import finalized_level

SERVERS_AT_ONCE = 16
"""The number of servers whose replicas are counted before other work of the loop runs."""


async def tables_page(state: MasterState, request: pb.TableRequest) -> pb.ListTablesReply:
    """A page of tables, by name."""

    def found() -> Iterator[tuple[str, pb.TableInfo]]:
        for name, named in state.catalog.walk(NAME, after=request.after):
            table = state.catalog.get(TABLE, named.table_id)
            if table is not None:
                info = (
                    pb.TableInfo(table_id=named.table_id, name=name) if request.brief else info_from_json(write(table))
                )
                yield name, info

    page, last = await page_of(found(), request.limit_bytes)
    return pb.ListTablesReply(tables=page, next=last)


async def table_page(state: MasterState, request: pb.TableRequest) -> pb.TableReply:
    """One table, and its tablets after a position if the request wants them."""
    table_id, stored = find_table(state.catalog, request.name, request.table_id)
    after = _position(request.after)
    key, pages = (table_id, request.after, request.limit_bytes), state.look_ups
    if request.with_tablets and (known := pages.get(key, state.mono_us)) is not None:
        return _table_reply(known)
    version = state.catalog.version(table_id)
    table = info_from_json(write(stored)) if after is None else pb.TableInfo(table_id=table_id, name=stored.name)
    reply = pb.TableReply(table=table, cluster_id=state.cluster_id)
    if not request.with_tablets:
        return reply
    tablets = tablets_after(state.catalog, table_id, after)
    parts = pages.parts(key, stored, tablets, lambda: state.mono_us, lambda *tablet: _framed(state, *tablet))
    page, reply.next = await page_of(
        ((f"{p.made_of[1].range_pos}/{p.made_of[1].bucket}", p) for p in parts), request.limit_bytes, reply.ByteSize()
    )
    answer = b"".join((reply.SerializeToString(), *(part.framed for part in page)))
    if request.limit_bytes:
        pages.keep(key, version, page, answer)
    reply = _table_reply(answer)
    reply.servers.extend(_places(state, reply.tablets, request.limit_bytes))
    return reply


async def recorded_page(state: MasterState, request: pb.TableRequest) -> pb.TableReply:
    """As `table_page`, but from the catalog's records alone, as a follower has them. They name no leader of a
    tablet."""
    table_id, stored = find_table(state.catalog, request.name, request.table_id)
    after = _position(request.after)
    table = info_from_json(write(stored)) if after is None else pb.TableInfo(table_id=table_id, name=stored.name)
    reply = pb.TableReply(table=table, cluster_id=state.cluster_id)
    if request.with_tablets:
        found = (
            (f"{t.range_pos}/{t.bucket}", recorded_info(i, t)) for i, t in tablets_after(state.catalog, table_id, after)
        )
        page, reply.next = await page_of(found, request.limit_bytes, reply.ByteSize())
        reply.tablets.extend(page)
    return reply


def _table_reply(encoded: bytes) -> pb.TableReply:
    reply = pb.TableReply()
    reply.MergeFromString(encoded)
    return reply


def _framed(state: MasterState, tablet_id: str, tablet: Tablet) -> bytes:
    """A tablet as a part of an encoded reply."""
    return bytes(pb.TableReply(tablets=[tablet_info(state, tablet_id, tablet)]).SerializeToString())


def _position(after: str) -> tuple[int, int] | None:
    if not after:
        return None
    range_pos, _, bucket = after.partition("/")
    try:
        return int(range_pos), int(bucket)
    except ValueError as error:
        what = "this is no position in a list of tablets: begin again without it"
        raise Refused(Code.INVALID_ARGUMENT, what, after=after[:80]) from error


def _places(state: MasterState, page: Sequence[pb.TabletInfo], limit_bytes: int) -> Iterator[pb.ServerInfo]:
    """The addresses of the members of a page's tablets, for clients of earlier builds, which do not take them from the
    configs."""
    if limit_bytes:
        return
    for uuid in sorted({m.uuid for t in page for m in t.config.members}):
        server = state.soft.servers.get(uuid)
        if server is not None:
            yield pb.ServerInfo(uuid=uuid, addresses=[address_to_pb(a) for a in server.addresses])


async def servers_page(state: MasterState, request: pb.ListServersRequest) -> pb.ListServersReply:
    """A page of tablet servers, by uuid. The first page also has the masters, and the senders of heartbeats that do not
    count here."""
    reply = pb.ListServersReply(
        cluster_id=state.cluster_id,
        desired_changes=desired.changes(state.catalog),
        finalized_level=finalized_level(state.catalog),
    )
    if not request.after:
        reply.masters.extend(
            pb.ServerInfo(
                uuid=m.uuid,
                addresses=[address_to_pb(a) for a in m.addresses],
                alive=True,
                leaders=int(m.uuid == state.uuid),
                version=__version__,
            )
            for m in state.group.replica.active_config.members
        )
        others = [(reply.foreign, foreign_info(beat)) for beat in state.other_clusters.heard(state.mono_us)]
        others += [(reply.candidates, applicant_info(c, state.mono_us)) for c in state.admission.shown()]
        room = page_bytes(request.limit_bytes) // 2
        for kind, info in others:
            room -= info.ByteSize()
            if room < 0:
                break
            kind.append(info)
        reply.candidates_total = len(state.admission)

    if state.catalog.count(RETIRED):
        await state.refresh_views()  # so that what is not reported yet is known

    def found() -> Iterator[tuple[str, pb.ServerInfo]]:
        uuids = [u for u in state.server_uuids() if u > request.after]
        for at in range(0, len(uuids), SERVERS_AT_ONCE):
            for info in server_infos(state, uuids[at : at + SERVERS_AT_ONCE]):
                yield info.uuid, info

    page, reply.next = await page_of(found(), request.limit_bytes, reply.ByteSize())
    reply.servers.extend(page)
    return reply


async def sources_page(state: MasterState, request: pb.ListSourcesRequest) -> pb.ListSourcesReply:
    """A page of source positions of one table or of all, by their key."""
    positions = sources.source_positions(state.catalog, request.table, request.after)
    found = ((key, position_to_pb(position)) for key, position in positions)
    page, last = await page_of(found, request.limit_bytes)
    return pb.ListSourcesReply(positions=page, next=last)
