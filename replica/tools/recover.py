"""Carries out a recovery plan in stopped servers' directories: fence, copy, rewrite, verify, lower the source
positions, confirm the configs, unfence.

Every step can be repeated, and the plan is stored in each directory from before the first change until after the last.
So an interrupted recovery continues when it is run again, and no server starts before it is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from nyala.replica.consensus_metadata import ConsensusMeta, path_of
from nyala.replica.fs import FENCE
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import (
    CopySourceSession,
    CopyWanted,
    LocalCopySource,
    SourceSessions,
    capture_session,
    wal_folder,
)
from nyala.replica.types import Code, Corruption, Disk, RaftConfig, Refused, SystemClock
from nyala.replica.wal import Log, read_offline

from .directory_evidence import of_directory
from .evidence import ReplicaEvidence
from .forced_config import UNDO, force_config, keep_undo
from .local_replica import copy_replica
from .plan_file import save_journal
from .recovery_plan import RecoveryPlan, SourceLowering, TabletPlan

Say = Callable[[str], None]
Lower = Callable[[SourceLowering], None]
Confirm = Callable[[str, RaftConfig], None]


class Recovery:
    """One plan and the directories it is carried out in, by server uuid. The caller holds their locks.

    `lower` moves one source position back, `confirm` sends a forced config to the masters; both must be repeatable.
    `say` is called with each step when it is done.
    """

    def __init__(
        self,
        plan: RecoveryPlan,
        disks: Mapping[str, Disk],
        *,
        lower: Lower,
        confirm: Confirm = lambda tablet_id, config: None,
        say: Say = lambda text: None,
    ) -> None:
        self._disks = {uuid: disks[uuid] for uuid in involved(plan) if uuid in disks}
        self._mark = _mark_of(plan)
        missing = sorted(set(involved(plan)) - disks.keys())
        if missing and not self.only_fences_left:
            what = "the plan changes directories that were not named with --root or --copy-to; nothing was changed"
            raise Refused(Code.INVALID_ARGUMENT, what, servers=", ".join(missing))
        self._plan = plan
        self._lower = lower
        self._confirm = confirm
        self._say = say

    @property
    def only_fences_left(self) -> bool:
        """Return whether all other steps were done before. Servers without a fence may have started, so nothing is
        compared."""
        return any(disk.exists(self._mark) for disk in self._disks.values())

    def run(self) -> None:
        """Run all steps. Refused or Corruption leaves the fences; call it again after the cause is removed."""
        if self.only_fences_left:
            self.unfence()
            return
        self.fence()
        self.copy()
        self.rewrite()
        self.verify()
        self.lower_sources()
        self.confirm_configs()
        self.unfence()

    def fence(self) -> None:
        """Fence the directories: from now on no server starts on them."""
        for disk in self._disks.values():
            save_journal(disk, self._plan)
            disk.crash_point("recover.fenced")

    def copy(self) -> None:
        """Copy the survivor to every other member of the new configs.

        Refused(NOT_READY) if the survivor has changed since the plan was made: then it replaces no other replica.
        """
        for tablet in self._plan.tablets:
            late = [uuid for uuid in _others(tablet) if self._lack(uuid, tablet)]
            if late and (lack := self._lack(tablet.survivor, tablet)):
                what = "the survivor is not what it was when the plan was made; nothing of this tablet was copied"
                raise Refused(Code.NOT_READY, what, tablet=tablet.tablet_id, server=tablet.survivor, problem=lack)
            for uuid in late:
                self._say(f"T {tablet.tablet_id} copying from {tablet.survivor} to {uuid}")
                source = _source_at_rest(self._disks[tablet.survivor])
                copy_replica(self._disks[uuid], tablet.tablet_id, uuid, source, allow_leaderless=True)
                self._disks[uuid].crash_point("recover.copied")

    def rewrite(self) -> None:
        """Force the configs, after checking that every member of all of them is intact and has all that its survivor
        has.

        Refused(NOT_READY) names the members that fail the check: if only some were rewritten, two groups could form,
        and the recovery could not be abandoned any more.
        """
        late = [
            f"T {tablet.tablet_id} on {uuid}: {lack}"
            for tablet in self._plan.tablets
            for uuid in (tablet.survivor, *_others(tablet))
            if (lack := self._lack(uuid, tablet))
        ]
        if late:
            what = "not every member is where the survivor was when the plan was made; this run rewrote no config"
            raise Refused(Code.NOT_READY, what, members="; ".join(late))
        for tablet in self._plan.tablets:
            for uuid in (tablet.survivor, *_others(tablet)):
                disk = self._disks[uuid]
                if ConsensusMeta.load(disk, tablet.tablet_id).committed_config != tablet.config:
                    keep_undo(disk, tablet.tablet_id, disk.read(path_of(tablet.tablet_id)))
                force_config(disk, tablet.tablet_id, tablet.config, tablet.time)
                disk.crash_point("recover.rewritten")
            voters = ", ".join(tablet.config.voters)
            self._say(f"T {tablet.tablet_id} config {tablet.config.opid}: voters {voters}")

    def verify(self) -> None:
        """Check that each member is intact and has the forced config in its log and in its metadata.

        Corruption if one fails, because it was damaged after the rewrite. When run again, the recovery copies it anew.
        """
        for tablet in self._plan.tablets:
            for uuid in (tablet.survivor, *_others(tablet)):
                found = _look(self._disks[uuid], uuid, tablet)
                if _lacks(found, tablet) or found.config != tablet.config or found.last != tablet.config.opid:
                    raise Corruption(
                        "a recovered replica does not read back as it was written",
                        tablet=tablet.tablet_id,
                        server=uuid,
                        last=found.last,
                        problem=_lacks(found, tablet),
                    )

    def _lack(self, uuid: str, tablet: TabletPlan) -> str:
        return _lacks(_look(self._disks[uuid], uuid, tablet), tablet)

    def lower_sources(self) -> None:
        """Lower the source positions before any server starts: a query that begins anew must read the lost records
        again."""
        for lowering in self._plan.lowerings:
            place = f"source {lowering.topic}[{lowering.source.kafka_partition}] of {lowering.table}"
            try:
                self._lower(lowering)
            except Refused as refusal:
                if refusal.code is not Code.NOT_FOUND:
                    raise
                self._say(f"{place}: dropped since the plan was made, nothing to lower")
            else:
                self._say(f"{place}: done {lowering.done} -> {lowering.to}")

    def confirm_configs(self) -> None:
        """Confirm the configs before any server starts: the members that the masters know cannot prove a config without
        them."""
        for tablet in self._plan.tablets:
            try:
                self._confirm(tablet.tablet_id, tablet.config)
            except Refused as refusal:
                if refusal.code is not Code.TABLET_NOT_FOUND:
                    raise
                self._say(f"T {tablet.tablet_id}: dropped since the plan was made, nothing to confirm")

    def unfence(self) -> None:
        """Let the servers start. Before the first fence is removed, each directory records that all steps are done."""
        fenced = [disk for disk in self._disks.values() if disk.exists(FENCE)]
        for disk in fenced:
            disk.mkdir(UNDO)
            disk.replace(self._mark, disk.read(FENCE))
            disk.crash_point("recover.marked")
        for disk in fenced:
            _lift(disk)
            disk.crash_point("recover.unfenced")


def abandon(plan: RecoveryPlan, disks: Mapping[str, Disk]) -> list[str]:
    """Give an unfinished recovery up: remove its fences in `disks`; returns the servers, sorted. Finished copies stay.

    Refused(NOT_READY) after a config was rewritten, because then it can only be finished. A survivor is rewritten
    before the other members of its tablet, so it is enough that every survivor's directory is among `disks`.
    """
    missing = sorted({t.survivor for t in plan.tablets} - disks.keys())
    if missing:
        what = "a survivor's directory says whether a config was rewritten, and was not named; nothing was changed"
        raise Refused(Code.INVALID_ARGUMENT, what, servers=", ".join(missing))
    for tablet in plan.tablets:
        if _is_rewritten(disks[tablet.survivor], plan, tablet):
            what = (
                "a config was rewritten already: finish this recovery, run the same command again; nothing was changed"
            )
            raise Refused(Code.NOT_READY, what, tablet=tablet.tablet_id, server=tablet.survivor)
    fenced = [uuid for uuid in involved(plan) if uuid in disks and disks[uuid].exists(FENCE)]
    for uuid in fenced:
        _lift(disks[uuid])
    return fenced


def _is_rewritten(survivor: Disk, plan: RecoveryPlan, tablet: TabletPlan) -> bool:
    if survivor.exists(_mark_of(plan)):
        return True
    if not survivor.exists(FENCE):  # all directories are fenced before any other step
        return False
    forced = ConsensusMeta.load(survivor, tablet.tablet_id).committed_config == tablet.config
    return forced or read_offline(survivor, wal_folder(tablet.tablet_id), tablet.tablet_id).last == tablet.config.opid


def _mark_of(plan: RecoveryPlan) -> str:
    return f"{UNDO}/recovery-{plan.fingerprint}"


def _lift(disk: Disk) -> None:
    disk.remove(FENCE)
    disk.sync_dir("")


def involved(plan: RecoveryPlan) -> list[str]:
    """Return the servers whose directories the plan changes, sorted."""
    return sorted({m.uuid for tablet in plan.tablets for m in tablet.config.members})


def _others(tablet: TabletPlan) -> list[str]:
    return sorted(m.uuid for m in tablet.config.members if m.uuid != tablet.survivor)


def _look(disk: Disk, uuid: str, tablet: TabletPlan) -> ReplicaEvidence:
    """Return the evidence of one replica as it is now; every byte of its blocks is read."""
    nothing = ReplicaEvidence(tablet_id=tablet.tablet_id, server_uuid=uuid, place="", problem="nothing of it is here")
    return next(of_directory(disk, uuid, "", [tablet.tablet_id]), nothing)


def _lacks(found: ReplicaEvidence, tablet: TabletPlan) -> str:
    """Return why a replica cannot be a member; empty if it is intact, has rows, and ends at the survivor's last entry.

    Equal last entries mean equal logs [raft §5.3], not equal rows: blocks may be damaged, and a witness has none.
    """
    if not found.usable:
        return found.problem or f"it is {found.data_state.name}"
    if found.witness:
        return "a witness, which holds no rows"
    return "" if found.last in (tablet.last, tablet.config.opid) else f"it ends at {found.last}"


@dataclass(frozen=True)
class _AtRest:
    """The state of a replica of a stopped server: its superblock, whose blocks no process removes."""

    superblock: Superblock

    @contextmanager
    def hold(self) -> Iterator[Superblock]:
        yield self.superblock


def _source_at_rest(disk: Disk) -> LocalCopySource:
    """Return a copy source over a stopped server's directory. It reports that it does not lead."""

    def capture(
        tablet_id: str, requestor: str, leaderless: bool, session: str, ttl_us: int, wanted: CopyWanted
    ) -> CopySourceSession:
        if not leaderless:
            raise Refused(Code.NOT_LEADER, "a replica at rest leads nobody", tablet=tablet_id)
        log, _ = Log.open(disk, wal_folder(tablet_id), tablet_id)
        return capture_session(
            disk=disk,
            tablet_id=tablet_id,
            requestor_uuid=requestor,
            session_id=session,
            ttl_us=ttl_us,
            state=_AtRest(Superblock.load(disk, tablet_id)),
            cmeta=ConsensusMeta.load(disk, tablet_id),
            log=log,
            is_leader=False,
            wanted=wanted,
        )

    return LocalCopySource(SourceSessions(SystemClock()), capture)


def plans_agree(plans: Sequence[RecoveryPlan]) -> RecoveryPlan | None:
    """Return the unfinished plan of these directories, None if there is none; Refused if there are different ones."""
    if len({p.fingerprint for p in plans}) > 1:
        what = "two recoveries are unfinished in these directories: finish them one after the other"
        raise Refused(Code.ALREADY_INPROGRESS, what, fingerprints=", ".join(sorted(p.fingerprint for p in plans)))
    return plans[0] if plans else None
