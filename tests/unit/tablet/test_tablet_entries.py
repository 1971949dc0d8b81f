"""Entries that a data tablet can apply, told by their bytes alone: what a follower asks before it logs them."""

from __future__ import annotations

import pytest

from nyala.replica.tablet import unfit_entry
from nyala.replica.tablet.entries import schema_of_entry, source_of_entry
from nyala.replica.types import Corruption, Entry, EntryKind, OpId, limits
from tests.harness.tablet_twin import INT_SCHEMA, SOURCE, ledger_entry, noop_entry, schema_entry, write_entry

WRITE = write_entry(1, INT_SCHEMA, ["k", "r"], [{"op": 1, "offset": 0, "k": 1, "r": 1}])
SCHEMA, LEDGER, NOOP = schema_entry(2, INT_SCHEMA), ledger_entry(3, SOURCE, 4, 5), noop_entry(6)


def test_entry_of_a_change_says_what_it_changes() -> None:
    """Goal: what was logged is what is applied. Method: a schema, and a reset of a source, read back."""
    assert schema_of_entry(SCHEMA) == INT_SCHEMA
    assert source_of_entry(LEDGER) == (SOURCE, 4, 5)


@pytest.mark.parametrize("kind", EntryKind, ids=lambda kind: kind.name)
def test_entry_that_a_tablet_cannot_apply_is_told_before_it_is_logged(kind: EntryKind) -> None:
    """Goal: no replica acknowledges an entry that fails the others, and none refuses one that they can apply. Method:
    of each kind, an entry as leaders write it, one whose meta is torn, and one with rows that it should not have."""
    good = {EntryKind.WRITE: WRITE, EntryKind.SCHEMA: SCHEMA, EntryKind.LEDGER: LEDGER}.get(
        kind, NOOP._replace(kind=kind)
    )
    if kind is EntryKind.CATALOG:
        assert unfit_entry(good) == "a data tablet has no catalog"
        return
    assert unfit_entry(good) == ""
    if good.meta:
        assert "cannot be decoded" in unfit_entry(good._replace(meta=good.meta[:-1]))
    if kind is not EntryKind.WRITE:
        assert unfit_entry(good._replace(payload=b"x")) == "an entry without rows has a payload"


def test_write_is_fit_up_to_the_bound_of_a_batch() -> None:
    """Goal: an entry that every leader may write is logged, and no longer one. Method: rows of the bound's length, and
    of a byte more; what is wrong says both numbers."""
    most = limits.BATCH_SIZE_BYTES_MAX
    assert unfit_entry(WRITE._replace(payload=bytes(most))) == ""
    assert unfit_entry(WRITE._replace(payload=bytes(most + 1))) == f"{most + 1} bytes of rows, more than {most}"


@pytest.mark.parametrize("read", [schema_of_entry, source_of_entry])
@pytest.mark.parametrize("meta", [b"", b"\xff" * 9, WRITE.meta], ids=["none", "nonsense", "another's"])
def test_entry_that_says_nothing_fails_the_replica_that_applies_it(read: object, meta: bytes) -> None:
    """Goal: damage ends one replica, with the entry's place, and no process. Method: metas that are none."""
    entry = Entry(OpId(7, 8), EntryKind.SCHEMA, 0, 0, meta, b"", 0)
    with pytest.raises(Corruption, match=r"cannot be decoded.*7\.8"):
        read(entry)  # type: ignore[operator]
