"""Decides whether a desired change holds, has failed, or must be taken back."""

from __future__ import annotations

from enum import StrEnum

from nyala.replica.types import Member

from .views import ChangeKind, DesiredChange, TabletView


class ChangeState(StrEnum):
    """The state of a desired change."""

    OPEN = "OPEN"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCEL = "CANCEL"
    """Its deadline has passed, and the marks or the learner that it left must be removed first."""


def copy_is_under_way(tablet: TabletView) -> bool:
    """Whether a member of `tablet` waits for promotion and is not lost. No other copy of the tablet begins before that
    one has ended."""
    return any(not tablet.health_of(u).failed for u in tablet.copying)


def change_state(tablet: TabletView, desired: DesiredChange, now_us: int) -> ChangeState:
    """Return the state of `desired`, by the committed config of `tablet` and the wall clock `now_us`."""
    target, source = tablet.config.member(desired.to_uuid), tablet.config.member(desired.from_uuid)
    if desired.kind is ChangeKind.TRANSFER:
        if tablet.leader_uuid == desired.to_uuid:
            return ChangeState.DONE
        fit = target is not None and target.votes and target.holds_data
        if not fit or tablet.health_of(desired.to_uuid).failed or desired.expired(now_us):
            return ChangeState.FAILED
        return ChangeState.OPEN
    if (settled := _settled(tablet, desired, target, source, desired.expired(now_us))) is not None:
        return settled
    if not desired.expired(now_us) or (target is not None and target.votes):
        return ChangeState.OPEN
    learner = target is not None and (target.promote or desired.kind is not ChangeKind.PROMOTE)
    return ChangeState.CANCEL if learner or (source is not None and source.replace) else ChangeState.FAILED


def _settled(
    tablet: TabletView, desired: DesiredChange, target: Member | None, source: Member | None, expired: bool
) -> ChangeState | None:
    """Return DONE or FAILED if the config shows it, whatever the time is. `expired`: no longer wait for surplus voters
    to leave."""
    if desired.kind is ChangeKind.REMOVE:
        return ChangeState.DONE if source is None else None
    if desired.kind is ChangeKind.DEMOTE:
        return ChangeState.DONE if source is None or not source.votes else None
    if desired.kind is ChangeKind.MOVE:
        if source is not None:
            return None
        return ChangeState.DONE if target is not None and target.votes else ChangeState.FAILED
    if target is None:
        return ChangeState.FAILED if desired.kind is ChangeKind.PROMOTE else None
    if not desired.votes:
        return ChangeState.DONE
    # While there are surplus voters, the open desired change protects its own member from removal.
    enough = len(tablet.config.voters) <= tablet.replication_factor
    return ChangeState.DONE if target.votes and (enough or expired) else None
