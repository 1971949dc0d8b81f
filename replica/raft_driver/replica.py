"""`Replica`, the public interface of one replica: its lifecycle, its inputs, its status."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from nyala.replica.consensus_metadata import decode_config, encode_config
from nyala.replica.raft import Message, RaftCore, RaftOptions, Role, invalid_reason
from nyala.replica.types import (
    ZERO_OPID,
    Code,
    ConfigEdit,
    DataState,
    EntryKind,
    InvariantViolation,
    OpId,
    RaftConfig,
    Refused,
    generation_of,
)
from nyala.replica.types.log_records import about
from nyala.replica.wal import Anchor, Replay

from .bootstrap import Recovered, recover
from .environment import Environment, Files
from .lifecycle import Lifecycle
from .log_gc import LogGc
from .no_replica import no_replica_reply
from .options import DriverOptions
from .pending import Done
from .ready_executor import ReadyExecutor
from .status import Phase, ReplicaStatus, leader_hint, peer_status
from .times import Times

_log = logging.getLogger("nyala.raft_driver")


class Replica:
    """One member of one tablet's Raft group on one server.

    Invariants: no vote, acknowledgement or reply is sent before what it states is durable here; entries are
    applied in order, each once, only when committed; every caller is answered exactly once, and never with NOT_APPLIED
    for an entry that may yet be applied.
    Durability: terms, votes and configs are in consensus metadata, entries in the log; everything else is rebuilt.
    Concurrency: the owner's thread for everything except `bootstrap`; completions arrive through `post`.
    """

    def __init__(
        self,
        *,
        tablet_id: str,
        uuid: str,
        files: Files,
        replay: Replay,
        environment: Environment,
        raft_options: RaftOptions,
        options: DriverOptions | None = None,
    ) -> None:
        self.tablet_id = tablet_id
        self.uuid = uuid
        self.options = options or DriverOptions()
        self._files = files
        self._environment = environment
        self._raft_options = raft_options
        self._replay: Replay | None = replay
        self._recovered: Recovered | None = None
        self.life = Lifecycle(lambda: environment.on_change(tablet_id), environment.on_fatal)
        """The phase, and the reason of the end; only the driver changes it."""
        self._times = Times(tablet_id, uuid, environment.hybrid_clock)
        self._executor: ReadyExecutor | None = None
        """Set from `start` on, and kept after the end."""
        self._log_gc: LogGc | None = None

    # ------------------------------------------------------------------------------------------------------- life

    def bootstrap(self) -> None:
        """Read the log into memory. Heavy: call it in a thread, once, before `start`. Raises Corruption."""
        replay, machine = self._replay, self._files.state_machine
        if self.phase is not Phase.BOOTSTRAPPING or replay is None:
            raise InvariantViolation("a replica is bootstrapped once")
        self._recovered = recover(
            replay,
            flush_opid=machine.applied_opid,
            flush_time=machine.applied_time,
            cmeta=self._files.cmeta,
            cache_bytes_max=self.options.log_cache_bytes_max,
        )
        self._times.recovered(self._recovered.last_time)

    def start(self, *, campaign: bool = False) -> None:
        """Join the group; the owner ticks the replica from now on. `campaign`: start an election at once, as the hinted
        leader of a new tablet."""
        recovered, replay = self._recovered, self._replay
        if recovered is None or replay is None:
            raise InvariantViolation("a replica starts after its bootstrap")
        self._replay = self._recovered = None
        files, cache = self._files, recovered.cache
        self._times.applied, self._times.last = files.state_machine.applied_time, recovered.last_time
        term, voted_for = self._initial_hard_state()
        core = RaftCore(
            uuid=self.uuid,
            term=term,
            voted_for=voted_for,
            committed_config=recovered.committed_config,
            pending_config=recovered.pending_config,
            log=cache,
            commit_index=files.state_machine.applied_opid.index,
            options=self._raft_options,
            rng=self._environment.rng,
            encode_config=encode_config,
            decode_config=decode_config,
            hybrid_now=self._environment.hybrid_clock.now,
            withhold_votes=term > 0 or cache.last.index > 0,
            withheld=replay.withheld,
            no_data=files.no_data,
            yields=self._environment.yields,
        )
        core.applied_index = files.state_machine.applied_opid.index
        if replay.withheld is not None:
            about(_log, self.tablet_id, self.uuid).warning(
                "entry %s at the end of the log is damaged or missing, and may have been acknowledged: this "
                "replica does not vote before its leader has sent it again", replay.withheld,
            )  # fmt: skip
        self._executor = executor = ReadyExecutor(
            tablet_id=self.tablet_id,
            core=core,
            cache=cache,
            files=files,
            environment=self._environment,
            life=self.life,
            times=self._times,
            raft_options=self._raft_options,
            options=self.options,
        )
        run_heavy, life = self._environment.run_heavy, self.life
        self._log_gc = LogGc(files=files, core=core, cache=cache, life=life, run_heavy=run_heavy, options=self.options)
        life.end_serving = executor.end_serving
        life.enter(Phase.CONFIGURING)
        if recovered.committed_config != files.cmeta.committed_config:
            executor.persister.save_config(recovered.committed_config)
        if campaign:
            core.campaign()
        executor.pump()

    def stop(self) -> None:
        """Answer all callers and end. The caller of `stop` owns the log and the state machine, and closes them."""
        if self.phase is not Phase.STOPPED:
            self.life.end(Phase.STOPPED, Code.NOT_READY, "the replica is stopping")
            if self._executor is not None:
                self._executor.cache.clear()  # other objects of the replica may keep this one in memory for long

    def fail(self, error: BaseException) -> None:
        """End the replica because its data cannot be used, such as a damaged block, a lost folder, a bootstrap that
        raised."""
        self.life.fail(error)

    def _initial_hard_state(self) -> tuple[int, str | None]:
        """The term and the vote to start with. In a term up to the vote floor, the vote counts as given, to no
        candidate."""
        cmeta = self._files.cmeta
        term, voted_for, floor = cmeta.term, cmeta.voted_for, cmeta.vote_floor_term
        if floor > term:
            return floor, self.uuid
        return term, voted_for or (self.uuid if floor == term > 0 else None)

    @property
    def _running(self) -> ReadyExecutor | None:
        """The executor while the replica takes part in its group; otherwise None."""
        return self._executor if self.life.serving else None

    # ----------------------------------------------------------------------------------------------------- inputs

    def tick(self) -> None:
        """One tick of the machine's monotonic clock."""
        if (running := self._running) is not None:
            running.tick()

    @property
    def may_rest(self) -> bool:
        """Whether the replica needs no ticks now: it does not run, or its group is quiet, nothing waits to be written
        or applied, and no caller waits."""
        return (running := self._running) is None or running.may_rest

    def rest(self) -> bool:
        """Let the replica rest if it needs no ticks. Returns whether it rests: then the owner stops ticking until
        `on_awake`."""
        if not self.may_rest:
            return False
        if self._executor is not None:
            self._executor.rest()
        return True

    def server_silent(self, uuid: str, silent_ticks: int, delay_ticks: int = 0) -> None:
        """Note that nothing came from the server `uuid` for so many ticks; see `RaftCore.server_silent`."""
        if (running := self._running) is not None:
            running.core.server_silent(uuid, silent_ticks, delay_ticks)
            running.pump_if_awake()

    def server_heard(self, uuid: str) -> None:
        """Note that the server `uuid` is heard again, or is another process."""
        if (running := self._running) is not None:
            running.core.server_heard(uuid)
            running.pump_if_awake()

    def probe_quiet_group(self) -> None:
        """Make sure that a quiet group still has its leader; called about once a minute, see `RaftCore`."""
        if (running := self._running) is not None:
            running.core.probe_quiet_group()
            running.pump_if_awake()

    def step(self, message: Message) -> str:
        """Handle one message of a peer. Without a running core, AppendEntries are answered with the reason for that.

        Returns why the message was refused: no honest peer sends it, or its times are too far ahead; then nothing has
        changed. Returns an empty text if the message was handled, or dropped because there was no room.
        """
        if (running := self._running) is None:
            return self._answer_absent(message)
        return running.step(message)

    def _answer_absent(self, message: Message) -> str:
        if refusal := invalid_reason(message):
            return refusal
        own_term = self._files.cmeta.term
        if self.phase is Phase.STOPPED or generation_of(message.term) < generation_of(own_term):
            return ""  # a member that was given up as lost must not learn the term (D-17)
        failed = self.phase is Phase.FAILED
        reply = no_replica_reply(message, uuid=self.uuid, data_state=DataState.READY, own_term=own_term, failed=failed)
        if reply is not None:
            self._environment.send([(self.tablet_id, reply)])
        return ""

    # ---------------------------------------------------------------------------------------------------- callers

    def write(self, kind: EntryKind, schema_id: int, meta: bytes, payload: bytes, payload_crc: int, done: Done) -> None:
        """Replicate and apply one entry; calls `done(apply's result | Refused)` once, never before this returns.

        After a Refused with UNKNOWN the entry may yet be applied. So repeat only a request that the state machine's
        ledger recognises.
        """
        if (running := self._running_or_refuse(done)) is not None:
            running.writer.write(kind, schema_id, meta, payload, payload_crc, done)

    def change_config(
        self, edits: Sequence[ConfigEdit], cas: OpId | None, decision: tuple[int, int], done: Done
    ) -> None:
        """Change the members; calls `done(RaftConfig | Refused)` once committed. `cas`: the committed config's OpId as
        seen."""
        if (running := self._running_or_refuse(done)) is not None:
            running.callers.change_config(edits, cas, decision, done)

    def abort_change(self, pending: OpId | None, done: Done) -> None:
        """Take an uncommitted config change back; calls `done(RaftConfig | Refused)` once the old config holds again.

        `pending`: OpId of the change to take back; None: any change under way.
        """
        if (running := self._running_or_refuse(done)) is not None:
            running.callers.abort_change(pending, done)

    def transfer(
        self, target: str | None, done: Done, *, cas: OpId | None = None, decision: tuple[int, int] = (0, 0)
    ) -> None:
        """Hand leadership to `target`, or to the most up-to-date voter; calls `done(new leader's uuid | Refused)`."""
        if (running := self._running_or_refuse(done)) is not None:
            running.callers.transfer(target, done, cas, decision)

    def read_barrier(self, done: Done) -> None:
        """Call `done(index | Refused)` when this leader is confirmed, and everything committed before the call is
        applied."""
        if (running := self._running_or_refuse(done)) is not None:
            running.callers.read_barrier(done)

    def wait_applied(self, index: int, done: Done) -> None:
        """Call `done(index | Refused)` when the entry at `index` is applied here, whichever replica leads."""
        if (running := self._running) is None:
            done(self.life.refusal())
            return
        running.mark_active()
        running.apply_committed()
        running.callers.reads.wait_index(index, running.callers.tick, self.applied_index, done)

    def wait_safe(self, hybrid_time: int, done: Done) -> None:
        """Call `done(hybrid_time | Refused)` when a snapshot at that time is complete here, also after any later
        failover.

        The safe time is the time of the last applied entry, because every later leader has that entry and writes above
        it. If a leader's log has no entry that late, it replicates an empty one; a follower waits for one.
        """
        if (running := self._running) is None:
            done(self.life.refusal())
            return
        if refusal := running.callers.refuse_snapshot(hybrid_time):
            done(refusal)
            return
        running.mark_active()
        running.apply_committed()
        running.callers.reads.wait_time(hybrid_time, running.callers.tick, self.applied_time, done)

    def _running_or_refuse(self, done: Done) -> ReadyExecutor | None:
        """The executor; None if the replica does not run: then `done` gets a refusal soon."""
        if not self.life.serving:
            refusal = self.life.refusal()
            self._environment.own_thread(lambda: done(refusal))
        return self._running

    # -------------------------------------------------------------------------------------------------------- log

    def anchor(self, index: int) -> Anchor:
        """Keep the log from `index` on until the anchor is released."""
        return self._files.log.anchor(index)

    def gc(self, done: Done | None = None) -> None:
        """Delete log that is no longer needed, off-thread; calls `done(bytes freed | Refused)`."""
        answer = done or (lambda _: None)
        if self._log_gc is None or not self.life.serving:
            answer(0)
        else:
            self._log_gc.collect(answer)

    def shrink_cache(self) -> None:
        """Memory is short: drop all entries from memory that are applied and can be read back from the log."""
        if self._executor is not None:
            self._executor.cache.trim(self.applied_index, 0)

    # ----------------------------------------------------------------------------------------------- what it tells

    def status(self) -> ReplicaStatus:
        """One consistent view of the replica."""
        executor, log = self._executor, self._files.log
        peers = () if executor is None else executor.core.peer_status()
        rested_ticks = 0 if executor is None else executor.rested_ticks
        return ReplicaStatus(
            tablet_id=self.tablet_id,
            uuid=self.uuid,
            phase=self.phase,
            role=self.role,
            term=self.term,
            leader_uuid=self.leader_uuid or "",
            last_logged=self.last_logged,
            commit_index=self.commit_index,
            commit_opid=self.commit_opid,
            applied_index=self.applied_index,
            applied_time=self.applied_time,
            flush_index=self._files.state_machine.flush_opid.index,
            first_index=log.first_index if executor is None else executor.cache.first_index,
            committed_config=self.committed_config,
            pending_config=None if executor is None else executor.core.pending_config,
            wal_bytes=log.size_bytes,
            writes_pending=0 if executor is None else len(executor.writer),
            error=self.error,
            withheld=self.withheld,
            quiet=self.life.serving and self.may_rest,
            peers=tuple(peer_status(peers, self._raft_options, rested_ticks)),
        )

    @property
    def phase(self) -> Phase:
        return self.life.phase

    @property
    def error(self) -> str:
        """The reason why the replica ended, with what an operator can do about it; empty if it has not ended."""
        return self.life.error

    @property
    def role(self) -> Role:
        """NON_PARTICIPANT until started, and after failure."""
        return Role.NON_PARTICIPANT if (running := self._running) is None else running.core.role

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads as far as it knows; only a read barrier confirms it."""
        return self.role is Role.LEADER

    @property
    def leader_uuid(self) -> str | None:
        return None if (running := self._running) is None else running.core.leader_uuid

    @property
    def leader_hint(self) -> str:
        """`uuid@host:port` of the leader as far as known; empty if unknown."""
        return "" if (running := self._running) is None else leader_hint(running.core)

    @property
    def term(self) -> int:
        return self._files.cmeta.term if self._executor is None else self._executor.core.term

    @property
    def committed_config(self) -> RaftConfig:
        return self._files.cmeta.committed_config if self._executor is None else self._executor.core.committed_config

    @property
    def active_config(self) -> RaftConfig:
        """The pending config if there is one, otherwise the committed one."""
        return self._files.cmeta.committed_config if self._executor is None else self._executor.core.active_config

    @property
    def commit_opid(self) -> OpId:
        """The last entry known to be committed; ZERO_OPID if its term is not in memory."""
        index = self.commit_index
        term = None if self._executor is None else self._executor.cache.term_at(index)
        return ZERO_OPID if term is None else OpId(term, index)

    @property
    def commit_index(self) -> int:
        machine = self._files.state_machine
        return machine.applied_opid.index if self._executor is None else self._executor.core.commit_index

    @property
    def applied_index(self) -> int:
        machine = self._files.state_machine
        return machine.applied_opid.index if self._executor is None else self._executor.applier.applied_index

    @property
    def applied_time(self) -> int:
        """Hybrid time of the last applied entry: the safe time."""
        return self._times.applied

    @property
    def heard_time(self) -> int:
        """Hybrid time up to which this follower has applied all that its leader wrote, as that leader said. It is no
        safe time: another leader may have written meanwhile, for as long as the deposed one does not know of it."""
        return max(self.applied_time, self._times.heard(self.applied_index))

    @property
    def withheld(self) -> OpId | None:
        """The end of the log that was lost, may have been acknowledged, and is not back yet; otherwise None."""
        if self._executor is not None:
            return self._executor.core.withheld
        return self._replay.withheld if self._replay is not None else None

    @property
    def last_logged(self) -> OpId:
        """The last received entry, durable or not."""
        return self._files.log.last if self._executor is None else self._executor.cache.last

    @property
    def without_room(self) -> Refused | None:
        """The refusal if the log or the metadata cannot be written now, because the disk is full or a resource
        exhausted."""
        full = (running := self._running) is not None and running.persister.full
        return running.persister.refusal if running is not None and full else None

    @property
    def cache_bytes(self) -> int:
        """Bytes of the entries in memory."""
        return 0 if self._executor is None else self._executor.cache.cached_bytes
