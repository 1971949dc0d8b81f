"""The effect of each record of the catalog when a master opens it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from nyala.replica.master import Catalog
from nyala.replica.master.catalog.records import TABLE, TABLET, Record, Tablet
from nyala.replica.master.catalog.tables import table_record
from nyala.replica.types import Address, Member, OpId, RaftConfig
from tests.harness.catalogs import AppliedCatalog, new_table
from tests.harness.sim_disk import SimDisk

TABLES, BUCKETS = 10, 200
CALLS_PER_RECORD_MAX = {True: 80, False: 120}
"""From the superblock, and from the log, whose entries are sized, and compared for the history, too."""


class Work:
    """Counts of what is done meanwhile: calls of functions, and collections of garbage."""

    def __init__(self) -> None:
        self.calls = 0
        self.collections = 0


@contextmanager
def counted() -> Iterator[Work]:
    """On this thread."""
    work = Work()

    def call(frame: Any, event: str, arg: Any) -> None:
        work.calls += event in ("call", "c_call")

    def collected(phase: str, info: dict[str, int]) -> None:
        work.collections += phase == "start"

    gc.callbacks.append(collected)
    sys.setprofile(call)
    try:
        yield work
    finally:
        sys.setprofile(None)
        gc.callbacks.remove(collected)


def changes() -> list[dict[str, Record]]:
    """One for each table: its record, and its tablets on three of a hundred servers."""
    servers = [Member(f"{n:032x}", (Address(f"server-{n}.example", 7050),)) for n in range(100)]
    found = []
    for n in range(TABLES):
        table_id = f"{n:032x}"
        puts: dict[str, Record] = {TABLE + table_id: table_record(new_table(f"t{n}"))}
        for bucket in range(BUCKETS):
            members = tuple(servers[(n + bucket + i) % 100] for i in range(3))
            puts[f"{TABLET}{n * BUCKETS + bucket:032x}"] = Tablet(
                table_id=table_id,
                bucket=bucket,
                range_pos=0,
                members=members,
                formed=True,
                config=RaftConfig(OpId(3, 17), members, (1, bucket)),
            )
        found.append(puts)
    return found


@pytest.mark.a_third
@pytest.mark.parametrize("flushed", [True, False], ids=["from the superblock", "from the log"])
def test_opening_a_catalog_costs_little_for_each_record(flushed: bool) -> None:
    """IN-80. Goal: a master of tens of thousands of tablets is back within seconds. Method: 2,000 tablets are read from
    the superblock, or applied again from the log: few calls of functions for each record, and one collection of garbage
    after the superblock or after each entry, since a collection walks what is there. Collections go on afterwards. The
    members that many tablets share are one object."""
    box = AppliedCatalog()
    entries = [box.entry(puts) for puts in changes()]
    box.catalog.apply(entries)
    box.catalog.flush()
    disk = box.disk if flushed else SimDisk()
    catalog = Catalog.open(disk) if not flushed else None
    with counted() as work:
        if catalog is None:
            catalog = Catalog.open(disk)
        else:
            catalog.apply(entries)
    assert catalog.records == box.catalog.records
    assert work.collections <= (1 if flushed else len(entries)) and gc.isenabled()
    assert work.calls <= CALLS_PER_RECORD_MAX[flushed] * len(catalog.records), work.calls / len(catalog.records)
    members = {id(m) for _, tablet in catalog.items(TABLET) for m in (*tablet.members, *tablet.known_config.members)}
    assert len(members) <= 100
