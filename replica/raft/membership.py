"""One-at-a-time membership change [thesis §4; kudu raft-config-change].

At most one voter is added, removed, promoted or demoted per entry, so any majorities of two consecutive configs
overlap. A leader proposes no change before an entry of its own term is committed (the known defect of single-server
changes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nyala.replica.types import (
    Code,
    ConfigEdit,
    EditKind,
    EntryKind,
    Member,
    OpId,
    RaftConfig,
    Refused,
    limits,
)

from .message_checks import invalid_config_reason
from .progress import Progress, ProgressState
from .ready import Role
from .roles import config_in_force
from .state import State
from .transfer import abort_transfer, check_open, transfer_leadership


def propose_config(s: State, edits: Sequence[ConfigEdit], cas: OpId | None, decision: tuple[int, int]) -> OpId:
    """Check and append one config change; see `RaftCore.propose_config` for the refusals."""
    check_open(s)
    if s.hard.pending_config is not None:
        raise Refused(Code.CHANGE_PENDING, "a config change is under way", pending=s.hard.pending_config.opid)
    base = s.hard.active_config
    if decision != (0, 0) and decision <= base.decision:
        raise Refused(
            Code.STALE_DECISION, "this decision or a later one was carried out", decision=decision, seen=base.decision
        )
    if cas is not None and cas != base.opid:
        raise Refused(Code.CAS_FAILED, "another config is committed", detail=str(base.opid), expected=cas)
    members = edited_members(base, edits)
    _refuse_data_unseen(s, members)
    _refuse_losing_leader(s, members)
    return append_config(s, members, max(decision, base.decision))


def edited_members(base: RaftConfig, edits: Sequence[ConfigEdit]) -> tuple[Member, ...]:
    """The members after all edits, sorted by uuid; Refused if any edit, or all of them together, is not allowed."""
    if not edits:
        raise Refused(Code.INVALID_ARGUMENT, "no edit given")
    if len({edit.member.uuid for edit in edits}) != len(edits):
        raise Refused(Code.INVALID_ARGUMENT, "two edits of one member")
    members = {m.uuid: m for m in base.members}
    for edit in edits:
        _edit(members, edit)
    voters = {m.uuid for m in members.values() if m.votes}
    moved = sorted(voters.symmetric_difference(base.voters))
    if len(moved) > 1:
        raise Refused(Code.INVALID_ARGUMENT, "one voter at a time", voters_changed=moved)
    edited = tuple(members[uuid] for uuid in sorted(members))
    _refuse_what_others_refuse(base, edited)
    return edited


def _edit(members: dict[str, Member], edit: ConfigEdit) -> None:
    new, old = edit.member, members.get(edit.member.uuid)
    if edit.kind == EditKind.ADD:
        if old is not None:
            raise Refused(Code.ALREADY_EXISTS, "a member already", uuid=new.uuid)
        members[new.uuid] = new
        return
    if old is None:
        raise Refused(Code.NOT_FOUND, "not a member", uuid=new.uuid)
    if edit.kind == EditKind.REMOVE:
        del members[new.uuid]
        return
    new = new if new.addresses else replace(new, addresses=old.addresses)
    if new == old:
        raise Refused(Code.INVALID_ARGUMENT, "changes nothing", uuid=new.uuid)
    members[new.uuid] = new


def _refuse_what_others_refuse(base: RaftConfig, members: tuple[Member, ...]) -> None:
    """Refuse a config that followers would refuse: its entry would stay in the log, and no later one be replicated.

    A config that has too many members already may become smaller, or get marks.
    """
    most = max(limits.CONFIG_MEMBERS_PROPOSED_MAX, len(base.members))
    if len(members) > most:
        what = "too many members; nothing was appended: remove one first"
        raise Refused(Code.INVALID_ARGUMENT, what, members=len(members), max=limits.CONFIG_MEMBERS_PROPOSED_MAX)
    if why := invalid_config_reason(RaftConfig(base.opid, members, base.decision)):
        raise Refused(Code.INVALID_ARGUMENT, "no such config can be; nothing was appended", why=why)


def _refuse_data_unseen(s: State, members: tuple[Member, ...]) -> None:
    """Refuse to clear a witness's mark before it has its rows, because a member with rows can be elected. CC-53."""
    for new in members:
        old = s.hard.active_config.member(new.uuid)  # a witness never leads, so the leader has a Progress of it
        if old is not None and not old.holds_data and new.holds_data and not s.lead.progress[new.uuid].has_data:
            raise Refused(Code.NOT_READY, "the witness does not have its data yet", uuid=new.uuid)


def _refuse_losing_leader(s: State, members: tuple[Member, ...]) -> None:
    """Refuse a change that removes this leader: it hands over, and the caller repeats the change (CC-27). A leader is
    never demoted, nor made a witness in place (scenario 25). D-8."""
    mine = next((m for m in members if m.uuid == s.uuid), None)
    if mine is not None:
        if not mine.votes or not mine.holds_data:
            raise Refused(Code.INVALID_ARGUMENT, "the leader cannot be demoted: transfer leadership first", uuid=s.uuid)
        return
    transfer_leadership(s, None)
    raise Refused(Code.STEPPING_DOWN, "the leader hands over before it is removed", detail=str(s.lead.transfer_target))


def append_config(s: State, members: tuple[Member, ...], decision: tuple[int, int]) -> OpId:
    """Leader: append an entry that makes `members` the config, in force from now on."""
    opid = OpId(s.hard.term, s.last.index + 1)
    config = RaftConfig(opid, members, decision)
    s.append_own(EntryKind.CONFIG, s.next_hybrid_time(), 0, s.encode_config(config), b"", 0)
    adopt_config(s, config)
    s.lead.pending_since = s.ticks
    return opid


def adopt_config(s: State, config: RaftConfig) -> None:
    """Put the config of a received or proposed CONFIG entry in force, committed or not. CC-16."""
    if config.opid.index <= s.hard.configs[0].opid.index:
        return  # A tablet copy may bring a committed config whose index is above the end of its log.
    s.hard.configs.append(config)
    s.trace(f"config {config.opid}: voters {','.join(config.voters)}")
    config_in_force(s)
    if s.role is Role.LEADER:
        refresh_progress(s)


def refresh_progress(s: State) -> None:
    """Leader: keep one Progress for each other member, in sorted order."""
    kept = s.lead.progress
    s.lead.progress = {
        uuid: kept.get(uuid) or Progress(uuid, s.options, next=s.last.index + 1, round_started=s.ticks)
        for uuid in sorted(m.uuid for m in s.hard.active_config.members)
        if uuid != s.uuid
    }
    if s.lead.transfer_target not in (None, *s.voters):
        abort_transfer(s, "the target is no voter any more")


def promote_caught_up(s: State) -> None:
    """Leader: propose the next step of one caught-up `promote` member; the others wait for its commit. CC-13, CC-14.

    A non-voter becomes a voter. A witness becomes a voter without data, and loses the mark once it has its rows. CC-53.
    """
    if s.hard.pending_config is not None or s.lead.transfer_target is not None or s.commit_index < s.lead.term_start:
        return
    for member in sorted((m for m in s.hard.active_config.members if m.promote), key=_uuid):
        p = s.lead.progress[member.uuid]
        whole = member.holds_data or p.has_data
        if not _fit_to_vote(s, p):
            continue
        if (member.votes and not whole) or (member.holds_data and p.data_from is None):
            continue  # its disk has no rows, whatever the config says
        s.trace(f"promote {member.uuid}" + ("" if whole else ", a witness"))
        voter = replace(member, votes=True, promote=not whole, holds_data=whole)
        members = tuple(voter if m.uuid == voter.uuid else m for m in s.hard.active_config.members)
        append_config(s, members, s.hard.active_config.decision)
        return


def _fit_to_vote(s: State, p: Progress) -> bool:
    """Whether the last round was short, the present one is not too long already, and the peer's log continues ours."""
    fresh = p.caught_up and s.ticks - p.round_started <= s.options.promote_round_ticks_max
    return fresh and p.state is ProgressState.REPLICATE


def _uuid(member: Member) -> str:
    return member.uuid


def initial_configs(committed: RaftConfig, pending: RaftConfig | None, found: Sequence[RaftConfig]) -> list[RaftConfig]:
    """The stack of configs at start: the committed one, then those of later CONFIG entries in the log, in order."""
    later = {c.opid.index: c for c in found}
    if pending is not None and pending.opid.index > committed.opid.index:
        later.setdefault(pending.opid.index, pending)
    return [committed, *(later[index] for index in sorted(later))]
