"""Records of the masters' catalog as every build wrote them: this one reads and writes the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nyala.replica.master import encode_change
from nyala.replica.master.catalog.catalog import decode_change
from nyala.replica.master.catalog.records import TYPES, Json, group_of, read, write
from nyala.replica.master.group.entries import unfit_entry
from nyala.replica.types import Entry, EntryKind, OpId
from tests.harness.catalogs import AppliedCatalog

GOLDEN = [Path(__file__).parent / "golden" / f"catalog_change_v1{kind}.bin" for kind in ("", "_level", "_maintenance")]
"""Changes that put a record of each kind, with every field that it may have; the first deletes one, too."""


def entry_of(golden: Path) -> Entry:
    return Entry(OpId(1, 1), EntryKind.CATALOG, 1 << 12, 0, golden.read_bytes(), b"", 0)


def golden_records() -> dict[str, Json]:
    return {key: record for golden in GOLDEN for key, record in decode_change(entry_of(golden))[0].items()}


def test_records_of_the_catalog_are_read_and_written_byte_for_byte() -> None:
    """Goal: masters of all builds share one catalog. Method: each golden record is read and written anew, alone and in
    the place of itself; the change has the golden bytes. There is a record of each kind."""
    assert {group_of(key) for key in golden_records()} == set(TYPES)
    for golden in GOLDEN:
        puts, deletes, request_id = decode_change(entry_of(golden))
        assert not unfit_entry(entry_of(golden))
        for before in ({}, puts):
            again = {k: write(read(k, v), before.get(k), read(k, v) if before else None) for k, v in puts.items()}
            assert encode_change(again, deletes, request_id) == golden.read_bytes()


def with_more(found: Json) -> Json:
    """The record of a later build: a field more, in each of its parts too."""
    parts = {
        k: [with_more(p) if isinstance(p, dict) else p for p in v] for k, v in found.items() if isinstance(v, list)
    }
    return {**found, **parts, **{k: with_more(v) for k, v in found.items() if isinstance(v, dict)}, "later": 1}


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_record_of_a_later_build_keeps_what_this_one_does_not_know(kind: str) -> None:
    """Goal: a master of an older build in the group loses nothing. Method: records with unknown fields at every depth
    are applied, put again as they were read, flushed and opened; they are the same, as is one of an unknown kind."""
    found = {k: with_more(v) for k, v in golden_records().items() if group_of(k) == kind}
    box = AppliedCatalog()
    box.commit(({**found, "later/x": {"any": [1]}}, [], "", None))
    box.commit(({key: read(key, record) for key, record in found.items()}, [], "", None))
    box.catalog.flush()
    assert type(box.catalog).open(box.disk).records == {**found, "later/x": {"any": [1]}}
