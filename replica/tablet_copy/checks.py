"""Checks whether a copy may start, and whether it may come from this source. Pure, run before anything is changed.

Kudu's text deletes and creates before it checks the term. Then a stale leader could delete a healthy replica, and a
failed check would leave COPYING without a job. So every check comes first, in this order: name, copy in progress, term,
data state, last OpId, leader [kudu raft-tablet-copy, "Auto-vivifying Tablet Copy protocol"].
"""

from __future__ import annotations

from dataclasses import dataclass

from nyala.replica.types import ZERO_OPID, Code, DataState, OpId, RaftConfig, Refused, limits

INTACT = "INTACT"
"""The `Refused.detail` of an offer that would replace an intact replica and may not."""


@dataclass(frozen=True, kw_only=True)
class CopyRequest:
    """What the caller of StartTabletCopy knows of the replica; `last_opid` only if that is to be compared, too."""

    dest_uuid: str
    from_uuid: str
    tablet_id: str
    term: int
    current_state: DataState
    last_opid: OpId | None = None
    log_only: bool = False
    """The replica is to become a witness."""
    config: OpId = ZERO_OPID
    """The position of the config because of which the caller wants the copy, committed or not; 0.0 if it names none."""


@dataclass(frozen=True, kw_only=True)
class HealthyReplica:
    """What a running replica knows of its group. Any process may ask for a copy over it, and may be its source."""

    leader_uuid: str
    """The leader that it follows in its present term, or itself; empty without one."""
    configs: tuple[RaftConfig, ...]
    """The active and the committed config."""
    committed: OpId

    def votes(self, uuid: str) -> bool:
        """Whether the server votes in one of the configs."""
        return any(uuid in config.voters for config in self.configs)


@dataclass(frozen=True, kw_only=True)
class LocalReplica:
    """The state of the tablet on this server, read under the tablet's transition lock."""

    uuid: str
    data_state: DataState
    copying: bool = False
    """Whether a copy job exists, whatever the data state is at the moment."""
    term: int = 0
    last_opid: OpId = ZERO_OPID
    """READY: last entry of the log. DELETED or COPYING: the last logged OpId that was kept. DOES_NOT_EXIST: 0.0."""
    healthy: HealthyReplica | None = None
    """None if no replica takes part in the group here, or it has failed."""


def start_tablet_copy_checks(request: CopyRequest, local: LocalReplica) -> Refused | None:
    """The refusal of `request` at a server whose replica is `local`; None if the copy may start. Changes nothing.
    `Refused.detail` is machine-readable: the server's term with BAD_TERM; STATE, OPID or LEADER with ILLEGAL_STATE.
    """
    if request.dest_uuid != local.uuid:
        return Refused(Code.INVALID_NAME, "this server has another uuid", meant=request.dest_uuid, own=local.uuid)
    if local.copying or local.data_state is DataState.COPYING:
        return Refused(Code.ALREADY_INPROGRESS, "a copy of this tablet is under way", tablet=request.tablet_id)
    if request.term < local.term:
        return Refused(
            Code.BAD_TERM,
            "the caller's term is below this replica's",
            detail=str(local.term),
            caller=request.term,
            own=local.term,
        )
    if request.current_state is not local.data_state:
        return Refused(
            Code.ILLEGAL_STATE,
            "the replica is in another data state than the caller believes",
            detail="STATE",
            believed=request.current_state.name,
            actual=local.data_state.name,
        )
    if request.last_opid is not None and request.last_opid != local.last_opid:
        return Refused(
            Code.ILLEGAL_STATE,
            "the replica's last OpId is another than the caller believes",
            detail="OPID",
            believed=request.last_opid,
            actual=local.last_opid,
        )
    leader = local.healthy.leader_uuid if local.healthy is not None else ""
    if leader == local.uuid or leader not in ("", request.from_uuid):
        return Refused(
            Code.ILLEGAL_STATE,
            "the replica here is intact and leads, or follows another leader, only from which it may be copied anew: "
            "nothing was changed",
            detail="LEADER",
            source=request.from_uuid[: limits.NAME_LENGTH_MAX],
            leader=leader,
        )
    return None


def replacement_refusal(
    here: HealthyReplica, source_uuid: str, offered: RaftConfig, rows_end: OpId, first_retained_index: int
) -> Refused | None:
    """The refusal of an offer that would replace an intact replica; None if it may. `offered`: the source's config.

    The source has to vote in a config that is known here, or in one that differs from such a config by one voter at
    most, as two configs in a row do. And the replica here must need the copy: its next entry is not in the source's
    log any more. Then everything that is committed here is in the offered rows, whose last entry cannot be of an
    earlier term.
    """
    why = ""
    near = any(len({*config.voters} ^ {*offered.voters}) <= 1 for config in here.configs)
    if not here.votes(source_uuid) and not (near and source_uuid in offered.voters):
        why = "its server votes in no config that is known here, nor in one that follows from it"
    elif first_retained_index <= here.committed.index + 1:
        why = "its log continues this replica's, so that no copy is needed"
    elif rows_end < here.committed:
        why = "its rows end below what is committed here"
    if not why:
        return None
    what = (
        f"an intact replica is not replaced by this source, {why}: nothing was changed. If it stays behind its leader, "
        "stop this server, run `nyala local-replica delete DIR TABLET`, and start it"
    )
    known = here.configs[-1].opid
    return Refused(
        Code.ILLEGAL_STATE,
        what,
        detail=INTACT,
        source=source_uuid,
        offered=offered.opid,
        known=known,
        rows=rows_end,
        log_begins=first_retained_index,
        committed=here.committed,
    )


def time_refusal(what: str, hybrid_time: int, ahead_us: int) -> Refused | None:
    """The refusal of a copy whose time would push this server's clock by so much; None if it may.

    A time in an AppendEntries has the same bound. Later writes of this server get times above those that it holds, so a
    time that is far ahead must not come here by a copy either.
    """
    if ahead_us <= limits.CLOCK_AHEAD_OF_PEERS_US_MAX:
        return None
    return Refused(
        Code.ILLEGAL_STATE,
        f"the times of the source's {what} are too far ahead of the clock here: no replica was installed, compare the "
        "clocks of both servers",
        time=hybrid_time,
        ahead_s=round(ahead_us / 1e6, 1),
        max_s=limits.CLOCK_AHEAD_OF_PEERS_US_MAX / 1e6,
    )


def source_refusal(
    *,
    source_last_opid: OpId,
    source_term: int,
    source_is_leader: bool,
    own_last_opid: OpId,
    own_term: int,
    allow_leaderless: bool = False,
) -> Refused | None:
    """The refusal if a copy from this source could lose acknowledged entries; otherwise None.

    A source would lose entries if its log ends below what this server has acknowledged, compared by (term, index). So
    might a source that leads in an earlier term than this server knows: a later leader may count on an acknowledgement
    of entries that this server does not know any more, because its own log is damaged.
    """
    if source_last_opid < own_last_opid:
        return Refused(
            Code.ILLEGAL_STATE,
            "the source's log ends below what this server has acknowledged",
            detail="OPID",
            source=source_last_opid,
            own=own_last_opid,
        )
    if source_term < own_term and not allow_leaderless:
        return Refused(
            Code.BAD_TERM,
            "the source leads in an earlier term than this server knows",
            detail=str(own_term),
            source=source_term,
            own=own_term,
        )
    if not source_is_leader and not allow_leaderless:
        return Refused(Code.NOT_LEADER, "the source of a tablet copy must be the tablet's leader")
    return None
