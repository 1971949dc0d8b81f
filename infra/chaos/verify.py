"""The verifiers at the end of a run. Each reports how much it compared, and what was wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nyala.replica import tools
from nyala.replica.types import Corruption, Refused

from .cluster import ClusterUnderTest
from .disks import Rotten, blocks_in_use, judge_rot, leftovers, open_deleted_files, read_log, read_rows
from .expected_rows import ExpectedRows, Rows
from .logs import Logged, judge_appenders, judge_logs, judge_majority
from .scene import Scene, TabletScene, why_unsettled
from .watch import SceneChecker
from .workload import Workload, judge

STUCK_S = 240.0
"""The seconds without any progress after which a cluster that is not at rest counts as stuck. A slow machine still
makes progress."""
CONVERGED_WAIT_S = 900.0
CALM_LOOKS = 4
"""The scenes in a row that must show a table at rest: a later decision would show in one of them."""
LOOK_PERIOD_S = 0.3
ANSWER_WAIT_S = 300.0
"""The time for which the healed cluster is asked again while a finding may only be a delay."""


@dataclass(frozen=True)
class Verdict:
    """The result of one verifier. `looked_at`: how much it compared, so that an empty check does not count as
    passed."""

    name: str
    looked_at: str
    wrong: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it found nothing wrong."""
        return not self.wrong


def converge(cluster: ClusterUnderTest, tell: Callable[[str], None]) -> Verdict:
    """Wait until every tablet is at rest, with exactly its voters, and every entry is applied everywhere.

    Gives up when nothing has changed for STUCK_S, or after CONVERGED_WAIT_S.
    """
    began = moved = time.monotonic()
    calm, reasons, last, before = 0, ["not looked yet"], "", ""
    tick = threading.Event()
    while calm < CALM_LOOKS:
        scene = cluster.scene()
        reasons, now = at_rest(scene), time.monotonic()
        calm = 0 if reasons else calm + 1
        if (state := progress_of(scene)) != before:
            moved, before = now, state
        if now - moved > STUCK_S or now - began > CONVERGED_WAIT_S:
            break
        if reasons and reasons[0] != last:
            last = reasons[0]
            tell(f"not yet: {last}")
        tick.wait(LOOK_PERIOD_S)
    looked = f"{len(cluster.handle.tablets)} tablets at rest after {time.monotonic() - began:.0f} s"
    return Verdict("exactly the replicas wanted, all caught up", looked, tuple(reasons))


def progress_of(scene: Scene) -> str:
    """A text that changes while a cluster makes progress towards rest: positions, states and copied bytes."""
    replicas = sorted(
        (name, s.uuid, s.data_state, s.phase, s.applied_index, s.committed_config.opid.index)
        for tablet in scene.tablets
        for name, s in tablet.statuses.items()
    )
    return f"{replicas} {sorted((j.tablet_id, j.phase, j.bytes_done) for j in scene.copies)}"


def at_rest(scene: Scene) -> list[str]:
    """The reasons why the cluster is not at rest: tablets, lagging replicas, copies under way."""
    found = []
    for tablet in scene.tablets:
        if why := why_unsettled(scene, tablet) or _lag(scene, tablet):
            found.append(f"tablet {tablet.tablet_id[:8]}: {why}")
    found += [f"a copy of {job.tablet_id[:8]}: {job.phase}" for job in scene.copies if job.phase not in tools.COPY_OVER]
    return found


def _lag(scene: Scene, tablet: TabletScene) -> str:
    """V3 as far as running processes show it: all voters have logged, committed and applied the same entries."""
    members = scene.members(tablet)
    ends = {
        (s.last_logged.term, s.last_logged.index, s.commit_index, s.applied_index)
        for s in (tablet.statuses[m.name] for m in members)
    }
    end = next(iter(ends))
    if len(ends) > 1 or not end[1] == end[2] == end[3]:
        return f"voters stand at {sorted(ends)}"
    return ""


def verify_running(cluster: ClusterUnderTest, workload: Workload, checker: SceneChecker) -> list[Verdict]:
    """The verdicts on the healed cluster while it runs; the writers have stopped."""
    verdicts = [
        *load_verdicts(Looked.at(workload), workload.faults, workload.final_faults, workload.history_faults),
        _asked("replicas are equal at one time, `cluster check` is clean (V6)", "all tables", lambda: _check(cluster)),
        Verdict(
            "one leader a term, no term forgotten (V2)",
            f"{checker.looks} looks, {len(checker.leaders)} terms with a leader",
            (*nothing_of(looks=checker.looks, leaders=len(checker.leaders)), *checker.faults),
        ),
    ]
    return [*verdicts, _asked("no file is open that was deleted (V8)", "all servers", lambda: _open_files(cluster))]


@dataclass(frozen=True, kw_only=True)
class Looked:
    """The amount of load to verify: acknowledged row writes, batches answered and of unknown outcome, compared scans,
    remembered snapshots."""

    rows: int
    batches: int
    unknown: int
    reads: int
    snapshots: int

    @staticmethod
    def at(workload: Workload) -> Looked:
        """The amount for a load whose writers have stopped."""
        return Looked(
            rows=workload.rows,
            batches=sum(w.batches for w in workload.writers),
            unknown=sum(w.unknown for w in workload.writers),
            reads=workload.reader.reads,
            snapshots=len(workload.reader.snapshots),
        )


def load_verdicts(
    looked: Looked, faults: Sequence[str], final: Callable[[], list[str]], history: Callable[[], list[str]]
) -> list[Verdict]:
    """The verdicts on the load: the errors that it found itself, and those in `final` (V4) and `history` (V5). None
    passes if there was nothing to compare."""
    return [
        Verdict(
            "no fault while it went on",
            f"{looked.reads} scans compared, {looked.batches} batches answered",
            (*nothing_of(reads=looked.reads, batches=looked.batches), *faults),
        ),
        _asked(
            "acknowledged writes are there, no other (V4)",
            f"{looked.rows:,} row writes, {looked.unknown} batches of unknown outcome",
            final,
            nothing_of(rows=looked.rows),
        ),
        _asked(
            "snapshots are what they were, every link leads somewhere (V5)",
            f"{looked.snapshots} snapshots of the load",
            history,
            nothing_of(snapshots=looked.snapshots),
        ),
    ]


def nothing_of(**counts: int) -> tuple[str, ...]:
    """The errors of a verifier that had nothing to compare: one for each count that is 0."""
    return tuple(f"nothing was verified: no {name} to look at" for name, count in counts.items() if not count)


def _asked(name: str, looked_at: str, ask: Callable[[], list[str]], wrong: tuple[str, ...] = ()) -> Verdict:
    try:
        return Verdict(name, looked_at, (*wrong, *ask()))
    except Refused as error:
        return Verdict(name, looked_at, (*wrong, f"could not be asked: {error}"))


def looked_again(
    look: Callable[[], list[str]], lasts: Callable[[str], bool] = lambda _: False, wait_s: float = ANSWER_WAIT_S
) -> list[str]:
    """The errors that `look` returns: those in `lasts` at once, others only if they last for the whole time. A refusal
    counts as such an error, because a server that is late does not make rows wrong."""
    deadline, tick = time.monotonic() + wait_s, threading.Event()
    while True:
        try:
            found = look()
        except Refused as error:
            found = [f"could not be asked: {error}"]
        if not found or any(map(lasts, found)) or time.monotonic() > deadline:
            return found
        tick.wait(LOOK_PERIOD_S)


def _check(cluster: ClusterUnderTest) -> list[str]:
    def compared() -> list[str]:
        view = tools.gather(cluster.client, checksum=True)
        return [f"{f.severity} {f.subject}: {f.what}" for f in tools.judge_compared(view)]

    return looked_again(compared, lasts=lambda found: "replicas differ" in found)


def _open_files(cluster: ClusterUnderTest) -> list[str]:
    """The deleted files that are still open. Checked again if there are some: compaction and log GC close files a
    moment after they removed them."""
    folder, children = cluster.supervisor.folder, cluster.supervisor.children
    return looked_again(
        lambda: [
            f"{name}: {path}"
            for name in cluster.servers()
            for path in open_deleted_files(children[name].pid or 0, folder / name)
        ]
    )


@dataclass
class LogReadings:
    """The results of reading logs, tablet by tablet, perhaps many times: how much was compared, and what was wrong."""

    expected: int = 0
    """The number of readings that the verdict needs; fewer mean that some were left out."""
    done: int = 0
    """The number of readings of one tablet's logs."""
    entries: int = 0
    shared: int = 0
    """The number of entries that a second disk has, too."""
    disordered: list[str] = field(default_factory=list)
    """V1, V3: entries that are damaged, out of order, or committed with two terms or contents."""
    appended: list[str] = field(default_factory=list)
    """V2: traces of two appenders of one term."""
    missing: list[str] = field(default_factory=list)
    """Committed entries that are not in the logs of a majority."""

    def take(self, scene: Scene, tablet: TabletScene, logs: Mapping[str, Sequence[Logged]]) -> None:
        """Judge logs by server, which were read after `scene` was taken."""
        voters = [m.name for m in scene.members(tablet)]
        committed = {name: status.commit_index for name, status in tablet.statuses.items()}
        shared, wrong = judge_appenders(tablet.tablet_id, logs)
        self.done += 1
        self.entries += sum(map(len, logs.values()))
        self.shared += shared
        self.appended += wrong
        self.disordered += judge_logs(tablet.tablet_id, logs, committed)
        self.missing += judge_majority(tablet.tablet_id, logs, committed, voters)

    def verdicts(self) -> list[Verdict]:
        """The verdicts; none passes if there was nothing to compare."""
        nothing = nothing_of(readings=self.done, entries=self.entries, shared_entries=self.shared)
        if self.done < self.expected:
            nothing = (*nothing, f"logs were read {self.done} times, {self.expected} expected")
        looked = f"{self.entries:,} entries, {self.shared:,} of them on a second disk, in {self.done} readings"
        return [
            Verdict(
                "logs agree: one term and content an index, times in order (V1, V3)",
                looked,
                (*nothing, *self.disordered),
            ),
            Verdict("logs know one appender a term (V2)", looked, (*nothing, *self.appended)),
            Verdict("what is committed is in the logs of most voters", looked, (*nothing, *self.missing)),
        ]


def verify_disks(
    folder: Path,
    scene: Scene,
    by_writer: Sequence[ExpectedRows],
    *,
    replicas: int = 1,
    readings: LogReadings | None = None,
) -> list[Verdict]:
    """The verdicts on the disks of stopped servers.

    `scene`: the last one before they stopped; `by_writer`: the expected rows of each writer; `replicas`: the number of
    replicas of each tablet whose rows are read too; `readings`: results of earlier log readings.
    """
    read = readings or LogReadings()
    read.expected += len(scene.tablets)
    for tablet in scene.tablets:
        logs = {}
        for member in scene.members(tablet):
            logs[member.name], damage = read_log(folder / member.name, tablet.tablet_id)
            read.disordered += damage
            if not logs[member.name]:
                read.disordered.append(f"{member.name} has no log of {tablet.tablet_id}")
        read.take(scene, tablet, logs)
    lost = [line for server in scene.servers for line in leftovers(folder / server.name)]
    return [
        *read.verdicts(),
        _each_disk(folder, scene, by_writer, replicas),
        Verdict("every byte of every disk is whole and somebody's (V8)", f"{len(scene.servers)} disks", tuple(lost)),
    ]


def verify_rot(folder: Path, rotten: Sequence[Rotten], logs: Mapping[str, Path]) -> Verdict:
    """Whether each damaged block made its replica fail, by the `logs` and disks of stopped servers. Other verifiers
    check that it had no other effect."""
    wrong: list[str] = []
    for one in rotten:
        log = logs[one.server].read_bytes()[one.log_bytes :].decode(errors="replace")
        wrong += judge_rot(one, log, blocks_in_use(folder / one.server))
    what = "a block gone bad costs its replica, and is not used again"
    return Verdict(what, f"{len(rotten)} blocks", (*nothing_of(blocks=len(rotten)), *wrong))


def _each_disk(folder: Path, scene: Scene, by_writer: Sequence[ExpectedRows], replicas: int) -> Verdict:
    """V4 without the cluster: each replica's disk alone has every acknowledged row. Replaying a log is slow, so only
    `replicas` of each tablet are read."""
    held: list[list[Rows]] = []
    wrong: list[str] = []
    for tablet in scene.tablets:
        members = scene.members(tablet)
        first = len(held) % max(1, len(members))  # a different server for each tablet, if not all replicas are read
        held.append([])
        for member in [*members[first:], *members[:first]][:replicas]:
            try:
                committed = tablet.statuses[member.name].commit_index
                held[-1].append(read_rows(folder / member.name, tablet.tablet_id, committed))
            except (Corruption, Refused, KeyError, OSError) as error:
                wrong.append(f"{tablet.tablet_id[:8]} on {member.name}: {error!r}")
    rows, found = judge_disks(by_writer, held)
    looked = f"{rows:,} rows of {sum(map(len, held))} replicas"
    return Verdict("a replica's disk alone has the acknowledged rows, no other (V4)", looked, (*wrong, *found))


def judge_disks(by_writer: Sequence[ExpectedRows], held: Sequence[Sequence[Rows]]) -> tuple[int, list[str]]:
    """The number of rows, and the errors in them. `held`: by tablet, the rows of each of its replicas. The first
    replicas of all tablets together must have the written rows, and so must the second ones, and so on."""
    rows = sum(len(one.k) for replicas in held for one in replicas)
    wrong = [*nothing_of(rows=rows), *("a tablet has no replica to read" for replicas in held if not replicas)]
    acked, tried = [b.acked for b in by_writer], [b.tried for b in by_writer]
    for pos in range(max(map(len, held), default=0)):
        table = Rows.joined([replicas[min(pos, len(replicas) - 1)] for replicas in held if replicas])
        wrong += [f"replicas {pos + 1} of the tablets: {w}" for w in judge(list(by_writer), acked, tried, table)]
    return rows, wrong
