"""Look-ups of tables: they cost what has changed, and clients are told what is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nyala.replica.master.catalog.records import DESIRED_CHANGE, TABLE, TABLET
from nyala.replica.master.catalog.tables import table_record
from nyala.replica.policy import ChangeKind, DesiredChange
from nyala.replica.types import OpId, limits
from tests.harness.catalogs import new_table
from tests.harness.kept_worlds import DEAD_US, REPLACE_US, World
from tests.unit.master.test_master_kept_inputs import beat_of, passes, reported, visited


def encoded(world: World) -> int:
    """The tablets that one look-up encodes; it answers as one without kept pages."""
    before = world.look_ups.encoded
    assert world.page("1") == world.told("1")
    return world.look_ups.encoded - before


@pytest.mark.deep
@pytest.mark.parametrize(("servers", "tablets"), [(6, 60), (20, 1000)])
def test_look_up_encodes_what_changed_and_not_the_table(servers: int, tablets: int) -> None:
    """Goal: a look-up of a table of 1,000 tablets costs no walk with conversions. Method: the encoded tablets are
    counted, at two sizes: all at first; none while heartbeats repeat what is known; one after a report, a desired
    change and a record; those of a server that falls silent, once a look has noticed it; all for another factor."""
    world, reports = reported(servers, tablets)
    uuid, told = next(iter(reports.items()))
    assert encoded(world) == tablets and encoded(world) == 0
    passes(world, 1_000_000)
    assert not visited(world) and encoded(world) == 0
    beat_of(world, uuid, [replace(told[0], term=2)])
    assert encoded(world) == 1, "at once, before the next look"
    visited(world)
    assert encoded(world) == 1 and encoded(world) == 0
    wish = DesiredChange(kind=ChangeKind.TRANSFER, wish_id="w", to_uuid=uuid)
    world.put({DESIRED_CHANGE + told[1].tablet_id: wish})
    assert encoded(world) == 1
    record = world.catalog.get(TABLET, told[2].tablet_id)
    assert record is not None
    visited(world)
    encoded(world)
    world.put({TABLET + told[2].tablet_id: replace(record, wishes=3)})
    visited(world)
    assert encoded(world) == 1 and encoded(world) == 0
    passes(world, DEAD_US + 1_000_000, uuid)
    visited(world)
    assert encoded(world) == len(told) and encoded(world) == 0
    world.put({TABLE + "1": replace(table_record(new_table()), replication_factor=5)})
    assert encoded(world) == tablets, "at once"
    visited(world)
    assert encoded(world) == tablets and encoded(world) == 0


def test_page_is_kept_only_while_the_master_looks() -> None:
    """Goal: a master whose tick stands still tells no old news. Method: time passes without a look: everything is
    encoded at each look-up, and the silent servers are seen."""
    world, _ = reported(6, 60)
    assert encoded(world) == 60 and encoded(world) == 0
    world.now_us += DEAD_US + 1
    assert encoded(world) == 60 and encoded(world) == 60
    assert not any(info.running for info in world.page("1"))


def test_what_a_look_has_not_seen_is_not_kept() -> None:
    """Goal: a state of a server that comes and goes between two looks is not told afterwards. Method: a look-up while a
    server is just too late, which sends a heartbeat before the next look."""
    world, reports = reported(6, 60)
    uuid, told = next(iter(reports.items()))
    for other in reports:
        world.now_us += 1
        if other != uuid:
            beat_of(world, other, [])
    world.now_us = world.soft.servers[uuid].counted_us + DEAD_US
    for other in reports:
        if other != uuid:
            beat_of(world, other, [])
    assert not visited(world)
    world.now_us += 1
    led = {r.tablet_id for r in told if r.role == "LEADER"}
    assert {t.tablet_id for t in world.page("1") if not t.running} == led
    beat_of(world, uuid, [])
    assert not visited(world)
    assert all(t.running for t in world.page("1"))
    assert encoded(world) == 0


def test_unproven_config_is_told_with_its_age() -> None:
    """Goal: how long servers report a config that the masters cannot prove is no kept number. Method: a member reports
    a later config than the catalog's; two look-ups a second apart."""
    world, reports = reported(6, 60)
    uuid, told = next(iter(reports.items()))
    assert told[0].config is not None
    later = replace(told[0].config, opid=OpId(1, 9))
    beat_of(world, uuid, [replace(told[0], config=later, config_opid=later.opid, config_wire=b"later")])
    for _ in range(20):
        passes(world, 1_000_000)
        visited(world)
    assert encoded(world) > 0
    passes(world, 1_000_000)
    visited(world)
    assert encoded(world) == 1
    ages = [info.unproven.since_us_ago for info in world.page("1") if info.HasField("unproven")]
    assert ages == [21_000_000]


def test_kept_pages_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: look-ups of all tables do not fill a master's memory. Method: room for one page and no more: the one that
    was asked for last stays."""
    world, _ = reported(6, 60)
    encoded(world)
    size = world.look_ups._bytes
    assert size > 0
    monkeypatch.setattr(limits, "LOOK_UPS_BYTES_MAX", size + size // 2)
    world.look_ups.keep(("another", "", 1), 0, [], b"x" * (size // 2))
    assert encoded(world) == 60, "it was dropped"
    assert world.look_ups._bytes == size and encoded(world) == 0
    world.soft.reset(world.now_us)
    assert REPLACE_US and encoded(world) == 60 and encoded(world) == 60, "nothing is known yet"
