"""Tablet copies between simulated servers: requested, waiting, begun at the source, and installed, each at its time.

The files are the shortest possible: merged metadata, flushed state, a log begun anew. The real checks decide when a
copy may go on, and all servers go on meanwhile: leaders are stopped and deposed, the target acknowledges.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from nyala.replica.consensus_metadata import ConsensusMeta, term_of
from nyala.replica.raft import CopyNeeded
from nyala.replica.tablet_copy import CopyRequest, LocalReplica, source_refusal, start_tablet_copy_checks
from nyala.replica.types import ZERO_OPID, Corruption, DataState, OpId, Refused
from tests.harness.sim_machine import install

if TYPE_CHECKING:
    from tests.harness.sim_cluster import SimCluster, SimNode

QUEUED_US_MAX = 300_000
"""Bounds how long a job may wait for its turn: other tablets are copied too."""
DOWNLOAD_US_MAX = 400_000


class Manifest(NamedTuple):
    """The state that a session fixed at the source. `last`: the log of the copy ends where its state was flushed."""

    state: bytes
    cmeta: bytes
    last: OpId


class SimCopies:
    """All copies of one cluster. A target that dies loses its job; the leader asks again."""

    def __init__(self, cluster: SimCluster, tablet_id: str) -> None:
        self._cluster = cluster
        self._tablet_id = tablet_id
        self._running: dict[str, int] = {}
        """Target -> the life that its job belongs to."""

    def needed(self, leader: SimNode, need: CopyNeeded) -> None:
        """Send StartTabletCopy as a leader."""
        if leader.replica is None:
            return
        request = CopyRequest(
            dest_uuid=need.peer_uuid,
            from_uuid=leader.uuid,
            tablet_id=self._tablet_id,
            term=leader.replica.term,
            current_state=need.current_state,
            last_opid=need.last_opid if need.last_opid != ZERO_OPID else None,
        )
        self._after(30_000, request, self._asked)

    def _asked(self, request: CopyRequest) -> None:
        target = self._cluster.at(request.dest_uuid)
        if target is None or self._running.get(target.uuid) == target.life or not self._may(target, request):
            return
        life = self._running[target.uuid] = target.life
        self._after(QUEUED_US_MAX, request, lambda request: self._begin(request, life))

    def _begin(self, request: CopyRequest, life: int) -> None:
        """Take the job's turn: it is checked again, then BEGIN at the source, when the source is awake.

        `life`: the life in which the target accepted the request; requests that waited when it died are gone.
        """
        source, target = self._cluster.nodes.get(request.from_uuid), self._cluster.nodes.get(request.dest_uuid)
        if source is None or target is None:
            self._running.pop(request.dest_uuid, None)
            return
        if source.paused and not source.left:
            self._cluster.world.at(source.paused_until_us, lambda: self._begin(request, life))
            return
        if not self._goes_on(target, life):
            return
        if not self._may(target, request):
            self._over(target)
            return
        if source.paused:
            self._over(target)
            return
        with suppress(Refused):
            source.do(source.flush_now)
        if not source.up:
            self._over(target)
            return
        if (
            source.replica is None
            or not source.replica.is_leader
            or source.machine is None
            or source.cmeta is None
            or not source.machine.flush_opid.index
            # This copy has no log. A real one takes along what is behind a config that the metadata does not have yet.
            or source.cmeta.committed_config.opid.index < source.replica.committed_config.opid.index
        ):
            self._over(target)
            return
        try:
            state = source.machine.encode()
        except Corruption as error:
            source.do(partial(source.replica.fail, error))
            self._over(target)
            return
        manifest = Manifest(state, source.cmeta.encode(), source.machine.flush_opid)
        delay = self._cluster.world.rng.randint(1_000, DOWNLOAD_US_MAX)
        self._cluster.world.after(delay, lambda: self._install(target, manifest, life))

    def _install(self, target: SimNode, manifest: Manifest, life: int) -> None:
        """Compare what the target has promised by now with the session; then install the copy."""
        if not self._goes_on(target, life):
            return
        self._over(target)
        if target.gone:
            return
        local = self._local(target)
        refusal = source_refusal(
            source_last_opid=manifest.last,
            source_term=term_of(self._tablet_id, manifest.cmeta),
            source_is_leader=True,
            own_last_opid=local.last_opid,
            own_term=local.term,
        )
        if refusal is not None:
            self._cluster.marks["copy refused"] += 1
            return
        self._cluster.verify.copied(target.uuid, manifest.last, target.durable)
        if target.up:
            target.crash(power=False)
        target.disk.heal()
        target.hurt = False
        target.disk.disarm()  # crashes and full disks within a copy are tested where the real copy is
        ConsensusMeta.adopt(target.disk, self._tablet_id, target.uuid, manifest.cmeta, lost=target.exists())
        if target.disk.exists("wals"):
            target.disk.remove_tree(f"wals/{self._tablet_id}")
            target.disk.sync_dir("wals")
        install(target.disk, self._tablet_id, manifest.state)
        self._cluster.copies += 1
        target.start()

    def _goes_on(self, target: SimNode, life: int) -> bool:
        """Return whether the job that the target accepted in that life still runs. A later one is another job."""
        return self._running.get(target.uuid) == life == target.life

    def _may(self, target: SimNode, request: CopyRequest) -> bool:
        if not target.up and ConsensusMeta.exists(target.disk, self._tablet_id):
            return False
        return start_tablet_copy_checks(request, self._local(target)) is None

    def _local(self, target: SimNode) -> LocalReplica:
        replica = target.replica
        if replica is None:
            return LocalReplica(uuid=target.uuid, data_state=DataState.DOES_NOT_EXIST)
        return LocalReplica(
            uuid=target.uuid, data_state=DataState.READY, term=replica.term, last_opid=replica.last_logged
        )

    def _over(self, target: SimNode) -> None:
        self._running.pop(target.uuid, None)

    def _after(self, delay_us_max: int, request: CopyRequest, what: Callable[[CopyRequest], None]) -> None:
        self._cluster.world.after(self._cluster.world.rng.randint(1_000, delay_us_max), lambda: what(request))
