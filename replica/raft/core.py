"""`RaftCore`, the public interface of one replica's consensus: it passes inputs on to the rules in the other
modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nyala.replica.types import Code, ConfigEdit, EntryKind, OpId, RaftConfig, Rng, check, generation_of, limits

from . import aborting, election, following, lease, membership, message_checks, quiet, reads, replication, transfer
from .commitment import advance_commit
from .log_view import EntriesUnavailable, LogView
from .messages import AppendEntries, AppendReply, Message, VoteReply, VoteRequest
from .options import RaftOptions
from .persistent_state import PersistentState
from .progress import ProgressState
from .ready import PeerStatus, Ready, Role
from .roles import become_follower, config_in_force, settle_configs
from .state import State


class RaftCore:
    """One replica of one group, without I/O: messages, ticks and completions in, `Ready` out.

    `encode_config`/`decode_config` turn a RaftConfig into the `meta` of a CONFIG entry and back. `hybrid_now` issues
    the hybrid time of entries that the core itself makes (NOOP, promotion) and of `safe_time`; without it, times just
    above the last entry's are used. `withheld` is the OpId of a damaged tail that may have been acknowledged: the
    replica neither votes nor campaigns until its durable log has reached it. `no_data`: a witness's disk; the replica
    logs and votes, and never leads. `yields()`: whether others shall lead, as long as one of them can. Entries up to
    `commit_index` are applied, or the driver knows that they are committed: `Ready.committed` begins above it.
    """

    def __init__(
        self,
        *,
        uuid: str,
        term: int,
        voted_for: str | None,
        committed_config: RaftConfig,
        pending_config: RaftConfig | None,
        log: LogView,
        commit_index: int,
        options: RaftOptions,
        rng: Rng,
        encode_config: Callable[[RaftConfig], bytes],
        decode_config: Callable[[bytes], RaftConfig],
        hybrid_now: Callable[[], int] | None = None,
        withhold_votes: bool = False,
        withheld: OpId | None = None,
        no_data: bool = False,
        yields: Callable[[], bool] = lambda: False,
    ) -> None:
        last, saved_term = log.last, term
        if term < last.term:
            # The entries reached the disk and the hard state of the same `Ready` did not. No vote or acknowledgement of
            # that term was sent.
            term, voted_for = last.term, None
        found = _configs_in_log(log, committed_config.opid.index, decode_config)
        self._s = s = State(
            uuid=uuid,
            hard=PersistentState(
                term=term,
                voted_for=voted_for,
                configs=membership.initial_configs(committed_config, pending_config, found),
                withheld=withheld,
                no_data=no_data,
                term_found=term,
                dirty=saved_term < term,
            ),
            log=log,
            # A commit index above the end of the log is left from a lost tail. Missing entries are not applied.
            commit_index=min(commit_index, last.index),
            options=options,
            rng=rng,
            encode_config=encode_config,
            decode_config=decode_config,
            hybrid_now=hybrid_now,
            yields=yields,
        )
        s.commit_index = max(s.commit_index, min(committed_config.opid.index, last.index))
        s.election.withhold_until = options.election_ticks_min if withhold_votes else 0
        s.election.restart_timer()
        settle_configs(s)
        config_in_force(s)
        s.out.role_from = None
        s.heal_withheld()

    # ------------------------------------------------------------------------------------------------ what it is

    @property
    def uuid(self) -> str:
        return self._s.uuid

    @property
    def role(self) -> Role:
        return self._s.role

    @property
    def term(self) -> int:
        return self._s.hard.term

    @property
    def voted_for(self) -> str | None:
        return self._s.hard.voted_for

    @property
    def leader_uuid(self) -> str | None:
        """The leader of this term, if known."""
        return self._s.leader_uuid

    @property
    def commit_index(self) -> int:
        return self._s.commit_index

    @property
    def applied_index(self) -> int:
        """The last applied index, set by the driver and sent in replies."""
        return self._s.applied_index

    @applied_index.setter
    def applied_index(self, index: int) -> None:
        self._s.applied_index = index

    @property
    def persisted_index(self) -> int:
        """The last index up to which the log is durable."""
        return self._s.persisted

    @property
    def last(self) -> OpId:
        """The OpId of the last received entry."""
        return self._s.last

    @property
    def log(self) -> LogView:
        return self._s.log

    @property
    def active_config(self) -> RaftConfig:
        """The config in force: the pending one if there is one, otherwise the committed one."""
        return self._s.hard.active_config

    @property
    def committed_config(self) -> RaftConfig:
        return self._s.hard.configs[0]

    @property
    def pending_config(self) -> RaftConfig | None:
        return self._s.hard.pending_config

    @property
    def term_committed(self) -> bool:
        """Leader: whether an entry of its own term is committed, so that writes and config changes are accepted."""
        return self._s.role is Role.LEADER and self._s.commit_index >= self._s.lead.term_start

    @property
    def transfer_target(self) -> str | None:
        return self._s.lead.transfer_target

    @property
    def quiet(self) -> bool:
        """Whether the timers are stopped, so that `tick` is not needed until another input arrives. See quiet.py."""
        return self._s.quiet

    @property
    def withheld(self) -> OpId | None:
        """The damaged tail of the log that may have been acknowledged; None if there is none or it is healed. D-7."""
        return self._s.hard.withheld

    def peer_status(self) -> list[PeerStatus]:
        """Leader: the status of each peer, sorted by uuid; otherwise empty."""
        return [
            PeerStatus(
                uuid=p.uuid,
                state=str(p.state),
                match_index=p.match,
                next_index=p.next,
                contact_ticks=p.contact_ticks,
                needs_copy=p.state is ProgressState.COPY,
                data_state=p.data_state,
                last_code=p.last_code,
                applied_index=p.applied_index,
                commit_index=p.commit_index,
                caught_up=p.caught_up,
                absent=p.uuid in self._s.absent,
            )
            for p in self._s.lead.progress.values()
        ]

    # ---------------------------------------------------------------------------------------------------- inputs

    def tick(self, now: int | None = None) -> None:
        """Count one tick of the driver's monotonic clock. `now`: that clock in ticks, by which leases are judged
        (lease.py).

        The driver does not make up for missed ticks in bursts: any n of them last more than n - TICK_SLACK periods.
        """
        s = self._s
        lease.observe_clock(s, now)
        if s.quiet:
            return
        s.ticks += 1
        if s.role is Role.LEADER:
            replication.tick_leader(s)
        else:
            election.tick_passive(s)

    def refusal(self, msg: Message) -> str:
        """Why `msg` cannot come from an honest peer; empty if it can. Changes nothing. See message_checks.py."""
        return message_checks.invalid_reason(msg) or message_checks.conflict_reason(self._s, msg)

    def step(self, msg: Message) -> None:
        """Handle one message of a peer.

        Call `refusal` first, and drop the message if it returns a reason. Then an invariant that breaks below is a bug
        of ours. The receiver's name is checked first, then the term, then the content. TC-22.
        """
        s = self._s
        if msg.to_uuid != s.uuid:
            s.trace(f"message for {msg.to_uuid} from {msg.from_uuid} refused")
            if isinstance(msg, AppendEntries):
                self._answer(msg, Code.INVALID_NAME)
            return
        if generation_of(msg.term) != generation_of(s.hard.term):
            # There is no answer, because it would name the term, and lost members could then elect one of themselves.
            # D-17.
            s.trace(f"message of term {msg.term} from {msg.from_uuid} is of another generation")
            return
        if message_checks.is_stranger(s.hard, msg):
            s.trace(f"{type(msg).__name__} of {msg.from_uuid}, who has no say here, is not counted")
            return
        if quiet.disturbs(s, msg):
            quiet.wake(s, f"{type(msg).__name__} of {msg.from_uuid}")
        if isinstance(msg, VoteRequest):
            election.on_vote_request(s, msg)
            return
        if msg.term < s.hard.term:
            if isinstance(msg, AppendEntries):
                self._answer(msg, Code.INVALID_TERM)
            return
        if msg.term > s.hard.term and not (isinstance(msg, VoteReply) and msg.granted):
            # A granted vote for a later term is a granted pre-vote: it names the term that we asked for.
            become_follower(s, msg.term, None, f"term of {msg.from_uuid}")
        if isinstance(msg, AppendEntries):
            following.on_append(s, msg)
        elif isinstance(msg, AppendReply):
            replication.on_append_reply(s, msg)
        elif isinstance(msg, VoteReply):
            election.on_vote_reply(s, msg)
        else:
            election.on_timeout_now(s, msg)

    def campaign(self) -> None:
        """Start an election (with pre-vote) now, not at the timeout; for the hinted leader of a new group. X-19.

        It does nothing on a leader, on a replica that may not campaign, or while this voter withholds votes: after a
        restart, or because it heard a leader, which may hold a lease.
        """
        s = self._s
        if election.yields(s):
            return
        heard = s.election.ticks_since_leader < s.options.election_ticks_min
        if s.role is not Role.LEADER and s.ticks >= s.election.withhold_until and not heard:
            election.campaign(s)

    def propose(
        self, kind: EntryKind, hybrid_time: int, schema_id: int, meta: bytes, payload: bytes, payload_crc: int
    ) -> OpId:
        """Append one entry. Refused NOT_LEADER (detail: leader uuid), NOT_READY or STEPPING_DOWN.

        The caller draws `hybrid_time` right before the call, on the owner's thread, so that entries' times ascend with
        their indexes. For CONFIG entries, call `propose_config`.
        """
        check(kind is not EntryKind.CONFIG, "configs are proposed by their edits")
        transfer.check_open(self._s)
        return self._s.append_own(kind, hybrid_time, schema_id, meta, payload, payload_crc)

    def propose_config(self, edits: Sequence[ConfigEdit], cas: OpId | None, decision: tuple[int, int] = (0, 0)) -> OpId:
        """Append one config change; `cas` is the OpId of the committed config that the caller knows.

        Refused, with nothing changed: NOT_LEADER, NOT_READY (no entry of this term is committed, or the change removes
        the leader and no other voter can lead), CHANGE_PENDING, CAS_FAILED (detail: the committed OpId),
        STALE_DECISION, INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS; STEPPING_DOWN: leadership is being handed over
        (also because this change removes the leader), so the caller tries again at the next leader.
        """
        return membership.propose_config(self._s, edits, cas, decision)

    def abort_config(self, pending: OpId | None) -> OpId:
        """Take an uncommitted config change back: append the committed config once more. D-19.

        `pending` is the OpId of the change that the caller wants to take back. Refused, with nothing changed:
        NOT_LEADER, NOT_FOUND (no change is under way: it was committed, or never made), CAS_FAILED (detail: the one
        under way), NOT_READY, STEPPING_DOWN, ALREADY_INPROGRESS. If the change commits before this entry does, it holds
        until this entry commits.
        """
        return aborting.abort_config(self._s, pending)

    @property
    def aborted(self) -> OpId | None:
        """The change that this replica took back last, as a leader."""
        return self._s.lead.aborted

    def transfer_leadership(self, target: str | None) -> None:
        """Hand over to target, or to the most up-to-date voter. If this leader is the target, nothing happens.

        Refused NOT_LEADER, ALREADY_INPROGRESS, NOT_FOUND, INVALID_ARGUMENT (cannot lead), ILLEGAL_STATE (needs a copy),
        NOT_READY (no target). Writes are refused until the term ends or one minimum election timeout has passed.
        The transfer waits for an uncommitted change of voters, and takes it back if it is older than that timeout.
        D-19.
        """
        transfer.transfer_leadership(self._s, target)

    def read_index(self, token: int, now: int | None = None) -> None:
        """A strong read; answered under `token` in `Ready.read_states` or `Ready.read_failures`.

        `now`: the monotonic clock in ticks, read for this very call, as with `tick`. With it, a leader that holds a
        lease answers at once; without it, or without a lease, a round of heartbeats confirms that it leads.
        """
        lease.observe_clock(self._s, now)
        reads.read_index(self._s, token, judged=now is not None)

    def server_silent(self, uuid: str, silent_ticks: int, delay_ticks: int = 0) -> None:
        """Note that the driver has heard nothing of any group from the server `uuid` for `silent_ticks` of its ticks.

        `delay_ticks`: the delay before a follower that this call wakes campaigns, so that not all groups do so at once.
        """
        quiet.server_silent(self._s, uuid, silent_ticks, delay_ticks)

    def server_heard(self, uuid: str) -> None:
        """Note that the server `uuid` is heard again, or that its process is another one than before."""
        quiet.server_heard(self._s, uuid)

    def probe_quiet_group(self) -> None:
        """Make sure that a quiet group still has its leader; called about once a minute. See quiet.py."""
        quiet.probe_quiet_group(self._s)

    def drop_reads(self, tokens: Sequence[int]) -> None:
        """Forget these reads, whose callers no longer wait; unknown tokens are ignored."""
        self._s.lead.drop_reads(frozenset(tokens))

    # ----------------------------------------------------------------------------------------------- completions

    def persisted(self, opid: OpId) -> None:
        """Note that the log is durable through `opid`; ignored if the log no longer has that OpId."""
        s = self._s
        if s.log.term_at(opid.index) == opid.term:
            s.note_persisted(opid.index)
            advance_commit(s)

    def advance(self, ready: Ready) -> None:
        """Note that this `Ready` and all before it are durable, and their after-persist messages sent. In order, once
        each."""
        s = self._s
        s.out.advance(ready.number)
        if ready.entries:
            s.note_persisted(ready.entries[-1].opid.index)
            s.lead.sends_wanted = True  # a witness is sent what is durable here
        election.on_own_vote_durable(s)
        advance_commit(s)

    def entries_loaded(self) -> None:
        """Send the evicted entries that are back in the LogView to the peers that waited for them."""
        replication.entries_loaded(self._s)

    # --------------------------------------------------------------------------------------------------- outputs

    def has_ready(self) -> bool:
        """Whether `ready()` would return a `Ready`."""
        replication.flush(self._s)
        return self._s.has_output()

    def ready(self) -> Ready | None:
        """The next `Ready`, or None."""
        return self._s.take_ready() if self.has_ready() else None

    def _answer(self, msg: AppendEntries, code: Code) -> None:
        s = self._s
        reply = AppendReply(
            to_uuid=msg.from_uuid, from_uuid=s.uuid, term=s.hard.term, code=code, last=s.last, round=msg.round
        )
        s.send(reply)


def _configs_in_log(log: LogView, after: int, decode_config: Callable[[bytes], RaftConfig]) -> list[RaftConfig]:
    """Configs of the CONFIG entries above `after`, as far as their bytes are in memory."""
    found: list[RaftConfig] = []
    index = max(after + 1, log.first_index)
    while index <= log.last.index:
        try:
            entries = log.entries(index, log.last.index + 1, limits.APPEND_BATCH_BYTES_MAX)
        except EntriesUnavailable:
            index += 1
            continue
        found += [decode_config(e.meta).with_opid(e.opid) for e in entries if e.kind is EntryKind.CONFIG]
        index += len(entries)
    return found
