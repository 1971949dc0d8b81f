"""The crash matrix in tablet servers: real processes die at each crash point of their own copies and deletions."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import RealDisk
from nyala.replica.rpc import pb
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import list_quarantine, named_blocks
from nyala.replica.tools import check_directory
from nyala.replica.types import CRASH_EXIT_CODE, Code, DataState
from nyala.replica.types.crash_points import CRASH_VARIABLE
from tests.harness.cluster import STEADY, LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.crash_matrix import BLANK, COPY, DELETION, READY, SERVER_CELLS, TOMBSTONE, Cell, Promises
from tests.harness.one_tablet import change, collect, copies, create, flush, lead, rows_of, start_copy, write

pytestmark = [pytest.mark.process, pytest.mark.deep]
NO_RETAINED_LOG = ("--log-retain-entries", "0", "--log-retain-bytes", "0")


@dataclass
class Plot:
    """A tablet of its own for one cell, led by the source; what the target had of it, and what the source has.

    Times are hybrid, rows are (checksum, number) at them: of the target before the work, of the source's blocks after.
    """

    cell: Cell
    tablet_id: str
    own_last: tuple[int, int] = (0, 0)
    own_promises: Promises | None = None
    own_time: int = 0
    own_rows: tuple[int, int] | None = None
    source_term: int = 0
    source_time: int = 0
    source_rows: tuple[int, int] | None = None
    finished: tuple[int, int] | None = None
    """Which file the superblock of a tombstone was when the work was done: no later start writes it again."""

    def passes(self, point: str) -> int:
        """Return how often the server passes the point after the cell's last death: in its start, and in the second
        try."""
        deletion, copy = (tuple(f"{work}.{n}" for n in range(1, 7)) for work in ("delete", "copy"))
        retry: tuple[str, ...] = deletion if self.cell.ends is DataState.READY and not self.cell.source_wins else ()
        if self.cell.work == COPY and not self.cell.source_wins:
            retry += copy
        return (point in self.cell.rolled_forward) + (point in retry)


class Target:
    """A server that dies in its cells, one after the other, each on its own tablet; and one tablet more, untouched.

    A copy is asked for as the source would: it leads, but this server is no member, so nobody asks before the test has
    looked at what a start made of a death.
    """

    def __init__(self, cluster: LocalCluster, source: ServerProcess, server: ServerProcess, cells: Sequence[Cell]):
        self.cluster, self.source, self.server = cluster, source, server
        self.over = threading.Event()
        """Set when another target has found what is wrong, so that this one dies no more."""
        self.disk = RealDisk(server.root)
        self.neighbour = f"{server.name}-neighbour"
        self.plots = [Plot(cell, f"{server.name}-{number}") for number, cell in enumerate(cells)]

    # ------------------------------------------------------------------------------------------------------- before

    def make_neighbour(self) -> None:
        """Make a tablet of this server alone."""
        create(self.cluster, [self.server], tablet_id=self.neighbour)
        self.neighbour_time = write(self.cluster, 0, 10, tablet_id=self.neighbour)
        flush(self.server, tablet_id=self.neighbour)
        self.neighbour_rows = rows_of(self.server, self.neighbour_time, tablet_id=self.neighbour)

    def has_neighbour(self) -> bool:
        """Return whether the neighbour has its rows. Right after a start it has no leader yet, and answers this all the
        same."""
        return rows_of(self.server, self.neighbour_time, tablet_id=self.neighbour) == self.neighbour_rows is not None

    def make(self, plot: Plot) -> None:
        """Make the tablet as it is before the work: nothing here, or a replica that voted for the source and has half
        of the rows, or what its deletion left. The source is the only member."""
        here, tablet_id = plot.cell.before != BLANK, plot.tablet_id
        create(self.cluster, [self.source, self.server] if here else [self.source], tablet_id=tablet_id)
        lead(self.cluster, self.source, tablet_id)  # by this server's vote if its replica is here
        plot.own_time = write(self.cluster, 0, 100, tablet_id=tablet_id)
        plot.own_rows = rows_of(self.source, plot.own_time, tablet_id=tablet_id)
        if here:
            lead(self.cluster, self.source, tablet_id)  # no other server may have taken over meanwhile
            change(self.cluster, "change", self.server.member(votes=False), tablet_id=tablet_id)
            wait_until(lambda: not self.is_voter(plot), "it knows that it votes no more")
            change(self.cluster, "remove", self.server.member(), tablet_id=tablet_id)
            wait_until(lambda: rows_of(self.server, plot.own_time, tablet_id=tablet_id) == plot.own_rows, "it has rows")
            last = self.status(plot).last_logged
            plot.own_last = (last.term, last.index)
            plot.own_promises = self.promises(plot)
            assert plot.own_promises == (last.term, self.source.uuid), plot
        if plot.cell.before == TOMBSTONE:
            self.delete(plot)
        plot.source_time = write(self.cluster, 50, 100, size=50, tablet_id=tablet_id)
        flush(self.source, tablet_id=tablet_id)
        write(self.cluster, 150, 10, tablet_id=tablet_id)
        plot.source_rows = rows_of(self.source, plot.source_time, tablet_id=tablet_id)

    def outrun(self, plot: Plot) -> None:
        """Remove the source's log up to its last start: only then an intact replica needs the copy, and is replaced."""
        write(self.cluster, 150, 10, tablet_id=plot.tablet_id)
        collect(self.source, tablet_id=plot.tablet_id)

    # ------------------------------------------------------------------------------------------------ what is here

    def status(self, plot: Plot) -> Any:
        return self.cluster.status(self.server, plot.tablet_id)

    def is_voter(self, plot: Plot) -> bool:
        members = self.status(plot).committed_config.members
        return any(m.uuid == self.server.uuid and m.votes for m in members)

    def promises(self, plot: Plot) -> Promises | None:
        if not ConsensusMeta.exists(self.disk, plot.tablet_id):
            return None
        meta = ConsensusMeta.load(self.disk, plot.tablet_id)
        assert meta.uuid == self.server.uuid
        return (meta.term, meta.voted_for)

    def superblock_file(self, plot: Plot) -> tuple[int, int]:
        """Return an identity of the superblock's file; a file that is replaced has another one."""
        found = (self.server.root / "tablet-meta" / plot.tablet_id).stat()
        return (found.st_ino, found.st_mtime_ns)

    def has_rows(self, plot: Plot, at: int, rows: tuple[int, int] | None) -> bool:
        return rows_of(self.server, at, tablet_id=plot.tablet_id) == rows is not None

    # -------------------------------------------------------------------------------------------- death and judgement

    def die_in_every_cell(self) -> None:
        """Start the server once for each death: the start shows what the death before left, repairs it, and dies in the
        next cell."""
        before: Plot | None = None
        for plot in self.plots:
            for life, point in enumerate(plot.cell.deaths):
                passes = before.passes(point) if before is not None and life == 0 else 0
                self.server.start(wait=life == 0, env={CRASH_VARIABLE: f"{point}:{1 + passes}"})
                if life == 0:
                    if before is not None:
                        self.judge(before)
                        self.do_it_again(before)
                    if self.over.is_set():
                        return
                    self.act(plot)
                assert self.server.wait_exit() == CRASH_EXIT_CODE, (plot.cell, point)
                self.look_at_what_died(plot, point)
            before = plot
        self.server.start()
        self.judge(self.plots[-1])
        self.do_it_again(self.plots[-1])
        for plot in self.plots:
            assert plot.finished in (None, self.superblock_file(plot)), f"a start wrote it again: {plot}"

    def act(self, plot: Plot) -> None:
        """Do the work of the cell, as a leader or a master requests it; the server dies in it."""
        if plot.cell.work == DELETION:
            with pytest.raises(grpc.RpcError):
                self.delete(plot)
            return
        believed = {BLANK: DataState.DOES_NOT_EXIST, TOMBSTONE: DataState.DELETED, READY: DataState.READY}
        with suppress(grpc.RpcError):  # the job may die before its request is answered
            self.copy(plot, believed[plot.cell.before])

    def delete(self, plot: Plot) -> None:
        request = pb.DeleteTabletRequest(dest_uuid=self.server.uuid, tablet_id=plot.tablet_id)
        reply = self.server.tablets.DeleteTablet(request, timeout=30)
        assert not reply.error.code, reply.error

    def copy(self, plot: Plot, believed: DataState) -> None:
        reply = start_copy(self.source, self.server, plot.source_term, believed, tablet_id=plot.tablet_id)
        assert not reply.error.code, (plot, reply.error)

    def look_at_what_died(self, plot: Plot, point: str) -> None:
        """Check that the disk holds what the matrix states."""
        step, number = point.split(".")
        superblock = Superblock.load(self.disk, plot.tablet_id)
        if step == "copy":
            state = DataState.COPYING if number < "5" else DataState.READY
        else:
            first = DataState.COPYING if plot.cell.deaths[0].startswith("copy") else DataState.READY
            state = first if number < "4" else DataState.DELETED
        assert superblock.data_state is state, (plot.cell, point, superblock)
        if state is not DataState.READY:
            assert superblock.last_logged == plot.own_last, (plot.cell, point, superblock)
        assert bool(superblock.quarantine) == (state is DataState.DELETED)
        log = self.disk.exists(f"wals/{plot.tablet_id}")
        assert log == (point not in ("copy.1", "copy.2", "delete.6")), (plot.cell, point)

    def judge(self, plot: Plot) -> None:
        """Check the end that the matrix states, by the running server's reports and by its files; nothing was repaired
        by hand."""
        cell, status = plot.cell, wait_until(lambda: self.open_status(plot), "the replica is open, or a tombstone")
        assert status.data_state == cell.ends and not status.error, (cell, status)
        assert self.promises(plot) == cell.promises(plot.own_promises, plot.source_term), cell
        quarantines = list_quarantine(self.disk, plot.tablet_id)
        put_aside = [q for q in quarantines if q.data_state is DataState.READY and q.wal_bytes]
        assert len(put_aside) == (cell.before != BLANK and (cell.ends is DataState.DELETED or cell.source_wins)), cell
        if cell.ends is DataState.DELETED:
            assert (status.last_logged.term, status.last_logged.index) == plot.own_last, cell
            assert not self.disk.exists(f"wals/{plot.tablet_id}")
        elif cell.source_wins:
            self.see_copy(plot)
        else:
            assert self.has_rows(plot, plot.own_time, plot.own_rows), cell
        assert {f"data/{name}" for name in self.disk.listdir("data")} <= named_blocks(self.disk), cell
        wait_until(self.has_neighbour, "the neighbour answers")

    def see_copy(self, plot: Plot) -> None:
        """Check that the source's blocks and its log are here. Only a leader can decide that the rest of the log is
        committed."""
        source = self.cluster.status(self.source, plot.tablet_id)
        assert self.status(plot).last_logged == source.last_logged, plot
        assert self.has_rows(plot, plot.source_time, plot.source_rows), plot

    def open_status(self, plot: Plot) -> Any:
        status = self.status(plot)
        return status if status.phase != "BOOTSTRAPPING" else None

    # --------------------------------------------------------------------------------------------------- the retry

    def refuse(self, plot: Plot) -> None:
        """Check that requests that are for another server, too old, or assume another state change no file."""
        paths = [f"tablet-meta/{plot.tablet_id}", f"consensus-meta/{plot.tablet_id}"]
        files = lambda: [self.disk.read(p) for p in paths if self.disk.exists(p)]  # noqa: E731
        before, status = files(), self.status(plot)
        state = DataState(status.data_state)
        other = DataState.DELETED if state is DataState.READY else DataState.READY
        for code, term, believed, meant in (
            (Code.INVALID_NAME, plot.source_term, state, self.source.uuid),
            (Code.BAD_TERM if status.term else Code.INVALID_ARGUMENT, status.term - 1, state, ""),
            (Code.ILLEGAL_STATE, plot.source_term, other, ""),
        ):
            reply = start_copy(self.source, self.server, term, believed, tablet_id=plot.tablet_id, dest_uuid=meant)
            assert reply.error.code == code, (plot.cell, reply)
        assert files() == before

    def do_it_again(self, plot: Plot) -> None:
        """Do the work once more, after requests that are refused; this time to its end."""
        self.refuse(plot)
        if plot.cell.work == DELETION:
            self.delete(plot)
            status = self.status(plot)
            assert status.data_state == DataState.DELETED and self.promises(plot) == plot.own_promises, plot
            assert (status.last_logged.term, status.last_logged.index) == plot.own_last, plot
            plot.finished = self.superblock_file(plot)
        elif not plot.cell.source_wins:
            self.copy(plot, DataState(plot.cell.ends))
            wait_until(lambda: self.jobs(plot) == ["DONE"], "it is copied")
            self.see_copy(plot)
            left = [j for j in copies(self.source) if j.phase == "SERVING" and j.target_uuid == self.server.uuid]
            assert not left, f"the source, which has few sessions, keeps one of an earlier life: {left}"

    def join(self, plot: Plot) -> None:
        """Make this server a member, by its leader: what was copied goes on from its own log, a tombstone is copied."""
        tablet_id = plot.tablet_id
        change(self.cluster, "add", self.server.member(votes=False), tablet_id=tablet_id)
        at = write(self.cluster, 200, 1, tablet_id=tablet_id)
        rows = rows_of(self.source, at, tablet_id=tablet_id)
        assert rows is not None and rows[1] == 161
        wait_until(lambda: self.has_rows(plot, at, rows), f"{plot.cell.name}: it holds the leader's rows")
        assert self.status(plot).data_state == DataState.READY

    def jobs(self, plot: Plot) -> list[str]:
        jobs = copies(self.server)
        return [j.phase for j in jobs if j.tablet_id == plot.tablet_id and j.target_uuid == self.server.uuid]


def die_side_by_side(targets: Sequence[Target]) -> None:
    """Run each in a thread of its own, because the starts of processes cost most; a failure of one ends the others
    too."""
    with ThreadPoolExecutor(len(targets)) as pool:
        lives = [pool.submit(target.die_in_every_cell) for target in targets]
        wait(lives, return_when=FIRST_EXCEPTION)
        for target in targets:
            target.over.set()
        for life in lives:
            life.result()


def test_server_that_dies_in_any_cell_of_the_matrix_ends_as_the_matrix_says() -> None:
    """TC-40, TC-59, TC-60, TC-64; scenarios 68, 75. Goal: every cell of the crash matrix in servers at work, COPY.6
    among them, and copies over an intact replica, whose source has removed the log that would continue it. Method: two
    servers take turns at the cells; in each one dies of its own deletion or copy, or of the starts after that. Looked
    at: what is on disk then; after the next start the state, last logged OpId, term, vote, rows, quarantine, no orphan,
    the other tablet; requests that are too late change nothing, the work done again ends, and no later start writes its
    tombstone again. At last the leader makes each a member, with its rows."""
    # A steady server that votes for the source votes for no other meanwhile.
    with local_cluster(3, *NO_RETAINED_LOG, module=STEADY) as cluster:
        source, *servers = cluster.servers
        cells = SERVER_CELLS[::2], SERVER_CELLS[1::2]
        targets = [Target(cluster, source, s, own) for s, own in zip(servers, cells, strict=True)]
        with ThreadPoolExecutor(8) as pool:
            for target in targets:
                target.make_neighbour()
                list(pool.map(target.make, target.plots))
        for server in cluster.servers:
            server.kill()
        source.start()  # and leads in a later term
        for target in targets:
            for plot in target.plots:
                assert cluster.leader(plot.tablet_id) is source
                plot.source_term = cluster.status(source, plot.tablet_id).term
                assert plot.own_promises is None or plot.source_term > plot.own_promises[0]
                if plot.cell.work == COPY and plot.cell.before == READY:
                    target.outrun(plot)

        die_side_by_side(targets)

        for target in targets:
            for plot in target.plots:
                target.join(plot)
            write(cluster, 10, 1, tablet_id=target.neighbour)
            assert target.has_neighbour()
            target.server.kill()
            assert not check_directory(target.disk).all_findings
