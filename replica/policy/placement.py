"""Chooses servers for the replicas of new tablets and for replacements: the least loaded ones, spread over
locations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from nyala.replica.types import Code, Refused

from .views import ClusterView, ServerView, TabletView


def replica_load(view: ClusterView) -> Counter[str]:
    """Return the number of replicas per server uuid, including those that are being copied there."""
    return Counter(m.uuid for t in view.tablets for m in t.config.members)


def room_left(servers: Sequence[ServerView], load: Mapping[str, int]) -> int | None:
    """Return how many more replicas fit on the servers that may get any, together; None if one of them has no limit."""
    fit = [s for s in servers if s.takes_replicas]
    if any(not s.tablets_max for s in fit):
        return None
    return sum(max(0, s.tablets_max - load.get(s.uuid, 0)) for s in fit)


_Kind = tuple[bool, bool, tuple[str, ...]]


def _kind(server: ServerView, bytes_wanted: int = 0) -> _Kind:
    """Return the properties that placement compares first. Among servers of equal kind, only the loads decide."""
    return server.avoided, server.nearly_full(bytes_wanted), server.places


def _merit(kind: _Kind, used: Mapping[str, int]) -> tuple[bool, bool, tuple[int, ...]]:
    """Return the rank of a kind of servers, the best first: copies do not fail, then room on the disk, then the
    location with the fewest replicas, the widest location first. `used`: the number of the tablet's replicas in each
    place."""
    avoided, full, places = kind
    return avoided, full, tuple(used[place] for place in places)


def _best(
    others: Sequence[ServerView], taken: Sequence[ServerView], load: Mapping[str, int], bytes_wanted: int
) -> list[ServerView]:
    """Return the servers of the best kind, the least loaded first. A server at its limit is left out. `taken`: the
    servers of the tablet's members."""
    used = Counter(place for s in taken for place in s.places)
    fit = [s for s in others if s.takes_replicas and s.has_room(load.get(s.uuid, 0))]

    def merit(server: ServerView) -> tuple[bool, bool, tuple[int, ...]]:
        return _merit(_kind(server, bytes_wanted), used)

    best = min(map(merit, fit), default=None)
    return sorted((s for s in fit if merit(s) == best), key=lambda s: (load.get(s.uuid, 0), s.uuid))


def place_tablets(
    servers: Sequence[ServerView], load: Mapping[str, int], tablets: int, replicas: int
) -> list[list[str]]:
    """Return the servers of each new tablet: `tablets` lists of `replicas` uuids, the first of which should lead.

    Each replica goes to a server of the best kind that has no replica of the tablet: the one with the fewest of these
    tablets, then the least loaded one. The cost of a replica grows with the number of kinds (locations), and hardly
    with the number of servers, because the servers of a kind are on a heap. Raises Refused(INVALID_ARGUMENT) if fewer
    than `replicas` servers may get replicas, or if they have no room for them all.
    """
    alive = {s.uuid: s for s in servers if s.takes_replicas}
    if len(alive) < replicas:
        raise Refused(
            Code.INVALID_ARGUMENT,
            f"{replicas} replicas need as many live tablet servers that are neither retired nor under maintenance; "
            "nothing was changed: start or add servers, or ask for fewer replicas",
            alive=len(alive),
            replicas=replicas,
        )
    heaps: dict[_Kind, list[tuple[int, int, str]]] = {}
    """By kind, of each server with room: the number of these tablets, the load, the uuid."""
    for server in alive.values():
        if server.has_room(count := load.get(server.uuid, 0)):
            heaps.setdefault(_kind(server), []).append((0, count, server.uuid))
    for heap in heaps.values():
        heapify(heap)
    leaders: Counter[str] = Counter()
    placed = []
    for _ in range(tablets):
        chosen: list[tuple[int, int, str]] = []
        used: Counter[str] = Counter()
        for _ in range(replicas):
            found = min(((_merit(kind, used), heap[0], kind) for kind, heap in heaps.items() if heap), default=None)
            if found is None:
                raise Refused(
                    Code.INVALID_ARGUMENT,
                    "the tablet servers have no room for so many tablets: each holds a limited number of replicas "
                    "(--tablets-max of nyala.replica.server); create fewer, drop tables, or add servers",
                    tablets=tablets,
                    replicas_each=replicas,
                    room=room_left([*alive.values()], load),
                )
            chosen.append(heappop(heaps[found[2]]))
            used.update(found[2][2])
        for of_table, total, uuid in chosen:
            if alive[uuid].has_room(total + 1):
                heappush(heaps[_kind(alive[uuid])], (of_table + 1, total + 1, uuid))
        names = sorted((uuid for _, _, uuid in chosen), key=lambda u: (leaders[u], u))
        leaders[names[0]] += 1
        placed.append(names)
    return placed


def replacements_for(view: ClusterView, tablet: TabletView, load: Mapping[str, int]) -> list[ServerView]:
    """Return the servers for a replacement replica of `tablet`, the best first; empty if there is none.

    They differ only in their loads. If the first one is busy with copies, the next one gets the replica. Servers in a
    worse location are left out, because a replica that was copied there would stay there.
    """
    by_uuid = {s.uuid: s for s in view.servers}
    members = [by_uuid.get(m.uuid) for m in tablet.config.members]
    taken = [s for s in members if s is not None]
    staying = [s for s in taken if not tablet.health_of(s.uuid).failed and not s.draining]
    names = {m.uuid for m in tablet.config.members} | tablet.former_generation
    others = [s for s in view.servers if s.uuid not in names]
    return _best(others, staying, load, tablet.bytes_on_disk)
