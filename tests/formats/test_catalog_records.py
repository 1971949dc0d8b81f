"""Records of the masters' catalog as every build wrote them: this one reads and writes the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nyala.replica.master import encode_change
from nyala.replica.master.catalog.catalog import decode_change
from nyala.replica.master.catalog.records import TYPES, Json, group_of, read, write
from nyala.replica.master.group.entries import unfit_entry
from nyala.replica.types import Entry, EntryKind, OpId
from tests.harness.catalogs import AppliedCatalog
from tests.harness.former_build import former_build

KINDS = ("", "_level", "_maintenance", "_read_times")
GOLDEN = [Path(__file__).parent / "golden" / f"catalog_change_v1{kind}.bin" for kind in KINDS]
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


def test_records_of_read_times_are_kept_by_the_former_build(tmp_path: Path) -> None:
    """Goal: a master of 0.2.0, which knows no read times, has them in its log and catalog like one of this build, so no
    leader after it can agree on a second time. Method: its check of entries and its catalog get the golden change, are
    flushed and opened again, and then the deletion of one of the records."""
    golden = GOLDEN[KINDS.index("_read_times")]
    puts, _, _ = decode_change(entry_of(golden))
    code = (
        "import json, sys; from pathlib import Path; from nyala.replica.fs import RealDisk;"
        "from nyala.replica.master import Catalog, encode_change;"
        "from nyala.replica.master.group.entries import unfit_entry;"
        "from nyala.replica.types import Entry, EntryKind, OpId, __version__;"
        "entry = lambda index, meta: Entry(OpId(1, index), EntryKind.CATALOG, index << 12, 0, meta, b'', 0);"
        "put = entry(1, bytes.fromhex(sys.argv[2])); disk = RealDisk(Path(sys.argv[1])); catalog = Catalog.open(disk);"
        "catalog.apply([put]); catalog.flush(); catalog = Catalog.open(disk); kept = catalog.records;"
        "catalog.apply([entry(2, encode_change({}, ['read-floor']))]);"
        "print(json.dumps([__version__, unfit_entry(put), kept, sorted(catalog.records)]))"
    )
    (tmp_path / "tablet-meta").mkdir()
    command = [sys.executable, "-c", code, str(tmp_path), golden.read_bytes().hex()]
    environment = {**os.environ, **former_build()}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == ["0.2.0", "", puts, sorted(puts.keys() - {"read-floor"})]


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
