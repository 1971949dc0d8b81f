"""Witnesses in the add/evict table: which one stands in for a lost voter, and the edits by which both change. Pure.

The config shows the state of the healing by the marks of two members. The witness joins (`promote`, no vote), then
votes while its data is copied (`votes`, `promote`), or leaves because the lost voter is back (`votes`, `replace`). The
lost voter is demoted and kept (no vote, `replace`), or on its way back (no vote, `promote`). CC-51, CC-52."""

from __future__ import annotations

from dataclasses import replace

from nyala.replica.types import ConfigEdit, EditKind, Member

from .views import Health, TabletView


def stands_in(member: Member) -> bool:
    """Whether the member votes in a lost voter's place, without data, until it has its data or leaves."""
    return member.votes and not member.holds_data and (member.promote or member.replace)


def is_demoted(member: Member) -> bool:
    """Whether the member is a lost voter that was demoted and kept: it may come back before it is replaced."""
    return not member.votes and member.holds_data and member.replace and not member.promote


def stand_in(tablet: TabletView, *, leaving: bool = False) -> Member | None:
    """Return the first voting witness, by uuid, that waits for its data, or that leaves, and is not lost itself."""
    fit = [
        m
        for m in tablet.config.members
        if stands_in(m) and m.promote != leaving and not tablet.health_of(m.uuid).failed
    ]
    return min(fit, key=lambda m: m.uuid, default=None)


def heals_by_witness(tablet: TabletView) -> bool:
    """Whether a demoted voter of this tablet should stay: there is a witness, or one would be added."""
    lost = tablet.health_of
    return tablet.by_witness or any(not m.holds_data and not lost(m.uuid).failed for m in tablet.config.members)


def is_lost(tablet: TabletView, member: Member) -> bool:
    """Whether the member, a voter, holds data, is lost, may come back, and is not marked `replace`."""
    return member.holds_data and not member.replace and tablet.health_of(member.uuid) is Health.FAILED


def wants_witness(tablet: TabletView) -> bool:
    """Whether the next member joins as a witness: a lost or demoted voter has no witness in its place yet. The
    replacement of a living voter joins as a learner."""
    members = tablet.config.members
    places = sum(is_lost(tablet, m) or is_demoted(m) for m in members)
    taken = [m for m in members if not m.holds_data and m.promote and not m.replace]
    return tablet.by_witness and places > sum(not tablet.health_of(m.uuid).failed for m in taken)


def demoted(member: Member) -> ConfigEdit:
    """Return the edit that takes the lost voter's vote away. The member stays until it is back or replaced."""
    return ConfigEdit(EditKind.CHANGE, replace(member, votes=False, promote=False, replace=True))


def restored(tablet: TabletView, member: Member) -> tuple[ConfigEdit, ...]:
    """Return the edits for a demoted voter that is back: it votes again once it has caught up, and the witness that
    stood in stops copying and leaves."""
    back = ConfigEdit(EditKind.CHANGE, replace(member, promote=True, replace=False))
    other = stand_in(tablet)
    return (
        (back,) if other is None else (back, ConfigEdit(EditKind.CHANGE, replace(other, promote=False, replace=True)))
    )


def demoted_again(tablet: TabletView, member: Member) -> tuple[ConfigEdit, ...]:
    """Return the edits for a voter that was lost again before it voted: the witness stands in again, and copies its
    data."""
    away = ConfigEdit(EditKind.CHANGE, replace(member, promote=False, replace=True))
    other = stand_in(tablet, leaving=True)
    return (
        (away,) if other is None else (away, ConfigEdit(EditKind.CHANGE, replace(other, promote=True, replace=False)))
    )
