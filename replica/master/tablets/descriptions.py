"""The encoded descriptions of tables, for orders to create their tablets. Each is encoded once, in a separate step of
the loop."""

from __future__ import annotations

import asyncio

from nyala.replica.rpc import info_from_json
from nyala.replica.types import limits

from ..catalog.catalog import Catalog
from ..catalog.records import TABLE, TABLET, Table, Tablet, write
from ..heartbeats.soft_state import SoftState
from .order_batch import CREATIONS_BYTES_MAX, CREATIONS_MAX, around


def encoded_for_servers(table: Table) -> bytes:
    """The encoded description of a table for its servers; it takes milliseconds for 300 columns."""
    info = info_from_json(write(table))
    info.ClearField("writer_schemas")  # a server needs no schemas of records
    return bytes(info.SerializeToString())


class Descriptions:
    """Encoded descriptions of tables for their servers; those that were used last are kept, within a bound in bytes.

    Invariant: a description that is found was made of the catalog's present record. Concurrency: the loop's thread.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Table, bytes]] = {}
        """By table id, in order of their last use: the record of which it was made, and the description."""
        self._bytes = 0

    def get(self, table_id: str, table: Table) -> bytes | None:
        """The description of a table with the record `table`; None if none is kept that was made of this record."""
        known = self._kept.pop(table_id, None)
        if known is None:
            return None
        of, described = known
        if of is not table:
            self._bytes -= len(described)
            return None
        self._kept[table_id] = known
        return described

    def make(self, table_id: str, table: Table) -> bytes:
        """Encode the description of a table, and keep it. It takes milliseconds for 300 columns."""
        described = encoded_for_servers(table)
        _, before = self._kept.pop(table_id, (table, b""))
        self._bytes -= len(before)
        self._kept[table_id] = table, described
        self._bytes += len(described)
        while self._bytes > limits.DESCRIPTIONS_BYTES_MAX:
            _, oldest = self._kept.pop(next(iter(self._kept)))
            self._bytes -= len(oldest)
        return described

    async def make_for(self, catalog: Catalog, soft: SoftState, server_uuid: str) -> None:
        """Make the descriptions that the next orders to the server need, one in each step of the loop.

        At most DESCRIPTIONS_PER_HEARTBEAT_MAX, and as many as fit in one reply: the next heartbeat brings the others.
        """
        made = size = 0
        for _, tablet, table in creations(catalog, soft, server_uuid):
            if size > CREATIONS_BYTES_MAX:
                return
            described = self.get(tablet.table_id, table)
            if described is None:
                if made >= limits.DESCRIPTIONS_PER_HEARTBEAT_MAX:
                    return
                made += 1
                await asyncio.sleep(0)  # the steps before and after this one may be long, too
                described = self.get(tablet.table_id, table) or self.make(tablet.table_id, table)
                await asyncio.sleep(0)
            size += len(described)


def creations(catalog: Catalog, soft: SoftState, server_uuid: str) -> list[tuple[str, Tablet, Table]]:
    """The tablets that the server should create next, as many as one reply may order: (tablet id, tablet, table) of
    tablets that never had a leader, have the server in their first config, and of which it reports no replica."""
    server = soft.servers.get(server_uuid)
    there, after = (server.replicas, server.creations_after) if server is not None else ({}, "")
    found: list[tuple[str, Tablet, Table]] = []
    for tablet_id in around(catalog.unformed(server_uuid), after):
        if len(found) == CREATIONS_MAX:
            break
        tablet = catalog.get(TABLET, tablet_id) if tablet_id not in there else None
        table = catalog.get(TABLE, tablet.table_id) if tablet is not None else None
        if tablet is not None and table is not None:
            found.append((tablet_id, tablet, table))
    return found
