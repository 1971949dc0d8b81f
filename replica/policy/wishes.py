"""When a wish holds, when it failed, and when what it began is taken back."""

from __future__ import annotations

from enum import StrEnum

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
    if wish.kind is WishKind.REMOVE:
        if source is None:
            return WishState.DONE
    elif wish.kind is WishKind.ADD:
        if target is not None and (target.votes or not wish.votes):
            return WishState.DONE
    elif source is None:
        return WishState.DONE if target is not None and target.votes else WishState.FAILED
    if not wish.expired(now_us) or (target is not None and target.votes):
        return WishState.OPEN
    began = (target is not None and not target.votes) or (source is not None and source.replace)
    return WishState.CANCEL if began else WishState.FAILED
