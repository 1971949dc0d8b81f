"""A catalog without a log: changes are applied at once, as a group of one would after their commit."""

from __future__ import annotations

from typing import Any

from nyala.replica.master import Catalog
from nyala.replica.master.catalog.records import TABLET
from nyala.replica.master.requests.conversions import checked_table
from nyala.replica.rows import TableDescription
from nyala.replica.rpc import pb
from nyala.replica.types import Entry, EntryKind, OpId, RaftConfig
from tests.harness.sim_disk import SimDisk


class AppliedCatalog:
    """A catalog on a simulated disk, with the next index to apply."""

    def __init__(self, disk: SimDisk | None = None) -> None:
        self.disk = disk or SimDisk()
        self.catalog = Catalog.open(self.disk)
        self.index = self.catalog.applied_opid.index

    def entry(self, puts: Any, deletes: Any = (), request_id: str = "") -> Entry:
        """Return the next CATALOG entry."""
        self.index += 1
        meta = self.catalog.change(puts, deletes, request_id)
        return Entry(OpId(1, self.index), EntryKind.CATALOG, self.index << 12, 0, meta, b"", 0)

    def commit(self, change: Any) -> Any:
        """Apply (puts, deletes, request id, result) and return the result."""
        puts, deletes, request_id, result = change
        if puts or deletes:
            self.catalog.apply([self.entry(puts, deletes, request_id)])
        return result

    def known(self, tablet_id: str) -> RaftConfig | None:
        """Return the last committed config that the catalog knows of a tablet."""
        tablet = self.catalog.get(TABLET, tablet_id)
        return tablet.known_config if tablet is not None else None


def table_info(name: str = "flights", *, buckets: int = 2, rf: int = 3) -> pb.TableInfo:
    """Return a small table: key `id`, one value."""
    return pb.TableInfo(
        name=name,
        schema=pb.TableSchema(
            columns=[
                pb.Column(name="id", type="int64", nullable=False),
                pb.Column(name="v", type="string", nullable=True),
            ],
            key=["id"],
        ),
        partition=pb.PartitionSpec(hash_columns=["id"], buckets=buckets),
        replication_factor=rf,
    )


def new_table(name: str = "flights", *, buckets: int = 2, rf: int = 3) -> TableDescription:
    """Return the same table, as the masters read it before they create it."""
    return checked_table(table_info(name, buckets=buckets, rf=rf))
