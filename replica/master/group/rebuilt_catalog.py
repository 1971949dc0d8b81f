"""Writes the directory of a single master that begins with a given catalog, after all masters were lost."""

from __future__ import annotations

from collections.abc import Mapping

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.tablet import Superblock
from nyala.replica.types import (
    Code,
    Disk,
    Entry,
    EntryKind,
    Member,
    OpId,
    RaftConfig,
    Refused,
    hybrid_from_us,
    next_generation,
)

from ..catalog.capacity import check_room
from ..catalog.catalog import CATALOG_ID, Catalog
from ..catalog.records import READ_FLOOR, ReadFloor, Record
from .entries import unfit_entry

MINUTE_US = 60 * 1_000_000


def first_term(decision_term: int, now_us: int) -> int:
    """Return the term of a rebuilt catalog, which is above each term in which the lost masters may have decided.

    It begins a generation of terms, because `decision_term` is only the newest term that a tablet knows: the lost
    masters may have been elected, and may have decided, in later ones. The wall clock's minutes are added. So if a
    catalog is rebuilt twice before any decision was carried out, the second one has the higher term.
    """
    return next_generation(decision_term) + now_us // MINUTE_US


def catalog_entry(disk: Disk, records: Mapping[str, Record], term: int, now_us: int) -> Entry:
    """Return the entry that puts these records into an empty catalog; writes nothing.

    Refused: NO_SPACE if these are more records than masters hold, INVALID_ARGUMENT if this build could not read one.
    """
    catalog = _empty(disk)
    # The times of Spark queries in the lost catalog are forgotten. Each load() that it knew was made in a lower term,
    # so this floor refuses it.
    records = {**records, READ_FLOOR: ReadFloor(term=term, index=0)}
    check_room(catalog, records)
    entry = Entry(OpId(term, 1), EntryKind.CATALOG, hybrid_from_us(now_us), 0, catalog.change(records, [], ""), b"", 0)
    if why := unfit_entry(entry):
        what = "a catalog cannot hold what the tablet servers have; nothing was written"
        raise Refused(Code.INVALID_ARGUMENT, what, why=why)
    return entry


def write_catalog(disk: Disk, own: Member, entry: Entry) -> None:
    """Write the catalog of a group of one master, durably, into a formatted directory.

    The superblock is written last. Until it is there, no master starts on a directory that names a cluster.
    """
    catalog = _empty(disk)
    catalog.apply([entry])
    ConsensusMeta.create(disk, CATALOG_ID, own.uuid, RaftConfig(OpId(0, 0), (own,)), entry.opid.term)
    catalog.flush()


def _empty(disk: Disk) -> Catalog:
    return Catalog(disk, Superblock(tablet_id=CATALOG_ID, table_id=CATALOG_ID, table_name="catalog"))
