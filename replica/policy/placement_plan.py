"""Plans moves for chosen goals: to replace replicas lost with their servers, to empty servers, to spread replicas over
locations, or to even out single tables.

`plan_rebalance` plans for all of these but the first, and evens the whole cluster out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .layout import Layout, move_of
from .membership import can_commit
from .placement import replacements_for
from .rebalance import bounded, drain, even, spread_out, with_leaders
from .views import Caps, ClusterView, Move, MoveKind, Moves, TabletView


@dataclass(frozen=True, kw_only=True)
class Goals:
    """The goals of a plan. Servers to empty are marked in the view (`draining`)."""

    tables: frozenset[str] = frozenset()
    """The ids of the tables to spread and even out. If there are any, replicas of other tables do not move for any
    goal. Empty: all tables may move."""
    under_replicated: bool = False
    """Whether replicas that failed get a place on another server."""
    spread: bool = False
    """Whether replicas of one tablet leave locations in which they are crowded."""
    drain: bool = False
    """Whether draining servers are emptied."""

    def covers(self, table_id: str) -> bool:
        """Whether tablets of the table may be moved."""
        return not self.tables or table_id in self.tables


def plan_placement(view: ClusterView, goals: Goals, caps: Caps) -> Moves:
    """Return the moves that reach `goals`, the most urgent first, cut to `caps`; empty if they are reached. Pure.

    Failed replicas come first, beginning with the tablets that can lose the fewest further ones; then draining servers,
    locations, and tables. Tablets of `not_settled` are not moved for the other goals.
    """
    layout = Layout(view)
    layout.busy |= {name for name, t in layout.tablets.items() if not goals.covers(t.table_id)}
    moves = bounded(((move,) for move in _plan(view, layout, goals)), caps)
    return with_leaders(view, moves, caps, goals.tables)


def _plan(view: ClusterView, layout: Layout, goals: Goals) -> Iterable[Move]:
    if goals.under_replicated:
        yield from _replace_failed(view, layout, goals)
    if goals.drain:
        yield from drain(layout)
    if goals.spread or goals.tables:
        yield from spread_out(layout)
    for table in sorted(goals.tables):
        yield from even(layout, table)


def lost_replicas(view: ClusterView) -> Mapping[str, tuple[str, ...]]:
    """Return, by tablet, the voters that have failed; tablets without any are left out."""
    found = {t.tablet_id: tuple(u for u in sorted(t.config.voters) if t.health_of(u).failed) for t in view.tablets}
    return {tablet_id: voters for tablet_id, voters in found.items() if voters}


def _replace_failed(view: ClusterView, layout: Layout, goals: Goals) -> Iterable[Move]:
    """Plan a target for one failed voter of each tablet whose leader can commit a change now."""
    lost = lost_replicas(view)

    def spare(tablet: TabletView) -> int:
        """Return the sort key: tablets that can lose fewer further voters come first."""
        voters = len(tablet.config.voters)
        return voters - voters // 2 - len(lost[tablet.tablet_id])

    found = [t for t in view.tablets if t.tablet_id in lost and goals.covers(t.table_id)]
    for tablet in sorted(found, key=lambda t: (spare(t), t.tablet_id)):
        changing = tablet.pending or tablet.desired is not None or tablet.copying
        if changing or not tablet.leader_uuid or not can_commit(tablet):
            continue
        if fit := replacements_for(view, tablet, layout.held):
            failed, target = lost[tablet.tablet_id][0], fit[0].uuid
            layout.held[target] += 1
            yield move_of(MoveKind.REPLICA, tablet, failed, target, f"its replica on server {failed} has failed")
