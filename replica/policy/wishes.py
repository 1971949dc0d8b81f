"""When a wish holds, when it failed, and when what it began is taken back."""

from __future__ import annotations

from enum import StrEnum

from nyala.replica.types import Member

from .views import TabletView, Wish, WishKind


class WishState(StrEnum):
    """Where a wish stands."""

    OPEN = "OPEN"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCEL = "CANCEL"
    """Its deadline has passed and it left marks or a learner behind, which go first."""


def copy_is_under_way(tablet: TabletView) -> bool:
    """Whether a member of `tablet` waits for promotion and is not lost: the next one waits for it."""
    return any(not tablet.health_of(u).failed for u in tablet.copying)


def wish_state(tablet: TabletView, wish: Wish, now_us: int) -> WishState:
    """Where `wish` stands for the committed config of `tablet` at the wall clock `now_us`."""
    target, source = tablet.config.member(wish.to_uuid), tablet.config.member(wish.from_uuid)
    if wish.kind is WishKind.TRANSFER:
        if tablet.leader_uuid == wish.to_uuid:
            return WishState.DONE
        fit = target is not None and target.votes and target.holds_data
        if not fit or tablet.health_of(wish.to_uuid).failed or wish.expired(now_us):
            return WishState.FAILED
        return WishState.OPEN
    if (settled := _settled(tablet, wish, target, source, wish.expired(now_us))) is not None:
        return settled
    if not wish.expired(now_us) or (target is not None and target.votes):
        return WishState.OPEN
    learner = target is not None and (target.promote or wish.kind is not WishKind.PROMOTE)
    return WishState.CANCEL if learner or (source is not None and source.replace) else WishState.FAILED


def _settled(
    tablet: TabletView, wish: Wish, target: Member | None, source: Member | None, expired: bool
) -> WishState | None:
    """DONE or FAILED if the config says so, whatever the time; `expired` ends the wait for surplus voters to leave."""
    if wish.kind is WishKind.REMOVE:
        return WishState.DONE if source is None else None
    if wish.kind is WishKind.DEMOTE:
        return WishState.DONE if source is None or not source.votes else None
    if wish.kind is WishKind.MOVE:
        if source is not None:
            return None
        return WishState.DONE if target is not None and target.votes else WishState.FAILED
    if target is None:
        return WishState.FAILED if wish.kind is WishKind.PROMOTE else None
    if not wish.votes:
        return WishState.DONE
    # While more vote than are wanted, the open wish says who must not be the one that leaves.
    enough = len(tablet.config.voters) <= tablet.replication_factor
    return WishState.DONE if target.votes and (enough or expired) else None
