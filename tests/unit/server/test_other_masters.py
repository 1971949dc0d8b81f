"""Masters that are not in a server's options: which of them receive its heartbeats too, and which do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from nyala.replica.fs import KNOWN_MASTERS, RealDisk
from nyala.replica.server.heartbeats.other_masters import (
    former_masters,
    read_known_masters,
    unheard_of,
    write_known_masters,
)
from nyala.replica.types import Address, limits
from tests.harness.sim_disk import SimDisk

A, B, C = (Address("m.example", n) for n in (1, 2, 3))
ALIAS = Address("127.0.0.1", 1)


def test_who_is_known_by_address_or_uuid_is_not_heard_of_anew() -> None:
    """Goal: a server keeps each master once, even if it is reachable at two addresses. Method: three listed masters;
    one is known by its address, one by its uuid under another address; then no uuid is known yet; then no master
    answers."""
    listed = [("a", (A,)), ("b", (B,)), ("c", (C,))]
    assert unheard_of(listed, {ALIAS: "a", B: ""}) == {C: "c"}
    assert unheard_of(listed, {ALIAS: "", B: ""}) == {A: "a", C: "c"}, "until it answers, an alias may be anybody"
    assert unheard_of(listed, {A: "a", B: "b", C: "other"}) == {}
    assert unheard_of([("a", ()), ("b", (B, C))], {C: "b"}) == {}


def test_no_more_addresses_are_heard_of_than_the_bound() -> None:
    """Goal: the number of addresses that a server takes from masters is bounded. Method: twice as many as may be, one
    known before."""
    listed = [(f"u{n}", (Address("m.example", n + 1),)) for n in range(2 * limits.MASTER_ADDRESSES_MAX)]
    assert len(unheard_of(listed, {ALIAS: "x"})) == limits.MASTER_ADDRESSES_MAX - 1


def test_masters_that_the_leading_one_named_are_remembered() -> None:
    """MF-32. Goal: a server whose `--masters` were all replaced finds the masters at its next start, and a damaged file
    does no harm. Method: write, read; no file; lines that are no address; more lines than are allowed."""
    disk = SimDisk()
    assert read_known_masters(disk) == ()
    masters = (Address("m1.example", 7051), Address("m2.example", 7051))
    write_known_masters(disk, masters)
    assert read_known_masters(disk) == masters
    disk.replace(KNOWN_MASTERS, b"\xff\x00\nm1.example:7051\nno port\nm1.example:7051\n")
    assert read_known_masters(disk) == masters[:1]
    write_known_masters(disk, [Address("m", n) for n in range(1, 40)])
    assert len(read_known_masters(disk)) == limits.MASTER_ADDRESSES_MAX
    disk.close()


def test_heartbeats_to_a_former_master_end_once_the_leading_one_does_not_name_it() -> None:
    """MF-32. A master that a leading one has named and the next list leaves out is a former one, until a leading one
    names it again. One that no leading master has named yet is none, because the group may have been changed while it
    had no leader."""
    assert former_masters(frozenset(), [], [A]) == set()
    former = former_masters(frozenset(), [A, B], [B, C])
    assert former == {A} and former_masters(former, [B, C], [C]) == {A, B}
    assert former_masters(former, [B, C], [A, B]) == {C}


def test_file_of_masters_that_cannot_be_read_holds_up_no_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-21. Goal: a file that promises nothing ends no server. Method: a real disk on which a folder, a loop of links,
    or a file that nobody may read, has its name: no masters are known, the log says so, and where a file may be
    written, it is written anew."""
    disk, path = RealDisk(tmp_path), tmp_path / "known-masters"
    for make, undo in (
        (path.mkdir, path.rmdir),
        (lambda: path.symlink_to(path), path.unlink),
        (lambda: path.write_bytes(b"\xff\xfe\n"), path.unlink),
    ):
        make()
        assert read_known_masters(disk) == ()
        undo()
    assert [r.getMessage().partition(":")[0] for r in caplog.records] == ["the file known-masters cannot be read"] * 2
    write_known_masters(disk, [Address("m", 1)])
    assert read_known_masters(disk) == (Address("m", 1),)
