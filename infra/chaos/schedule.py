"""Which fault comes when: a schedule is drawn from a seed in advance, and each event is aimed at the present cluster.

Both are pure: the same seed gives the same schedule; the same scene and event give the same operation.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from .scene import Scene, ServerScene, TabletScene, why_unsettled


class Kind(StrEnum):
    """One kind of injected fault, or of an operator's work during faults."""

    KILL_LEADER = "kill -9 of a leader"
    KILL_FOLLOWER = "kill -9 of a follower"
    KILL_MASTER = "kill -9 of the master"
    KILL_ALL = "kill -9 of everything"
    PAUSE = "pause of a server"
    PAUSE_MASTER = "pause of the master"
    STOP = "stop and start of a server"
    LEAVE = "a server away until it is replaced"
    WIPE = "a server's disk lost"
    ROT = "a block gone bad at rest"
    STEP_DOWN = "leader steps down"
    ADD = "replica added"
    REMOVE = "replica removed"
    MOVE = "replica moved"
    FLUSH = "flush and compaction"


TAKES_AWAY = frozenset({Kind.PAUSE, Kind.STOP, Kind.LEAVE, Kind.WIPE, Kind.ROT})
"""Kinds that take a server's vote away for a while or for ever. Only one server at a time may have such a fault, or no
majority would be left."""


MEMBERS = frozenset({Kind.ADD, Kind.REMOVE, Kind.MOVE})
"""Kinds that change who has a replica."""
ROT = frozenset({Kind.ROT})
USUAL_DEMANDS = (MEMBERS, ROT, frozenset(Kind) - MEMBERS - ROT - {Kind.STEP_DOWN, Kind.FLUSH})
"""Sets of kinds: a run must have seen at least one kind of each. All kinds in the last set take something away."""


@dataclass(frozen=True)
class Event:
    """A planned fault. `pick` chooses among the possible targets; `hold_s`: the time before it is removed."""

    at_s: float
    kind: Kind
    pick: int
    hold_s: float = 0.0


@dataclass(frozen=True)
class Operation:
    """The concrete fault and its target; or, in `why_not`, the reason why the scene does not allow it."""

    kind: Kind
    server: str = ""
    tablet_id: str = ""
    from_uuid: str = ""
    to_uuid: str = ""
    hold_s: float = 0.0
    why_not: str = ""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The rate of faults, in seconds. `away_s` must exceed the time after which the masters replace a server."""

    gap_s: tuple[float, float] = (2.0, 6.0)
    hold_s: tuple[float, float] = (1.0, 5.0)
    away_s: tuple[float, float] = (9.0, 14.0)


QUICK = Pace(gap_s=(1.0, 3.0), hold_s=(1.0, 3.0), away_s=(7.0, 9.0))
QUICK_S = 60.0
"""Runs up to this length have the quick pace; with the usual one they would see half of the kinds."""


def pace_of(duration_s: float) -> Pace:
    """The default pace for a run of that many seconds."""
    return QUICK if duration_s <= QUICK_S else Pace()


def draw(seed: int, duration_s: float, pace: Pace, kinds: Sequence[Kind] = tuple(Kind)) -> tuple[Event, ...]:
    """The schedule of a seed: every kind once in random order, then all again, until the time is over."""
    rng = random.Random(seed)
    events: list[Event] = []
    deck: list[Kind] = []
    at_s = rng.uniform(*pace.gap_s)
    while at_s < duration_s:
        if not deck:
            deck = sorted(kinds)
            rng.shuffle(deck)
        kind = deck.pop()
        hold_s = 0.0
        if kind in (Kind.LEAVE, Kind.WIPE):
            hold_s = rng.uniform(*pace.away_s)
        elif kind in (Kind.PAUSE, Kind.STOP, Kind.ROT, Kind.PAUSE_MASTER):
            hold_s = rng.uniform(*pace.hold_s)
        events.append(Event(round(at_s, 2), kind, rng.getrandbits(30), round(hold_s, 2)))
        at_s += rng.uniform(*pace.gap_s)
    return tuple(events)


def aim(event: Event, scene: Scene) -> Operation:
    """The operation for an event in a scene. It never loses acknowledged data by design."""
    kind = event.kind
    if kind in (Kind.KILL_MASTER, Kind.PAUSE_MASTER, Kind.KILL_ALL):
        up = scene.master_state == "READY"
        return Operation(kind, "master-1", hold_s=event.hold_s) if up else _not(kind, "the master is away")
    if kind in TAKES_AWAY:
        return _take_away(event, scene)
    if not scene.tablets:
        return _not(kind, "no tablet is known")
    tablet = _tablet(event, scene)
    if not tablet.leader:
        return _not(kind, f"nobody leads {tablet.tablet_id[:8]}", tablet)
    if kind is Kind.KILL_LEADER:
        return Operation(kind, tablet.leader, tablet.tablet_id)
    if kind in (Kind.STEP_DOWN, Kind.FLUSH):
        return Operation(kind, tablet_id=tablet.tablet_id)
    followers = [s for s in scene.members(tablet) if s.name != tablet.leader and s.serves]
    if kind is Kind.KILL_FOLLOWER:
        victim = _one(followers, event)
        return Operation(kind, victim.name, tablet.tablet_id) if victim else _not(kind, "no follower is up", tablet)
    return _change(event, scene, tablet)


def _take_away(event: Event, scene: Scene) -> Operation:
    if scene.away:
        return _not(event.kind, f"{', '.join(scene.away)} away already")
    tablet = _tablet(event, scene) if event.kind is Kind.ROT and scene.tablets else None
    victim = _one(scene.members(tablet) if tablet else scene.servers, event)
    if victim is None:
        return _not(event.kind, "no server is there", tablet)
    if event.kind in (Kind.WIPE, Kind.LEAVE, Kind.ROT):
        # A lost disk or block loses no acknowledged data only while every tablet has all its other replicas.
        for one in scene.tablets:
            if why := why_unsettled(scene, one):
                return _not(event.kind, f"{one.tablet_id[:8]}: {why}")
    return Operation(event.kind, victim.name, tablet.tablet_id if tablet else "", hold_s=event.hold_s)


def _change(event: Event, scene: Scene, tablet: TabletScene) -> Operation:
    """One change of membership that an operator might make."""
    kind = event.kind
    if why := why_unsettled(scene, tablet):
        return _not(kind, why, tablet)
    source, target = _one(scene.members(tablet), event), _one(scene.strangers(tablet), event)
    if target is None:
        return _not(kind, "no server is free for a replica", tablet)
    if kind is Kind.ADD:
        return Operation(kind, tablet_id=tablet.tablet_id, to_uuid=target.uuid)
    if source is None:
        return _not(kind, "no member is up", tablet)
    to_uuid = target.uuid if kind is Kind.MOVE else ""
    return Operation(kind, tablet_id=tablet.tablet_id, from_uuid=source.uuid, to_uuid=to_uuid)


def _tablet(event: Event, scene: Scene) -> TabletScene:
    return scene.tablets[event.pick % len(scene.tablets)]


def _one(servers: Sequence[ServerScene], event: Event) -> ServerScene | None:
    # Uses another digit of the draw than the tablet, otherwise few pairs would ever occur together.
    return servers[(event.pick // 1009) % len(servers)] if servers else None


def _not(kind: Kind, why: str, tablet: TabletScene | None = None) -> Operation:
    return Operation(kind, tablet_id=tablet.tablet_id if tablet else "", why_not=why)
