"""One replica: the Raft core, its log, its metadata and its state machine, held together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from nyala.replica.base import (
    ZERO_OPID,
    Code,
    DataState,
    EntryKind,
    OpId,
    RaftConfig,
    Refused,
    check,
    generation_of,
    limits,
    us_of_hybrid,
)
from nyala.replica.cmeta import decode_config, encode_config
from nyala.replica.raft import (
    AppendEntries,
    ConfigEdit,
    Message,
    RaftCore,
    Role,
)
from nyala.replica.wal import Anchor

from .absent import absent_reply
from .applier import Applier
from .bootstrap import recover
from .carrier import Carrier
from .collector import keep_from
from .gathering import Write
from .pending import Done
from .persister import Persister
from .status import Phase, ReplicaStatus, peer_status

_log = logging.getLogger("nyala.host")

_RETRY_TICKS = 20
"""How often a disk that is full or hangs is tried again, and leadership offered meanwhile."""
_COMPANY_TICKS = 4
"""How often a follower applies the few small writes that wait for company."""


class Replica(Carrier):
    """One member of one tablet's Raft group on one server.

    Invariants: nothing is promised (vote, acknowledgement, reply) before what backs it is durable here; entries are
    applied in order, each once, only when committed; every caller is answered exactly once, and an answer of
    NOT_APPLIED is never given for an entry that may yet be applied.
    Durability: terms, votes and configs through consensus metadata; entries through the log; all else is rebuilt.
    Concurrency: the owner's thread for everything except `bootstrap`; completions arrive through `post`.
    """

    def bootstrap(self) -> None:
        """Read the log into memory. Heavy: call it in a thread, once, before `start`. Raises Corruption."""
        check(self.phase is Phase.BOOTSTRAPPING and self._replay is not None, "a replica is bootstrapped once")
        machine = self._state_machine
        self._recovered = recover(
            self._replay,  # type: ignore[arg-type]
            flush_opid=machine.applied_opid,
            flush_time=machine.applied_time,
            cmeta=self._cmeta,
            cache_bytes_max=self.options.log_cache_bytes_max,
        )
        self._tell_if_ahead(self._recovered.last_time)
        self._clock.observe(self._recovered.last_time)

    def _tell_if_ahead(self, logged: int) -> None:
        """Say if the log's times are further ahead of this server's wall than a leader's may be. D-30."""
        ahead_us = self._clock.ahead_of_wall_us(logged)
        if logged and ahead_us > limits.CLOCK_AHEAD_OF_PEERS_US_MAX:
            _log.warning(
                "T %s P %s the log's times reach %s, %.1f s ahead of the wall here, more than %.0f s; later writes get "
                "times above them; set this server's clock right if it is behind",
                self.tablet_id,
                self.uuid,
                datetime.fromtimestamp(us_of_hybrid(logged) / 1e6, UTC).isoformat(timespec="seconds"),
                ahead_us / 1e6,
                limits.CLOCK_AHEAD_OF_PEERS_US_MAX / 1e6,
            )

    def start(self, *, campaign: bool = False) -> None:
        """Join the group. `campaign`: the hinted leader of a new tablet does not wait for a timeout, but must win."""
        recovered, replay = self._recovered, self._replay
        check(recovered is not None and replay is not None, "a replica starts after its bootstrap")
        if recovered is None or replay is None:
            return
        self._replay = self._recovered = None
        machine, self._cache = self._state_machine, recovered.cache
        self._applied_time = machine.applied_time
        self._last_time = recovered.last_time
        term, voted_for = self._promises()
        self._core = RaftCore(
            uuid=self.uuid,
            term=term,
            voted_for=voted_for,
            committed_config=recovered.committed_config,
            pending_config=recovered.pending_config,
            log=self._cache,
            commit_index=machine.applied_opid.index,
            options=self._raft_options,
            rng=self._rng,
            encode_config=encode_config,
            decode_config=decode_config,
            hybrid_now=self._clock.now,
            withhold_votes=term > 0 or self._cache.last.index > 0,
            withheld=replay.withheld,
            no_data=self._no_data,
        )
        self._core.applied_index = machine.applied_opid.index
        self._marked = replay.withheld is not None
        self._persister = Persister(
            cmeta=self._cmeta,
            log=self._log,
            run_meta=self._run_meta,
            post=self._post,
            on_entries=self._entries_durable,
            on_durable=self._ready_durable,
            on_error=self._failed,
            hang_ticks=2 * self._raft_options.election_ticks_max,
        )
        self._applier = Applier(
            state_machine=machine,
            cache=self._cache,
            log=self._log,
            run_heavy=self._run_heavy,
            bytes_max=self.options.apply_bytes_max,
            inline_bytes_max=self.options.apply_inline_bytes_max,
            on_applied=self._applied,
            on_error=self._failed,
        )
        self._started = True
        self._enter(Phase.CONFIGURING)
        if recovered.committed_config != self._cmeta.committed_config:
            self._persister.save_config(recovered.committed_config)
        if campaign:
            self._core.campaign()
        self._pump()

    def stop(self) -> None:
        """Answer all who wait with unknown outcomes and go silent. The log and the state machine are the caller's."""
        if self.phase is not Phase.STOPPED:
            self._fall_silent(Phase.STOPPED, Code.NOT_READY, "the replica is stopping")
            if self._started:
                self._cache.clear()  # this object may be in memory for long: others of the replica refer to it

    def _promises(self) -> tuple[int, str | None]:
        """Term and vote to start with. At or below the vote floor the vote counts as given, to nobody who asks."""
        term, voted_for, floor = self._cmeta.term, self._cmeta.voted_for, self._cmeta.vote_floor_term
        if floor > term:
            return floor, self.uuid
        return term, voted_for or (self.uuid if floor == term > 0 else None)

    def tick(self) -> None:
        """One tick of the host's monotonic clock."""
        if not self._serving:
            return
        self._tick += 1
        if self._tick % _COMPANY_TICKS == 0 or not self._may_wait():
            self._apply_committed()
        if not self._held_up():
            self._core.tick(self._ticks_now())
        if late := self._reads.expire(self._tick):
            self._core.drop_reads(late)
        self._persister.tick()
        if self._disk_stands and self._tick % _RETRY_TICKS == 0:
            self._disk_still_stands()
        self._pump()

    @property
    def resting(self) -> bool:
        """Whether nothing happens here with time: the group is quiet, and nobody waits for anything."""
        if not self._serving:
            return True
        behind = self._persister.waiting or self._applier.applied_index < self._committed
        writes = len(self._writes) + len(self._gathering)
        waits = writes or len(self._changes) or self._reads.waiting or self._transfer.waiting
        return self._core.quiet and not behind and not waits and not self._pump_scheduled and not self._persister.full

    def rest(self) -> bool:
        """Whether the owner may stop ticking, until `on_awake`."""
        if not self.resting:
            return False
        self._ticked = False
        self._resting_since = self._ticks_now()
        return True

    def link_lost(self, uuid: str, silent_ticks: int, delay_ticks: int = 0) -> None:
        """Nothing came from the server `uuid` for so many ticks; see `RaftCore.link_lost`."""
        if self._serving:
            self._core.link_lost(uuid, silent_ticks, delay_ticks)
            self._pump_if_awake()

    def link_found(self, uuid: str) -> None:
        """The server `uuid` is heard again, or is another process."""
        if self._serving:
            self._core.link_found(uuid)
            self._pump_if_awake()

    def check(self) -> None:
        """Look around if the group is quiet; now and then."""
        if self._serving:
            self._core.check()
            self._pump_if_awake()

    def _pump_if_awake(self) -> None:
        if not self._core.quiet:
            self._pump_soon()

    def step(self, message: Message) -> None:
        """One message of a peer. While there is no running core, AppendEntries are answered with the reason."""
        if not self._serving:
            self._answer_absent(message)
            return
        if self._held_up():
            return  # whatever it would make us promise waits for room; who sent it tries again
        if type(message) is AppendEntries and message.entries and message.to_uuid == self.uuid:
            size = sum(entry.size_bytes for entry in message.entries)
            if not self._persister.has_room(size):
                return  # the leader sends it again; blocking here would stop every tablet of this server
        if type(message) is AppendEntries and message.to_uuid == self.uuid:
            if self._from_the_future(message):
                return
            if message.entries:
                self._observe(message.entries)
        self._core.step(message)
        self._pump_soon()

    def _from_the_future(self, message: AppendEntries) -> bool:
        """Whether taking the message would push this server's clock too far; then it is dropped, and said once."""
        latest = max((entry.hybrid_time for entry in message.entries), default=0)
        ahead_us = self._clock.ahead_us(max(latest, message.safe_time))
        if ahead_us <= limits.CLOCK_AHEAD_OF_PEERS_US_MAX:
            self._told_future = False
            return False
        if not self._told_future:
            self._told_future = True
            _log.warning(
                "T %s P %s dropped an append of %s: its time is %.1f s ahead of the clock here, more than %.0f s; "
                "compare the clocks of both servers",
                self.tablet_id,
                self.uuid,
                message.from_uuid,
                ahead_us / 1e6,
                limits.CLOCK_AHEAD_OF_PEERS_US_MAX / 1e6,
            )
        return True

    def write(self, kind: EntryKind, schema_id: int, meta: bytes, payload: bytes, payload_crc: int, done: Done) -> None:
        """Replicate and apply one entry; `done(apply's result | Refused)`, once, never before this returns.

        A Refused with UNKNOWN may yet be applied: only a request that the state machine's ledger knows may be repeated.
        """
        size = len(meta) + len(payload) + 64
        refusal = self._admit(size)
        if refusal is not None:
            self._soon(lambda: done(refusal))
            return
        write = Write(kind, schema_id, meta, payload, payload_crc, size, done)
        if not self._gathering.holds_back(write):
            self._propose([*self._gathering.take(), write])

    def change_config(
        self, edits: Sequence[ConfigEdit], cas: OpId | None, decision: tuple[int, int], done: Done
    ) -> None:
        """Change the members; `done(RaftConfig | Refused)` once committed. `cas`: OpId of the committed config seen."""
        try:
            self._check_serving()
            opid = self._core.propose_config(edits, cas, decision)
        except Refused as error:
            refusal = self._with_hint(error)
            self._soon(lambda: done(refusal))
        else:
            self._changes.add(opid, 0, done)
        self._pump_soon()

    def abort_change(self, pending: OpId | None, done: Done) -> None:
        """Take back a config change that is not committed; `done(RaftConfig | Refused)` once the old one holds again.

        `pending`: OpId of the change that is meant; None: whichever is under way.
        """
        try:
            self._check_serving()
            opid = self._core.abort_config(pending)
        except Refused as error:
            refusal = self._with_hint(error)
            self._soon(lambda: done(refusal))
        else:
            self._changes.add(opid, 0, done)
        self._pump_soon()

    def transfer(
        self, target: str | None, done: Done, *, cas: OpId | None = None, decision: tuple[int, int] = (0, 0)
    ) -> None:
        """Hand leadership to `target`, or to the most up-to-date voter; `done(new leader's uuid | Refused)`."""
        try:
            self._check_serving()
            self._check_decision(cas, decision)
            self._core.transfer_leadership(target)
        except Refused as error:
            refusal = self._with_hint(error)
            self._soon(lambda: done(refusal))
            return
        self._transfer.begin(self._tick, target, done)
        self._pump_soon()

    def read_barrier(self, done: Done) -> None:
        """`done(index | Refused)`: this is the leader, and everything committed before the call is applied."""
        if not self._serving:
            refusal = self._not_serving()
            self._soon(lambda: done(refusal))
            return
        self._reads.barrier(lambda token: self._core.read_index(token, self._ticks_now()), self._tick, done)
        self._pump_soon()

    def wait_applied(self, index: int, done: Done) -> None:
        """`done(index | Refused)` once the entry at `index` is applied here, whoever leads."""
        if not self._serving:
            done(self._not_serving())
            return
        self._stir()
        self._apply_committed()
        self._reads.wait_index(index, self._tick, self.applied_index, done)

    def wait_safe(self, hybrid_time: int, done: Done) -> None:
        """`done(hybrid_time | Refused)`: a snapshot at that time is complete here, and stays so after any failover.

        The safe time is the time of the last applied entry, because every later leader has that entry and writes above
        it. A leader with nothing newer in its log replicates an empty entry; a follower waits for one.
        """
        if not self._serving:
            done(self._not_serving())
            return
        if self._applied_time < hybrid_time and self._last_time < hybrid_time and self.is_leader:
            if hybrid_time > self._clock.now() + self.options.future_time_max:
                done(Refused(Code.INVALID_ARGUMENT, "the time lies in the future", hybrid_time=hybrid_time))
                return
            if self._persister.full:
                done(Refused(Code.NO_SPACE, "the disk is full"))
                return
            self._clock.observe(hybrid_time)
            time = self._clock.now()
            try:
                self._core.propose(EntryKind.NOOP, time, 0, b"", b"", 0)
            except Refused as error:
                done(self._with_hint(error))
                return
            self._last_time = time
            self._pump_soon()
        self._stir()
        self._apply_committed()
        self._reads.wait_time(hybrid_time, self._tick, self._applied_time, done)

    def anchor(self, index: int) -> Anchor:
        """Keep the log from `index` on until the anchor is released."""
        return self._log.anchor(index)

    def release(self, anchor: Anchor) -> None:
        """Let go of an anchor; twice is harmless."""
        anchor.release()

    def gc(self, done: Done | None = None) -> None:
        """Delete log that nobody needs, off-thread; `done(bytes freed | Refused)`."""
        answer = done or (lambda _: None)
        if not self._serving or self._gc_running:
            answer(0)
            return
        index = keep_from(
            flush_index=self._state_machine.flush_opid.index,
            config_saved_index=self._cmeta.committed_config.opid.index,
            config_committed_index=self._core.committed_config.opid.index,
            peers_match=[peer.match_index for peer in self._core.peer_status() if not peer.needs_copy],
            segments=self._log.segments(),
            retain_entries=self.options.log_retain_entries,
            retain_bytes_max=self.options.log_retain_bytes_max,
        )
        self._gc_running = True

        def collected(result: int | BaseException) -> None:
            self._gc_running = False
            if isinstance(result, BaseException):
                self._failed(result)
                return
            if self._serving and self._log.first_index:
                self._cache.collected(self._log.first_index)
            answer(result)

        self._run_heavy(lambda: self._log.gc(index), collected)

    def shrink_cache(self) -> None:
        """Memory is short: keep nothing in memory that is applied and can be read back from the log."""
        if self._started:
            self._cache.trim(self.applied_index, 0)

    @property
    def cache_bytes(self) -> int:
        """Bytes of the entries that are in memory."""
        return self._cache.cached_bytes if self._started else 0

    def _held_up(self) -> bool:
        """Whether the disk holds up so much that this replica must be silent: bundles behind it take memory."""
        return self._disk_stands and self._persister.waiting >= self.options.held_bundles_max

    def _disk_still_stands(self) -> None:
        """Let another lead, whose writers would wait here in vain, and try again.

        If the disk hangs, only where the others are ahead: it may be all of theirs that is slow.
        """
        core = self._core
        if core.role is not Role.LEADER:
            self._leadership_lost()  # it may have been lost before the disk was known to stand
        elif core.transfer_target is None and (self._persister.full or core.commit_index > core.persisted_index):
            with suppress(Refused):
                core.transfer_leadership(None)
        self._persister.retry()

    def _answer_absent(self, message: Message) -> None:
        if self.phase is Phase.STOPPED or generation_of(message.term) < generation_of(self._cmeta.term):
            return  # a member that was lost and given up is not even told the term (D-17)
        reply = absent_reply(
            message,
            uuid=self.uuid,
            data_state=DataState.READY,
            kept_term=self._cmeta.term,
            failed=self.phase is Phase.FAILED,
        )
        if reply is not None:
            self._send([(self.tablet_id, reply)])

    def fail(self, error: BaseException) -> None:
        """Something outside found this replica's data unusable: a block, a folder, a bootstrap that raised."""
        self._failed(error)

    def _admit(self, size_bytes: int) -> Refused | None:
        """Why a write gets no index now, or None."""
        if not self._serving:
            return self._not_serving()
        options = self.options
        count, size = len(self._writes) + len(self._gathering), self._writes.bytes + self._gathering.bytes
        if count >= options.writes_pending_max or (size + size_bytes > options.write_bytes_pending_max and count):
            return Refused(Code.OVERLOADED, "too many writes wait", writes=count, bytes=size)
        return self._no_room(size_bytes)

    def _not_serving(self) -> Refused:
        code = Code.TABLET_FAILED if self.phase is Phase.FAILED else Code.NOT_READY
        return Refused(code, self.error or "the replica does not run", phase=self.phase.value)

    def _check_serving(self) -> None:
        if not self._serving:
            raise self._not_serving()

    def _check_decision(self, cas: OpId | None, decision: tuple[int, int]) -> None:
        config = self._core.committed_config
        if cas is not None and cas != config.opid:
            raise Refused(Code.CAS_FAILED, "another config is in force", detail=str(config.opid), expected=cas)
        if decision != (0, 0) and decision < config.decision:
            raise Refused(Code.STALE_DECISION, "a later decision was carried out", decision=config.decision)

    def status(self) -> ReplicaStatus:
        """One consistent view."""
        started = self._started
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
            applied_time=self._applied_time,
            flush_index=self._state_machine.flush_opid.index,
            first_index=self._cache.first_index if started else self._log.first_index,
            committed_config=self.committed_config,
            pending_config=self._core.pending_config if started else None,
            wal_bytes=self._log.size_bytes,
            cache_bytes=self.cache_bytes,
            writes_pending=len(self._writes) + len(self._gathering),
            error=self.error,
            quiet=self._serving and self.resting,
            peers=tuple(peer_status(self._core.peer_status(), self._raft_options, self._rested_ticks()))
            if started
            else (),
        )

    def _rested_ticks(self) -> int:
        now = self._ticks_now()
        return 0 if self._ticked or now is None or self._resting_since is None else now - self._resting_since

    @property
    def role(self) -> Role:
        """NON_PARTICIPANT until started, and after failure."""
        return self._core.role if self._serving else Role.NON_PARTICIPANT

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads as far as it knows; only a read barrier confirms it."""
        return self._serving and self._core.role is Role.LEADER

    @property
    def term(self) -> int:
        return self._core.term if self._started else self._cmeta.term

    @property
    def committed_config(self) -> RaftConfig:
        return self._core.committed_config if self._started else self._cmeta.committed_config

    @property
    def active_config(self) -> RaftConfig:
        """The pending config if there is one, otherwise the committed one."""
        return self._core.active_config if self._started else self._cmeta.committed_config

    @property
    def leader_hint(self) -> str:
        """`uuid@host:port` of the leader as far as known; empty if not."""
        return self._leader_hint() if self._started else ""

    @property
    def commit_opid(self) -> OpId:
        """The last entry known to be committed; ZERO_OPID while its term is not at hand."""
        index = self.commit_index
        term = self._cache.term_at(index) if self._started else None
        return ZERO_OPID if term is None else OpId(term, index)

    @property
    def commit_index(self) -> int:
        return self._core.commit_index if self._started else self._state_machine.applied_opid.index

    @property
    def applied_time(self) -> int:
        """Hybrid time of the last applied entry: the safe time."""
        return self._applied_time

    @property
    def withheld(self) -> OpId | None:
        """The damaged end of its log, while nobody brought it back: it may have been acknowledged."""
        if self._started:
            return self._core.withheld
        return self._replay.withheld if self._replay is not None else None

    @property
    def last_logged(self) -> OpId:
        """Last entry received, durable or not."""
        return self._cache.last if self._started else self._log.last
