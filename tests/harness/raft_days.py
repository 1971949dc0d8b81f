"""Sorts of bad day for a group of cores: faults that belong together, and occur at the moment that hurts most.

Faults drawn each for itself hardly ever meet in the few ticks in which a rule matters: a vote given while a lease runs
needs a server that lost its leader, another that did not, and a leader that is cut off from both right then. So some
histories are of one of these sorts, drawn apart from all else, and the others are the same as without them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from nyala.replica.raft import RaftOptions, Role
from nyala.replica.types import ConfigEdit, EditKind, Refused
from tests.harness.raft_net import OPTIONS, Node

if TYPE_CHECKING:
    from tests.harness.raft_sim import SimNet

ODDS = 0.35
"""The probability that a history is of one of these sorts."""
CALM = dict.fromkeys(("crash", "cut", "pause", "config", "transfer", "compact", "campaign", "evict"), 0.0)
LONG_LEASES = replace(OPTIONS, heartbeat_ticks=2, election_ticks_min=24, election_ticks_max=48)
"""Options with leases that outlive an election by far, so that what breaks them has time to show."""
COUNTED_OUT = replace(OPTIONS, heartbeat_ticks=2, election_ticks_min=12, election_ticks_max=24)


@dataclass
class Day:
    """The settings that such a history is drawn with, and its characteristic fault."""

    name: str
    options: RaftOptions
    voters: int
    odds: dict[str, float]
    strike: Callable[[SimNet, Random], None]
    """Called in each tick of the fault phase."""
    learners: int = 0
    delay: int = 0
    disk: float = 1.0
    leases: bool = True
    late_odds: float = 0.02
    late_ticks: int = 15
    rng: Random = field(default_factory=Random)


def bad_day(seed: int) -> Day | None:
    """Return the sort of this seed's history, if it is of one."""
    rng = Random(f"day/{seed}")
    if rng.random() >= ODDS:
        return None
    day = rng.choice([_leaders_fall, _links_fray, _minority_rules, _tails_tear, _leaders_return])(rng)
    day.rng = rng
    return day


def _leaders_fall(rng: Random) -> Day:
    """Return a day on which elections follow each other so fast that hardly a term is opened, and logs end in many
    terms."""
    return Day(
        name="leaders fall",
        options=replace(OPTIONS, probe_bytes_max=rng.choice([60, 150])),
        voters=rng.choice([3, 3, 3, 5]),
        odds=CALM
        | {
            "crash": rng.choice([0, 0.02, 0.06]),
            "compact": rng.choice([0, 0, 0.1]),
            "campaign": rng.choice([0, 0.04]),
            "transfer": rng.choice([0, 0, 0.05]),
        },
        strike=_fell,
        delay=rng.choice([0, 1, 1]),
        disk=rng.choice([1.0, 0.7]),
        leases=rng.random() < 0.5,
        late_ticks=rng.choice([15, 30]),
    )


def _links_fray(rng: Random) -> Day:
    """Return a day on which a leader loses the voters one after the other, and keeps its learners; or is cut off during
    a transfer."""
    return Day(
        name="links fray",
        options=LONG_LEASES,
        voters=rng.choice([3, 3, 3, 5]),
        learners=rng.choice([0, 0, 3]),
        odds=CALM
        | {
            "crash": rng.choice([0, 0, 0.02]),
            "pause": rng.choice([0, 0.01]),
            "campaign": rng.choice([0.05, 0.1]),
            "compact": rng.choice([0, 0, 0.1]),
        },
        strike=_fray,
        delay=rng.choice([0, 0, 1]),
    )


def _minority_rules(rng: Random) -> Day:
    """Return a day on which the leader of a minority is asked for one config after the other."""
    return Day(
        name="minority rules",
        options=COUNTED_OUT,
        voters=rng.choice([3, 4, 5, 5]),
        odds=CALM
        | {
            "crash": rng.choice([0, 0.02]),
            "config": rng.choice([0.01, 0.05]),
            "campaign": rng.choice([0, 0.04]),
            "evict": rng.choice([0, 0.1]),
        },
        strike=_outnumber,
        delay=rng.choice([0, 1]),
        disk=rng.choice([1.0, 0.7]),
        leases=rng.random() < 0.5,
    )


def _leaders_return(rng: Random) -> Day:
    """Return a day on which a leader is cut off with too few, loses what it wrote there, and leads again; then come the
    answers that were under way all the time."""
    return Day(
        name="leaders return",
        options=OPTIONS,
        voters=5,
        odds=CALM | {"crash": rng.choice([0, 0, 0.02]), "campaign": rng.choice([0, 0.04])},
        strike=_depose_for_a_while,
        delay=1,
        leases=rng.random() < 0.5,
        late_odds=0.08,
        late_ticks=rng.choice([15, 25]),
    )


def _tails_tear(rng: Random) -> Day:
    """Return a day on which the one follower that has the newest entries loses the last of them, while it loses its
    leader."""
    return Day(
        name="tails tear",
        options=OPTIONS,
        voters=3,
        odds=CALM | {"crash": rng.choice([0, 0.02]), "campaign": rng.choice([0, 0.04])},
        strike=_tear,
        delay=rng.choice([0, 1]),
        leases=rng.random() < 0.5,
    )


def _fell(net: SimNet, rng: Random) -> None:
    """Cut one server at a time off: the newest leader, mostly before its term is open."""
    leader = net.leader()
    if leader is None or (net.cuts and all(leader.uuid in pair for pair in net.cuts)):
        return
    if rng.random() < (0.05 if leader.core.term_committed else 0.3):
        net.heal()
        net.isolate(leader.uuid)
        net.marks["leader fell"] += 1


def _fray(net: SimNet, rng: Random) -> None:
    leader = net.leader()
    if net.later or leader is None or not leader.core.term_committed:
        return
    draw = rng.random()
    if draw < 0.03:
        _lose_voters(net, rng, leader.uuid)
    elif draw < 0.05:
        _hand_over_and_vanish(net, rng, leader.uuid)


def _lose_voters(net: SimNet, rng: Random, uuid: str) -> None:
    """Cut some voters off first, the others when those have waited for about long enough; a link may be lost because
    the process at its other end starts again. The leader's learners mostly stay with it, and clients mostly only read
    meanwhile: otherwise the learners would report the next leader, and the logs of those lost first would be too short
    to win."""
    others = [v for v in net.nodes[uuid].core.active_config.voters if v != uuid]
    rng.shuffle(others)
    half, soon, later = len(others) // 2, net.clock + 6, net.clock + rng.randint(20, 45)
    if rng.random() < 0.7:
        net.lull_until = later
    learners = [m.uuid for m in net.nodes[uuid].core.active_config.members if not m.votes]
    room = [uuid, *learners] if rng.random() < 0.7 else [uuid]
    for pos, other in enumerate(others):
        bounced = pos >= half and rng.random() < 0.5
        net.at(soon if pos < half else later, partial(_lose, net, room, other, bounced=bounced))
    net.at(later + rng.randint(10, 60), net.heal)
    net.marks["links frayed"] += 1


def _lose(net: SimNet, room: list[str], other: str, *, bounced: bool) -> None:
    for one in room:
        net.cut(one, other)
    if bounced and other in net.nodes and other not in net.copying:
        net.crash(other, written=len(net.nodes[other].pending))
        net.restart(other)


def _hand_over_and_vanish(net: SimNet, rng: Random, uuid: str) -> None:
    """Make the leader transfer leadership, and cut it off before it can receive the result."""
    leader = net.nodes[uuid]
    with suppress(Refused):
        leader.core.transfer_leadership(None)
    if leader.core.transfer_target is None:
        return
    leader.drain()
    net.marks["transfer"] += 1
    net.at(net.clock + rng.randint(1, 4), partial(net.isolate, uuid))
    net.at(net.clock + rng.randint(15, 40), net.heal)


def _outnumber(net: SimNet, rng: Random) -> None:
    """Cut a leader off with fewer than half of the voters; there it is asked to remove and demote the others."""
    leaders = [n for _, n in sorted(net.nodes.items()) if n.core.role is Role.LEADER and n.uuid not in net.copying]
    for node in leaders:
        # Without config changes tails may be damaged, of which a small group does not recover, by decision.
        if net.cuts and net.odds["config"] and rng.random() < 0.3:
            _shrink(node, rng)
    leader = net.leader()
    if net.cuts or net.later or leader is None or not leader.core.term_committed or rng.random() >= 0.05:
        return
    others = [v for v in leader.core.active_config.voters if v != leader.uuid]
    rng.shuffle(others)
    _cut_around(net, [leader.uuid, *others[: len(others) // 2 - rng.randint(0, 1)]])
    net.marks["outnumbered"] += 1
    net.at(net.clock + rng.randint(10, 60), net.heal)


def _cut_around(net: SimNet, few: list[str]) -> None:
    for one in few:
        for other in net.everyone():
            if other not in few:
                net.cut(one, other)


def _depose_for_a_while(net: SimNet, rng: Random) -> None:
    leader = net.leader()
    if net.later or leader is None or not leader.core.term_committed or rng.random() >= 0.1:
        return
    others = [v for v in leader.core.active_config.voters if v != leader.uuid]
    _cut_around(net, [leader.uuid, rng.choice(others)])
    net.marks["outnumbered"] += 1
    healed = net.clock + rng.randint(8, 20)
    net.at(healed, net.heal)
    for clock in range(healed + 2, healed + 14, 3):
        net.at(clock, partial(_give_back, net, leader.uuid))


def _give_back(net: SimNet, uuid: str) -> None:
    leader = net.leader()
    if leader is None or leader.uuid == uuid:
        return
    with suppress(Refused):
        leader.core.transfer_leadership(uuid)
    leader.drain()


def _tear(net: SimNet, rng: Random) -> None:
    leader = net.leader()
    if net.later or net.cuts or leader is None or not leader.core.term_committed or rng.random() >= 0.06:
        return
    others = [v for v in leader.core.active_config.voters if v != leader.uuid]
    left, struck = rng.sample(others, 2)
    net.cut(leader.uuid, left)
    at = net.clock + rng.randint(2, 12)
    net.at(at, partial(_damage, net, leader.uuid, struck))
    net.at(at + rng.randint(10, 40), net.heal)


def _damage(net: SimNet, leader: str, uuid: str) -> None:
    net.isolate(leader)
    durables = [*net.crashed.values(), *(n.durable for n in net.nodes.values())]
    if uuid not in net.nodes or uuid in net.copying or any(d.withheld for d in durables):
        return
    net.crash(uuid, written=len(net.nodes[uuid].pending))
    net.marks["torn tail"] += net.damage(uuid)
    net.restart(uuid)


def _shrink(node: Node, rng: Random) -> None:
    """Change the config as a caller does that names no config that it knows."""
    config = node.core.active_config
    others = [m for m in config.members if m.uuid != node.uuid and m.votes]
    if not others:
        return
    member = rng.choice(others)
    gone = rng.random() < 0.5
    edit = ConfigEdit(EditKind.REMOVE if gone else EditKind.CHANGE, member if gone else replace(member, votes=False))
    with suppress(Refused):
        node.core.propose_config([edit], None)
    node.drain()
