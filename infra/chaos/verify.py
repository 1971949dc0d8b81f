"""The verifiers at the end of a run: each says what it looked at, and what it found wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nyala.replica import tools
from nyala.replica.base import Refused

from .cluster import Patient
from .disks import judge_logs, leftovers, open_deleted_files, read_log
from .scene import Scene, TabletScene, trouble
from .watch import Witness
from .workload import Workload

STUCK_S = 90.0
"""Without any change of what is not at rest; then it counts as stuck. A slow machine that goes on is only slow."""
CONVERGED_WAIT_S = 900.0
CALM_LOOKS = 4
"""Looks in a row without trouble that count as rest: what is decided next would show in one of them."""
LOOK_PERIOD_S = 0.3
COPY_OVER = frozenset({"DONE", "FAILED", "CANCELLED"})


@dataclass(frozen=True)
class Verdict:
    """What one verifier found. `looked_at`: how much, so that nobody takes an empty check for a passed one."""

    name: str
    looked_at: str
    wrong: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return not self.wrong


def converge(patient: Patient, tell: Callable[[str], None]) -> Verdict:
    """Wait until every tablet is at rest, has exactly its voters, and everything of it is applied everywhere.

    Given up when nothing has changed for STUCK_S, or after CONVERGED_WAIT_S.
    """
    began = moved = time.monotonic()
    calm, reasons, last, before = 0, ["not looked yet"], "", ""
    tick = threading.Event()
    while calm < CALM_LOOKS:
        scene = patient.scene()
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
    looked = f"{len(patient.handle.tablets)} tablets at rest after {time.monotonic() - began:.0f} s"
    return Verdict("exactly the replicas wanted, all caught up", looked, tuple(reasons))


def progress_of(scene: Scene) -> str:
    """What changes as long as a cluster is on its way to rest: positions, states and copied bytes."""
    replicas = sorted(
        (name, s.uuid, s.data_state, s.phase, s.applied_index, s.committed_config.opid.index)
        for tablet in scene.tablets
        for name, s in tablet.statuses.items()
    )
    return f"{replicas} {sorted((j.tablet_id, j.phase, j.bytes_done) for j in scene.copies)}"


def at_rest(scene: Scene) -> list[str]:
    """Why the cluster is not at rest: tablets, lagging replicas, copies under way."""
    found = []
    for tablet in scene.tablets:
        if why := trouble(scene, tablet) or _lag(scene, tablet):
            found.append(f"tablet {tablet.tablet_id[:8]}: {why}")
    found += [f"a copy of {job.tablet_id[:8]}: {job.phase}" for job in scene.copies if job.phase not in COPY_OVER]
    return found


def _lag(scene: Scene, tablet: TabletScene) -> str:
    """V3 as processes show it: all voters have logged, committed and applied the same."""
    members = scene.members(tablet)
    ends = {
        (s.last_logged.term, s.last_logged.index, s.commit_index, s.applied_index)
        for s in (tablet.statuses[m.name] for m in members)
    }
    end = next(iter(ends))
    if len(ends) > 1 or not end[1] == end[2] == end[3]:
        return f"voters stand at {sorted(ends)}"
    return ""


def verify_running(patient: Patient, workload: Workload, witness: Witness) -> list[Verdict]:
    """What is asked of the healed cluster while it runs; the writers have stopped."""
    verdicts = [
        *load_verdicts(Looked.at(workload), workload.faults, workload.final_faults, workload.history_faults),
        _asked("replicas are equal at one time, `cluster check` is clean (V6)", "all tables", lambda: _check(patient)),
        Verdict(
            "one leader a term, no term forgotten (V2)",
            f"{witness.looks} looks, {len(witness.leaders)} terms with a leader",
            (*nothing_of(looks=witness.looks, leaders=len(witness.leaders)), *witness.faults),
        ),
    ]
    return [*verdicts, _asked("no file is open that was deleted (V8)", "all servers", lambda: _open_files(patient))]


@dataclass(frozen=True, kw_only=True)
class Looked:
    """How much of a load there is to verify: row writes acknowledged, batches answered and of unknown outcome, scans
    compared, snapshots remembered."""

    rows: int
    batches: int
    unknown: int
    reads: int
    snapshots: int

    @staticmethod
    def at(workload: Workload) -> Looked:
        """That of a load whose writers have stopped."""
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
    """What the load itself saw, and what `final` (V4) and `history` (V5) find now. None of them passes by having
    nothing to look at."""
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
    """What a verifier must say of itself when there was nothing to look at, by what there is none of."""
    return tuple(f"nothing was verified: no {name} to look at" for name, count in counts.items() if not count)


def _asked(name: str, looked_at: str, ask: Callable[[], list[str]], wrong: tuple[str, ...] = ()) -> Verdict:
    try:
        return Verdict(name, looked_at, (*wrong, *ask()))
    except Refused as error:
        return Verdict(name, looked_at, (*wrong, f"could not be asked: {error}"))


def _check(patient: Patient) -> list[str]:
    view = tools.gather(patient.client, checksum=True)
    return [f"{f.severity} {f.subject}: {f.what}" for f in tools.judge_compared(view)]


def _open_files(patient: Patient) -> list[str]:
    folder = patient.supervisor.folder
    return [
        f"{name}: {path}"
        for name in patient.servers()
        for path in open_deleted_files(patient.supervisor.children[name].pid or 0, folder / name)
    ]


def verify_disks(folder: Path, scene: Scene) -> list[Verdict]:
    """What the disks of stopped servers say. `scene`: the last one before they stopped."""
    wrong: list[str] = []
    entries = 0
    for tablet in scene.tablets:
        logs = {}
        for member in scene.members(tablet):
            logs[member.name], damage = read_log(folder / member.name, tablet.tablet_id)
            wrong += damage
            entries += len(logs[member.name])
            if not logs[member.name]:
                wrong.append(f"{member.name} has no log of {tablet.tablet_id}")
        committed = {name: status.commit_index for name, status in tablet.statuses.items()}
        wrong += judge_logs(tablet.tablet_id, logs, committed)
    lost = [line for server in scene.servers for line in leftovers(folder / server.name)]
    return [
        Verdict(
            "logs agree: one term and content an index, times in order (V1, V3)",
            f"{entries:,} entries",
            (*nothing_of(entries=entries), *wrong),
        ),
        Verdict("every byte of every disk is whole and somebody's (V8)", f"{len(scene.servers)} disks", tuple(lost)),
    ]
