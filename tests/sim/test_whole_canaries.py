"""Each verifier of whole replicas receives one contradiction by hand: one that stops comparing turns these red."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from nyala.replica.raft import AppendEntries
from nyala.replica.types import Entry, EntryKind, OpId
from tests.harness import sim_leaks
from tests.harness.sim_cluster import TABLET, SimCluster
from tests.harness.sim_disk import SimDisk
from tests.harness.sim_start import started
from tests.harness.sim_tablet_workload import TabletWorkload
from tests.harness.sim_verify import Verifiers
from tests.harness.sim_workload import Swarm
from tests.harness.sim_world import Faults


def entry(term: int, index: int) -> Entry:
    return Entry(OpId(term, index), EntryKind.WRITE, index, 1, b"", b"x", 0)


def append(sender: str, term: int) -> AppendEntries:
    return AppendEntries(to_uuid="c", from_uuid=sender, term=term, prev=OpId(0, 0), entries=(), commit_index=0, round=1)


def test_v1_sees_another_entry_on_disk_where_one_is_committed() -> None:
    """Goal: V1 reads logs. Method: a log that holds 3.1 although 2.1 was applied."""
    verify = Verifiers()
    verify.applied("a", entry(2, 1), OpId(2, 1))
    with pytest.raises(AssertionError, match=r"where 2\.1 is committed"):
        verify.log_holds("b", [entry(3, 1)], 1)


def test_v2_sees_two_senders_of_appends_in_one_term() -> None:
    """Goal: V2 reads the traffic. Method: two senders of one term; and a sender that names another leader."""
    verify = Verifiers()
    verify.sent("a", "c", append("a", 1))
    with pytest.raises(AssertionError, match="both append in term 1"):
        verify.sent("b", "c", append("b", 1))
    with pytest.raises(AssertionError, match="both append in term 2"):
        verify.sent("b", "c", append("a", 2))


def test_v3_sees_an_entry_applied_out_of_turn() -> None:
    """Goal: V3 compares. Method: 2 is skipped."""
    verify = Verifiers()
    verify.applied("a", entry(1, 1), OpId(1, 9))
    with pytest.raises(AssertionError, match="applied 3 after 1"):
        verify.applied("a", entry(1, 3), OpId(1, 9))


def test_v7_sees_a_replica_that_comes_back_with_less() -> None:
    """Goal: V7 compares at restarts. Method: a log that ends below what was applied."""
    verify = Verifiers()
    verify.applied("a", entry(1, 1), OpId(1, 1))
    verify.log_found("a", OpId(1, 1), OpId(0, 0))
    with pytest.raises(AssertionError, match="had applied 1, and comes back with 0"):
        verify.log_found("a", OpId(0, 0), OpId(0, 0))


def test_tombstone_that_keeps_less_than_it_was_told_is_seen() -> None:
    """Goal: what a deletion keeps is checked. Method: a tombstone with an older OpId, at once and after a restart; a
    sound one; and one after a copy began a new log."""
    verify = Verifiers()
    verify.tombstone("a", OpId(2, 5))
    verify.tombstone("a", OpId(2, 5))
    with pytest.raises(AssertionError, match=r"keeps 0\.0, it had to keep 2\.5"):
        verify.tombstone("a", OpId(0, 0))
    verify.reopened("a", SimpleNamespace(term=2, voted_for=None), SimpleNamespace(applied_opid=OpId(2, 5)))  # type: ignore[arg-type]
    verify.tombstone("a", OpId(2, 4))


def table(*rows: tuple[int, int | None]) -> Any:
    """Return what a scan of these (key, before) yields."""
    columns = {"k": [k for k, _ in rows], "before": [b for _, b in rows], "v": [0 for _ in rows]}
    return SimpleNamespace(tablet=SimpleNamespace(scan=lambda **_: [pa.RecordBatch.from_pydict(columns)]))


def test_v5_sees_rows_that_are_missing_doubled_or_linked_twice() -> None:
    """Goal: V5 checks every link. Method: a dangling one, a double one, a double row; and a sound list."""
    workload = TabletWorkload(SimCluster(1), Swarm(Faults()))
    workload.linked(table((1, None), (2, 1), (3, 2)), None)
    for rows, said in ((((1, None), (3, 2)), "not there"), (((1, None), (2, 1), (3, 1)), "linked twice")):
        with pytest.raises(AssertionError, match=said):
            workload.linked(table(*rows), None)
    with pytest.raises(AssertionError, match="is there twice"):
        workload.linked(table((1, None), (1, None)), None)


def test_v8_sees_what_a_deletion_or_a_history_leaves_behind() -> None:
    """Goal: V8 checks handles, files, anchors and holds. Method: a deletion that leaves a file open, or an orphaned
    block; a server at rest with an anchor, and then with a held segment; and sound ones."""
    disk = SimDisk()
    for folder in ("wals", "wals/t", "data"):
        disk.mkdir(folder)
    sim_leaks.deleted("a", disk, "t")
    held = disk.open("data/t-000001.arrow", create=True)
    with pytest.raises(AssertionError, match="V8: a still has open files"):
        sim_leaks.deleted("a", disk, "t")
    held.close()
    with pytest.raises(AssertionError, match="V8: a still has orphaned blocks"):
        sim_leaks.deleted("a", disk, "t")
    cluster = SimCluster(1)
    leader = started(cluster)
    node = cluster.nodes[leader.uuid]
    sim_leaks.at_rest(node, TABLET)
    anchor = leader.anchor(1)
    with pytest.raises(AssertionError, match="V8: a still has anchors"):
        sim_leaks.at_rest(node, TABLET)
    anchor.release()
    sim_leaks.at_rest(node, TABLET)
    assert node.log is not None
    node.log._retention.hold([1])
    with pytest.raises(AssertionError, match="V8: a still has held segments"):
        sim_leaks.at_rest(node, TABLET)
