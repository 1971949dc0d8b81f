"""Deletions at real servers while clients, a change and a copy use the replica."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.rpc import pb
from nyala.replica.types import Code, DataState, new_uuid
from tests.harness.cluster import STEADY, LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import TABLET, copies, create, flush, lead, start_copy, write
from tests.harness.rows import batch, read_rows, write_request

pytestmark = [pytest.mark.process, pytest.mark.deep]

ROWS = 6000
COPY_RATE = "200000"
"""Bytes per second that the leader sends: a copy of this replica takes half a minute, unless it is ended before."""


def open_files(server: ServerProcess) -> list[str]:
    """Return the files of the tablet that the process has open or mapped."""
    assert server.process is not None
    process = Path(f"/proc/{server.process.pid}")
    names = (process / "maps").read_text().splitlines()
    for handle in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            names.append(os.readlink(handle))
    return [name for name in names if TABLET in name]


def delete(server: ServerProcess, **fields: Any) -> Any:
    request = pb.DeleteTabletRequest(dest_uuid=server.uuid, tablet_id=TABLET, **fields)
    return server.tablets.DeleteTablet(request, timeout=30).error


def in_the_middle(cluster: LocalCluster, target: ServerProcess) -> bool:
    return any(j.phase == "COPY.4" and 0 < j.bytes_done < j.bytes_total for j in copies(target))


def test_leaders_replica_is_deleted_while_clients_a_change_and_a_copy_are_at_work() -> None:
    """Scenario 80 (D-25). Goal: a deletion ends whatever is under way, and so does all of that. Method: a leader whose
    only other voter is stopped has a write and a config change in its log that cannot be committed, a reader that has
    taken one chunk, and a copy into a third server in its middle; a late deletion at the copy's target is refused, and
    the one at the leader ends. Write and change are told that nobody knows their outcome, the reader gets every row,
    from files that nobody has open later, the copy is refused by name and ends as a tombstone."""
    with local_cluster(2, module=STEADY) as cluster, ThreadPoolExecutor(2) as pool:
        other, target = cluster.servers
        leader = cluster.add_server("--copy-rate-bytes-per-s", COPY_RATE)
        create(cluster, [leader, other])
        lead(cluster, leader)
        for first in range(0, ROWS, 1000):
            write(cluster, first, 1000, size=1000)
            if first == ROWS // 2:
                flush(leader)
        flush(leader)
        write(cluster, ROWS, 1)
        lead(cluster, leader)
        term = cluster.status(leader, TABLET).term
        later = pb.OpId(term=term, index=1)
        assert not start_copy(leader, target, term, DataState.DOES_NOT_EXIST, config=later).error.code
        wait_until(lambda: in_the_middle(cluster, target), "a copy is in its middle")
        request = pb.ScanRequest(dest_uuid=leader.uuid, tablet_id=TABLET, table_id="t1", all_columns=True)
        reader = leader.tablets.Scan(request, timeout=60)
        chunks = [next(reader), next(reader)]
        assert 0 < chunks[1].rows < ROWS

        other.signal(signal.SIGSTOP)  # for good
        late = write_request(leader.uuid, TABLET, batch([-1], ["late"]))
        silent = pb.Member(uuid=new_uuid(), addresses=[pb.Address(host="127.0.0.1", port=1)], holds_data=True)
        edit = pb.ChangeConfigRequest(
            dest_uuid=leader.uuid, tablet_id=TABLET, edits=[pb.ConfigEdit(kind="add", member=silent)]
        )
        written = pool.submit(leader.tablets.Write, late, timeout=60)
        changed = pool.submit(leader.tablets.ChangeConfig, edit, timeout=60)

        def both_logged() -> bool:
            status = cluster.status(leader, TABLET)
            return bool(status.last_logged.index == status.commit_index + 2 and status.pending_config.members)

        wait_until(both_logged, "write and change are in the log")
        assert in_the_middle(cluster, target), "the copy is not over"
        assert delete(target, has_cas=True, committed_config_id=pb.OpId()).code == Code.CAS_FAILED
        last = cluster.status(leader, TABLET).last_logged
        error = delete(leader)
        assert not error.code, error
        status = cluster.status(leader, TABLET)
        assert (status.data_state, status.last_logged) == (DataState.DELETED, last)
        for answer in (written.result(60), changed.result(60)):
            assert (answer.error.code, answer.error.outcome_unknown) == (Code.NOT_READY, True), answer
        assert open_files(leader), "the reader needs them"
        rows, _ = read_rows([*chunks, *reader])
        assert len(rows) == ROWS + 1
        (job,) = wait_until(lambda: [j for j in copies(target) if j.phase == "FAILED"], "the copy has failed")
        assert Code.EXPIRED.name in job.error
        tombstone = lambda: (s := cluster.status(target, TABLET)).data_state == DataState.DELETED and s  # noqa: E731
        assert wait_until(tombstone, "what failed is a tombstone").last_logged.index == 0
        assert not list((target.root / "data").iterdir()) and not (target.root / "wals" / TABLET).exists()
        wait_until(lambda: not open_files(leader) and not open_files(target), "no file is open")
        assert not copies(leader)
        assert not delete(target).code and not delete(leader).code, "of tombstones, again"
